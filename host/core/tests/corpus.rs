//! Journals of every form in which a record was ever committed, and what each folds into (design section 8, STATE-7).
//!
//! `corpus/NAME.jsonl` is a journal as the code of its time wrote it: a record a line, with kind, version and body. The
//! number in a name counts the forms: `1-first`, of the first host that could keep a journal on disk; `2-closes`, in which a
//! turn's start says which calls it closes; `3-maker`, in which a request says whom it asks; `4-notice`, in which it says
//! what it told of lost answers; `5-refused`, in which an item of the inbox says why it was not done. `corpus/blobs/` holds
//! the outputs that were too large for their records. `corpus/NAME.json` is what the journal folds into.
//!
//! A journal here is never altered and never removed: somebody has one like it on disk. What it folds into may gain members
//! with the code, and changes its meaning only where a fault is mended.
//!
//! To add a journal: write the lines of [`Record::encode`] for a run that makes the new form into `corpus/NAME.jsonl` under
//! the next number, run this test with `WHARF_CORPUS=write`, which makes `NAME.json` where there is none, read that, and
//! commit both.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod corpus {
    pub(crate) mod forms;
    pub(crate) mod summary;
}

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use wharf_core::digest::Digest;
use wharf_core::history::History;
use wharf_core::session::Session;
use wharf_core::{Error, Record};

use corpus::forms;
use corpus::summary::summary;

const HOW_TO_ADD: &str = "add a journal that has it to host/core/tests/corpus; host/core/tests/corpus.rs says how";

/// A record as it stands in a journal of the corpus.
#[derive(Debug, Deserialize)]
struct Line {
    kind: String,
    version: u16,
    body: Box<RawValue>,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus")
}

/// All journals by name, in the order of their names.
fn journals() -> Vec<(String, Vec<Line>)> {
    let files = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|e| e == "jsonl")).collect();
    files.sort();
    let name = |path: &Path| path.file_stem().unwrap().to_str().unwrap().to_owned();
    let lines = |path: &Path| {
        let text = fs::read_to_string(path).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    files.iter().map(|path| (name(path), lines(path))).collect()
}

fn decode(line: &Line) -> Result<Record, Error> {
    let blob = Record::named_blob(&line.kind, line.body.get());
    let bytes = blob.and_then(|digest| fs::read(folder().join("blobs").join(digest.as_str().replace(':', "-"))).ok());
    Record::decode(&line.kind, line.version, line.body.get(), |_| bytes)
}

fn load(name: &str, lines: &[Line]) -> Vec<Record> {
    let load = |(at, line)| decode(line).unwrap_or_else(|e| panic!("record {} of {name}: {e}", at + 1));
    lines.iter().enumerate().map(load).collect()
}

/// Every record of the corpus.
fn records() -> Vec<Record> {
    journals().iter().flat_map(|(name, lines)| load(name, lines)).collect()
}

// covers M3, M6
#[test]
fn every_journal_that_was_ever_written_folds_into_what_it_means() {
    let journals = journals();
    assert!(journals.len() > 30, "the corpus is found");
    for (name, lines) in journals {
        let records = load(&name, &lines);
        let session = Session::fold(&records).unwrap_or_else(|error| panic!("{name}: {error}"));
        let mut history = History::new();
        records.iter().for_each(|record| history.apply(record));
        let found = summary(&session, &history, &records);
        let path = folder().join(format!("{name}.json"));
        if !path.exists() && std::env::var("WHARF_CORPUS").is_ok_and(|mode| mode == "write") {
            fs::write(&path, format!("{found:#}\n")).unwrap();
        }
        let expected = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}; {HOW_TO_ADD}", path.display()));
        let expected: Value = serde_json::from_str(&expected).unwrap();
        assert_eq!(found, expected, "{name}: found {found:#}");
    }
}

/// Of the snapshots of all journals of the corpus, and the form that they have.
const SNAPSHOTS: (&str, &str) =
    ("\"form\":1,", "sha256:8ae503d07853e07cbbe11c23dd399f4754ebf3b397eeed849d73216f4fef8b51");

