//! Every journal of the corpus, in whatever form its records were written, is sound.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;

use futures::executor::block_on;
use wharf::core::{Record, RecordId, Seq};
use wharf::limits::LEASE_TTL;
use wharf::store::{Acquire, Append, JournalKey, MemoryStore, NewRecord, Owner, Store};
use wharf::verify::verify;

// covers M3, M6
#[test]
fn every_journal_that_was_ever_written_is_sound() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../core/tests/corpus");
    let files = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let journals: Vec<_> = files.filter(|path| path.extension().is_some_and(|end| end == "jsonl")).collect();
    assert!(journals.len() > 30, "the corpus is found");
    let store = MemoryStore::new();
    for path in journals {
        let key = JournalKey::local(path.file_stem().unwrap().to_str().unwrap());
        let owner = Owner { token: "t".into(), label: "test".into() };
        let lease = block_on(store.acquire(&key, &owner, LEASE_TTL, Acquire::IfFree)).unwrap();
        for (n, line) in fs::read_to_string(&path).unwrap().lines().enumerate() {
            let (head, body) = line.split_once(r#""body":"#).unwrap();
            let head: serde_json::Value = serde_json::from_str(&format!("{head}\"body\":0}}")).unwrap();
            let record = NewRecord {
                id: RecordId::new(format!("id{n}")),
                kind: head["kind"].as_str().unwrap().into(),
                version: head["version"].as_u64().unwrap().try_into().unwrap(),
                at_ms: 1,
                body: body[..body.len() - 1].into(),
            };
            let blobs = Record::named_blob(&record.kind, &record.body)
                .map(|digest| {
                    let file = folder.join("blobs").join(digest.as_str().replace(':', "-"));
                    (digest, fs::read(file).unwrap())
                })
                .into_iter()
                .collect();
            let append = Append { expected: Seq(n as u64), records: vec![record], blobs, ..Append::default() };
            block_on(store.append(&lease, append)).unwrap();
        }
        let found = block_on(verify(&store, &key, &mut |_| {})).unwrap();
        assert_eq!(format!("{:?}", found.breaches), "[]", "{}", path.display());
    }
}
