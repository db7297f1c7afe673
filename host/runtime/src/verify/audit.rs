//! The order in which one record is checked, and what is known from those before it. Knows no store.

use std::collections::HashSet;

use wharf_core::digest::Digest;
use wharf_core::session::Session;
use wharf_core::{BlobDigest, Error, ErrorKind, Fence, Record, RecordId, Seq};
use wharf_store::StoredRecord;

use super::promises::{Ledger, PROMISES};
use super::{Breach, Findings, Invariant};
use crate::limits;

/// What was read of the output that a record names.
pub(super) enum Output {
    /// It names none: what it has stands in it.
    Inline,
    /// These bytes are kept under the name.
    Blob(BlobDigest, Vec<u8>),
    /// It cannot be had.
    Broken(String),
}

/// What is known of the records so far.
pub(super) struct Audit {
    last: Seq,
    fence: Fence,
    ids: HashSet<RecordId>,
    ledger: Ledger,
    /// None once a record did not fit: what follows from a state that is not known cannot be told.
    fold: Option<Session>,
    /// The newest snapshot with the position up to which it folds, until that is reached.
    snapshot: Option<(Seq, String)>,
    /// False once an output could not be had: a snapshot may have it, and the fold has not.
    has_outputs: bool,
    findings: Findings,
}

impl Audit {
    pub(super) fn new(snapshot: Option<(Seq, String)>) -> Self {
        Self {
            last: Seq(0),
            fence: Fence(0),
            ids: HashSet::new(),
            ledger: Ledger::default(),
            fold: Some(Session::default()),
            snapshot,
            has_outputs: true,
            findings: Findings::default(),
        }
    }

    /// True if no further breach would be listed.
    pub(super) fn is_full(&self) -> bool {
        self.findings.breaches.len() >= limits::BREACHES_MAX
    }

    /// Checks one record.
    ///
    /// # Errors
    /// A store error for a record of a newer version, unless something is broken before it.
    pub(super) fn record(&mut self, stored: &StoredRecord, output: Output) -> Result<(), Error> {
        self.findings.records += 1;
        let breach = |invariant, what| Breach {
            seq: stored.seq,
            kind: Some(stored.record.kind.clone()),
            invariant,
            what,
            advice: None,
        };
        let mut broken = Vec::new();
        for (invariant, check) in ENVELOPE {
            if let Err(what) = check(self, stored) {
                broken.push(breach(*invariant, what));
            }
        }
        self.fence = self.fence.max(stored.fence);
        self.ids.insert(stored.record.id.clone());
        if stored.seq != self.last.next() {
            self.lose_the_thread();
        }
        self.last = self.last.next().max(stored.seq);

        let bytes = match output {
            Output::Inline => None,
            Output::Broken(what) => {
                broken.push(breach(Invariant::Output, what));
                None
            }
            Output::Blob(digest, bytes) => {
                self.findings.blobs += 1;
                if let Err(what) = check_output(&digest, &bytes) {
                    broken.push(breach(Invariant::Output, what));
                }
                Some(bytes)
            }
        };
        match Record::decode(&stored.record.kind, stored.record.version, &stored.record.body, |_| bytes) {
            Ok(record) => broken.extend(self.meaning(&record).map(|(invariant, what)| breach(invariant, what))),
            Err(error) if error.kind == ErrorKind::Corruption => {
                broken.push(Breach { advice: error.hint, ..breach(Invariant::Form, error.message) });
                self.lose_the_thread();
            }
            Err(error) if self.findings.breaches.is_empty() => {
                return Err(Error { message: format!("record {}: {}", stored.seq, error.message), ..error });
            }
            // It would be told if there were nothing else; so what is broken comes first.
            Err(_) => self.lose_the_thread(),
        }
        self.has_outputs &= !broken.iter().any(|breach| breach.invariant == Invariant::Output);
        if let Some(what) = self.snapshot_differs() {
            broken.push(breach(Invariant::Snapshot, what));
        }
        self.add(broken);
        Ok(())
    }

    /// How a snapshot that folds up to here differs from the fold. One of another form is passed over, as whoever opens the
    /// session passes it over (design section 8).
    fn snapshot_differs(&mut self) -> Option<String> {
        let (_, text) = self.snapshot.take_if(|(seq, _)| *seq == self.last)?;
        let fold = self.fold.as_ref().filter(|_| self.has_outputs)?;
        let ours = fold.to_snapshot().ok()?; // none would have been written
        if form_of(&text).is_some_and(|form| Some(form) != form_of(&ours)) {
            return None;
        }
        match Session::from_snapshot(&text) {
            Ok(said) if said == *fold => None,
            Ok(_) => Some("the snapshot at this record says something else than the records up to it".to_owned()),
            Err(error) => Some(format!("the snapshot at this record is damaged: {}", error.message)),
        }
    }