// covers M6
#[test]
fn snapshots_of_another_fold_have_another_form() {
    let journals = journals();
    // What is nested deeper than anything that is written today has no snapshot.
    let journals = journals.iter().filter(|(name, _)| *name != forms::DEEPER_THAN_WRITTEN_TODAY);
    let snapshots = journals.map(|(name, lines)| {
        let snapshot = Session::fold(&load(name, lines)).unwrap().to_snapshot().unwrap();
        assert_eq!(Session::from_snapshot(&snapshot), Session::fold(&load(name, lines)), "{name}");
        snapshot
    });
    let snapshots = snapshots.collect::<Vec<_>>();
    let digest = Digest::of(snapshots.join("\n").as_bytes()).to_string();
    let (form, known) = SNAPSHOTS;
    assert!(
        snapshots.iter().all(|snapshot| snapshot.contains(form)),
        "the form is another: write it and {digest} here"
    );
    assert_eq!(
        digest, known,
        "what journals fold into, or how it is written, has changed: raise FORM in host/core/src/session/snapshot.rs, so \
         that no snapshot of before is read, and write form and digest here. Where a journal was added to the corpus, the \
         digest alone is another"
    );
}

// covers M5
#[test]
fn every_beginning_of_every_journal_folds() {
    for (name, lines) in journals() {
        let records = load(&name, &lines);
        for length in 0..records.len() {
            assert_eq!(Session::fold(&records[..length]).err(), None, "the first {length} records of {name}");
        }
    }
}

// covers M6
#[test]
fn nothing_that_a_record_says_is_lost_when_it_is_read() {
    for (name, lines) in journals().into_iter().filter(|(name, _)| *name != forms::DEEPER_THAN_WRITTEN_TODAY) {
        for (at, (line, record)) in lines.iter().zip(load(&name, &lines)).enumerate() {
            let now = record.encode().unwrap();
            let blob = now.blob.clone().map(|(_, bytes)| bytes);
            assert_eq!(Record::decode(now.kind, now.version, &now.body, |_| blob), Ok(record));
            if (now.kind, now.version) == (line.kind.as_str(), line.version) {
                let (said, says): (Value, Value) =
                    (serde_json::from_str(line.body.get()).unwrap(), serde_json::from_str(&now.body).unwrap());
                for (member, value) in said.as_object().unwrap() {
                    assert_eq!(says.get(member), Some(value), "member {member} of record {} of {name}", at + 1);
                }
            }
        }
    }
}

#[test]
fn corpus_has_every_word_that_a_record_can_say() {
    let said: BTreeSet<(&str, &str)> = records().iter().flat_map(forms::words).collect();
    let missing: Vec<_> = forms::all_words().into_iter().filter(|word| !said.contains(word)).collect();
    assert_eq!(missing, [], "no journal of the corpus says these: {HOW_TO_ADD}");
}

#[test]
fn corpus_has_every_form_in_which_a_record_is_written_now() {
    let forms = |kind: &str, version: u16, body: &str| -> BTreeSet<String> {
        forms::forms(kind, version, &serde_json::from_str(body).unwrap()).into_iter().collect()
    };
    let stored: BTreeSet<String> = journals()
        .iter()
        .flat_map(|(_, lines)| lines)
        .flat_map(|line| forms(&line.kind, line.version, line.body.get()))
        .collect();
    // A journal that is nested too deeply for today is left out; its kinds are those of others too.
    let written = records().iter().filter_map(|record| record.encode().ok()).collect::<Vec<_>>();
    let now: BTreeSet<String> = written.iter().flat_map(|it| forms(it.kind, it.version, &it.body)).collect();
    let missing: Vec<_> = now.difference(&stored).collect();
    assert_eq!(missing, [""; 0], "no journal of the corpus has records like these: {HOW_TO_ADD}");
}
