//! What is done to a store in a lane: drawn from a seed, and the same on every store.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::future::BoxFuture;
use wharf_core::{BlobDigest, InboxId, Seq};
use wharf_faultvfs::Random;
use wharf_store::{
    Acquire, Append, DeletionMark, InboxItem, InboxPut, JournalKey, Lease, NewRecord, Owner, Store, StoreError, Swept,
};

/// Sessions of a script.
pub(super) const SESSIONS: usize = 3;

/// What the owner of a session, or anybody else, does next.
#[derive(Debug, Clone)]
pub(super) enum Act {
    Acquire {
        take_over: bool,
    },
    Append(Load),
    /// With the lease before the last change of the owner.
    AppendAsFormerOwner,
    Renew,
    Release,
    /// Of every other blob.
    Sweep,
    Delete,
    /// `again`: an item on a target that has one.
    Put {
        again: bool,
    },
}

/// What an append carries. Sizes in bytes.
#[derive(Debug, Clone)]
pub(super) struct Load {
    pub(super) records: Vec<usize>,
    pub(super) blob: Option<usize>,
    pub(super) snapshot: Option<usize>,
    pub(super) consume: bool,
}

/// One step of a script. `handle` is which of the open stores does it.
#[derive(Debug, Clone)]
pub(super) enum Step {
    Do {
        handle: usize,
        session: usize,
        act: Act,
    },
    /// All at once, each in a session of its own.
    Together {
        handle: usize,
        acts: Vec<Act>,
    },
    Advance(Duration),
    /// Another process copies the log into the database.
    Checkpoint(&'static str),
    /// The store is closed, with the last connection if there is one handle, and opened again.
    Reopen {
        handle: usize,
    },
}

/// A script and how many handles it has.
#[derive(Debug, Clone)]
pub(super) struct Script {
    pub(super) seed: u64,
    pub(super) handles: usize,
    pub(super) steps: Vec<Step>,
}

/// Draws a script. One in four has blobs of more than a piece.
pub(super) fn draw(seed: u64) -> Script {
    let mut random = Random::new(seed);
    let handles = 1 + random.below(2);
    let large = random.below(4) == 0;
    let mut steps = Vec::new();
    for number in 0..8 + random.below(8) {
        let handle = random.below(handles);
        let act = |random: &mut Random| match random.below(14) {
            0 => Act::Acquire { take_over: random.below(2) == 0 },
            1 => Act::AppendAsFormerOwner,
            2 => Act::Renew,
            3 => Act::Release,
            4 if random.below(2) == 0 => Act::Delete,
            5 => Act::Sweep,
            6 | 7 => Act::Put { again: random.below(3) == 0 },
            _ => Act::Append(Load {
                records: (0..random.below(4)).map(|_| size(random)).collect(),
                blob: (random.below(3) == 0).then(|| match (large, random.below(3)) {
                    (true, 0) => (1 << 20) + 5_000,
                    _ => size(random) * 2,
                }),
                snapshot: (random.below(4) == 0).then(|| size(random)),
                consume: random.below(2) == 0,
            }),
        };
        steps.push(match random.below(10) {
            0 => Step::Together { handle, acts: (0..SESSIONS).map(|_| act(&mut random)).collect() },
            1 => Step::Checkpoint(["PASSIVE", "FULL", "RESTART", "TRUNCATE"][random.below(4)]),
            2 if number > 2 => Step::Reopen { handle },
            3 if random.below(2) == 0 => Step::Advance(Duration::from_secs(1 + random.below(90) as u64)),
            _ => Step::Do { handle, session: random.below(SESSIONS), act: act(&mut random) },
        });
    }
    Script { seed, handles, steps }
}

/// Mostly small, sometimes over several pages.
fn size(random: &mut Random) -> usize {
    match random.below(4) {
        0 => 3_000 + random.below(9_000),
        _ => 10 + random.below(200),
    }
}

pub(super) fn key(session: usize) -> JournalKey {
    JournalKey::local(format!("s{session}"))
}

/// Text of a length that no other text is like.
pub(super) fn text(seed: u64, length: usize) -> String {
    let mut random = Random::new(seed);
    let mut text = String::with_capacity(length + 16);
    while text.len() < length {
        text += &format!("{:016x}", random.number());
    }
    text.truncate(length);
    text
}

/// One call of a store, whole: the same on each of them.
#[derive(Debug, Clone)]
pub(super) enum Call {
    Acquire { key: JournalKey, owner: Owner, ttl: Duration, how: Acquire },
    Append { lease: Lease, append: Append },
    Renew { lease: Lease },
    Release { lease: Lease },
    Sweep { lease: Lease, named: BTreeSet<BlobDigest> },
    Delete { lease: Lease, mark: DeletionMark },
    Put { key: JournalKey, item: InboxItem },
}

/// What a store says to a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Said {
    Lease(Lease),
    Head(Seq),
    Done,
    Swept(Swept),
    Put(InboxPut),
}

pub(super) type Answer = Result<Said, StoreError>;

impl Call {
    pub(super) fn of<'a>(&'a self, store: &'a dyn Store) -> BoxFuture<'a, Answer> {
        use futures::FutureExt as _;
        match self {
            Self::Acquire { key, owner, ttl, how } => {
                store.acquire(key, owner, *ttl, *how).map(|end| end.map(Said::Lease)).boxed()
            }
            Self::Append { lease, append } => {
                store.append(lease, append.clone()).map(|end| end.map(Said::Head)).boxed()
            }
            Self::Renew { lease } => store.renew(lease).map(|end| end.map(|()| Said::Done)).boxed(),
            Self::Release { lease } => store.release(lease).map(|end| end.map(|()| Said::Done)).boxed(),
            Self::Sweep { lease, named } => store.sweep(lease, named).map(|end| end.map(Said::Swept)).boxed(),
            Self::Delete { lease, mark } => {
                store.delete(lease, mark.clone()).map(|end| end.map(|()| Said::Done)).boxed()
            }
            Self::Put { key, item } => store.put_inbox(key, item.clone()).map(|end| end.map(Said::Put)).boxed(),
        }
    }

    pub(super) fn key(&self) -> &JournalKey {
        match self {
            Self::Acquire { key, .. } | Self::Put { key, .. } => key,
            Self::Append { lease, .. }
            | Self::Renew { lease }
            | Self::Release { lease }
            | Self::Sweep { lease, .. }
            | Self::Delete { lease, .. } => &lease.key,
        }
    }
}

pub(super) fn item(number: u64, target: u64) -> InboxItem {
    InboxItem {
        id: InboxId::new(format!("i{number}")),
        target: format!("t{target}"),
        kind: "output".into(),
        who: "me".into(),
        at_ms: number,
        digest: "d".into(),
        body: format!("{{\"text\":{:?}}}", text(number, 300)),
    }
}

pub(super) fn record(number: u64, size: usize) -> NewRecord {
    NewRecord {
        id: wharf_core::RecordId::new(format!("r{number}")),
        kind: "note".into(),
        version: 1,
        at_ms: number,
        body: text(number, size),
    }
}

pub(super) fn blob(number: u64, size: usize) -> (BlobDigest, Vec<u8>) {
    (BlobDigest::new(format!("sha256:{number:064x}")), text(number, size).into_bytes())
}