    /// What a record means beside those before it. A promise that is broken is told by its name, and not once more as a
    /// record that does not fit.
    fn meaning(&mut self, record: &Record) -> Option<(Invariant, String)> {
        let promise = PROMISES
            .iter()
            .find_map(|(invariant, keeps)| keeps(&self.ledger, record).err().map(|what| (*invariant, what)));
        self.ledger.note(record);
        let fold = self.fold.as_mut().map_or(Ok(()), |fold| fits(fold, record));
        if fold.is_err() {
            self.fold = None;
        }
        promise.or(fold.err())
    }

    /// A record that the store cannot give.
    pub(super) fn unreadable(&mut self, seq: Seq, what: String) {
        self.lose_the_thread();
        self.last = self.last.max(seq);
        self.add(vec![Breach { seq, kind: None, invariant: Invariant::Readable, what, advice: None }]);
    }

    /// The journal ends here, and says that it ends at `head`.
    pub(super) fn end(mut self, read_to: Seq, head: Seq) -> Findings {
        if head != read_to {
            let what = format!("the journal says that it ends at record {head}, and its records end at {read_to}");
            self.add(vec![Breach {
                seq: read_to.next(),
                kind: None,
                invariant: Invariant::Position,
                what,
                advice: None,
            }]);
        }
        if let Some(Err((invariant, what))) = self.fold.as_ref().map(is_undamaged) {
            self.add(vec![Breach { seq: read_to, kind: None, invariant, what, advice: None }]);
        }
        if let Some((seq, _)) = self.snapshot.take_if(|(seq, _)| *seq > read_to) {
            let what = format!("there is a snapshot up to record {seq}, and the records end at {read_to}");
            self.add(vec![Breach { seq, kind: None, invariant: Invariant::Snapshot, what, advice: None }]);
        }
        self.findings.to_the_end = true;
        self.findings
    }

    /// Not all of it could be looked at.
    pub(super) fn cut_short(self) -> Findings {
        self.findings
    }

    fn add(&mut self, breaches: Vec<Breach>) {
        let room = limits::BREACHES_MAX.saturating_sub(self.findings.breaches.len());
        self.findings.breaches.extend(breaches.into_iter().take(room));
    }

    /// A record is not known, so neither is the state behind it.
    fn lose_the_thread(&mut self) {
        self.fold = None;
        self.ledger.has_gaps = true;
    }
}

/// The number of a snapshot's form.
fn form_of(snapshot: &str) -> Option<u64> {
    serde_json::from_str::<serde_json::Value>(snapshot).ok()?.get("form")?.as_u64()
}

type EnvelopeCheck = fn(&Audit, &StoredRecord) -> Result<(), String>;

/// What holds of a record whatever is in it.
const ENVELOPE: &[(Invariant, EnvelopeCheck)] = &[
    (Invariant::Position, |audit, stored| {
        let expected = audit.last.next();
        if stored.seq == expected { Ok(()) } else { Err(format!("it stands where record {expected} should")) }
    }),
    (Invariant::RecordId, |audit, stored| {
        let id = &stored.record.id;
        if audit.ids.contains(id) { Err(format!("its id {id} is that of an earlier record")) } else { Ok(()) }
    }),
    (Invariant::Fence, |audit, stored| {
        let (fence, before) = (stored.fence, audit.fence);
        if fence >= before {
            Ok(())
        } else {
            Err(format!("it was appended under fence {fence}, after a record under fence {before}"))
        }
    }),
];

fn check_output(digest: &BlobDigest, bytes: &[u8]) -> Result<(), String> {
    if Digest::of(bytes).to_string() != digest.as_str() {
        return Err(format!("the output {digest} that it names is damaged: its content has another digest"));
    }
    std::str::from_utf8(bytes).map(drop).map_err(|_| format!("the output {digest} that it names is not text"))
}

/// Folds a record and looks at what it has made. All calls of the turn are looked at where it ends, and else the one that the
/// record brought: a fold adds calls and changes states, so it can harm no other, and looking at all of them at each record
/// would take hours for a long turn.
fn fits(fold: &mut Session, record: &Record) -> Result<(), (Invariant, String)> {
    fold.apply(record).map_err(|error| (Invariant::Fold, error.message))?;
    if let Record::CallAccepted { call, .. } = record {
        let damaged = |fault: Error| format!("call {:?} is damaged: {}", call.id.as_str(), fault.message);
        call.validate().map_err(|fault| (Invariant::Checkpoint, damaged(fault)))?;
    }
    if let Record::TurnEnded { .. } = record { is_undamaged(fold) } else { Ok(()) }
}

fn is_undamaged(fold: &Session) -> Result<(), (Invariant, String)> {
    let Some(turn) = fold.turn() else { return Ok(()) };
    turn.checkpoint.check_damage().map_err(|error| (Invariant::Checkpoint, error.message))
}
