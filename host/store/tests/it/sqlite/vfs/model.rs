//! What a store should hold: a memory store that was told the same, and all that can be asked of either.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::executor::block_on;
use wharf_core::{BlobDigest, OrgId, Seq};
use wharf_store::{InboxItem, Loaded, MemoryStore, SessionSummary, Store, StoreError, StoredRecord};

use super::script::{Answer, Call, SESSIONS, key};

/// A clock that the test moves.
pub(super) type Now = Arc<Mutex<Duration>>;

/// All that can be asked of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct View {
    sessions: Vec<SessionSummary>,
    /// Or that it was deleted.
    pub(super) of: Vec<Result<OfSession, StoreError>>,
}

/// All that can be asked of one session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OfSession {
    pub(super) loaded: Loaded,
    history: Vec<StoredRecord>,
    inbox: Vec<InboxItem>,
    /// Every blob that was ever put, if it is there.
    blobs: BTreeMap<String, Option<Bytes>>,
}

#[derive(Clone, PartialEq, Eq)]
struct Bytes(Vec<u8>);

impl std::fmt::Debug for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes from {:?}", self.0.len(), &self.0[..self.0.len().min(8)])
    }
}

/// Blobs that were put, those whose append failed included.
pub(super) type Blobs = Vec<(usize, BlobDigest)>;

pub(super) fn view(store: &dyn Store, blobs: &Blobs) -> Result<View, StoreError> {
    block_on(async {
        let mut of = Vec::new();
        for session in 0..SESSIONS {
            of.push(match of_session(store, session, blobs).await {
                Ok(session) => Ok(session),
                Err(error @ StoreError::Deleted { .. }) => Err(error),
                Err(error) => return Err(error),
            });
        }
        Ok(View { sessions: store.sessions(&OrgId::local(), 100).await?, of })
    })
}

async fn of_session(store: &dyn Store, session: usize, blobs: &Blobs) -> Result<OfSession, StoreError> {
    let key = key(session);
    let mut found = BTreeMap::new();
    for (_, digest) in blobs.iter().filter(|(whose, _)| *whose == session) {
        let bytes = store.blob(&key, digest).await?;
        found.insert(digest.to_string(), bytes.map(Bytes));
    }
    Ok(OfSession {
        loaded: store.load(&key, Seq(0)).await?,
        history: store.history(&key, Seq(0), usize::MAX).await?,
        inbox: store.inbox(&key).await?,
        blobs: found,
    })
}

/// A memory store, and what it was told.
pub(super) struct Model {
    told: Vec<(Duration, Call)>,
    now: Now,
    store: MemoryStore,
}

impl Model {
    pub(super) fn new() -> Self {
        let now = Now::default();
        let clock = Arc::clone(&now);
        let store = MemoryStore::with_clock(Arc::new(move || *clock.lock().unwrap()));
        Self { told: Vec::new(), now, store }
    }

    pub(super) fn tell(&mut self, now: Duration, call: &Call) -> Answer {
        *self.now.lock().unwrap() = now;
        let answer = block_on(call.of(&self.store));
        if answer.is_ok() {
            self.told.push((now, call.clone()));
        }
        answer
    }

    /// Another one that was told the same.
    pub(super) fn fork(&self) -> Self {
        let mut fork = Self::new();
        for (now, call) in &self.told {
            fork.tell(*now, call).unwrap();
        }
        fork
    }

    pub(super) fn view(&self, now: Duration, blobs: &Blobs) -> View {
        *self.now.lock().unwrap() = now;
        view(&self.store, blobs).unwrap()
    }

    pub(super) fn waiting(&self, session: usize) -> Vec<InboxItem> {
        // Nothing waits in a deleted one.
        block_on(self.store.inbox(&key(session))).unwrap_or_default()
    }
}
