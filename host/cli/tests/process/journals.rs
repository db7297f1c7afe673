//! Where journals of rounds are: in each room's own folder, or in databases of one PostgreSQL server, with whatever happens to
//! that server meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use wharf_testpg::{Cluster, Proxy};

/// A store for rounds.
#[derive(Clone)]
pub(crate) struct Journals(Option<Arc<Server>>);

struct Server {
    cluster: Arc<Cluster>,
    proxy: Arc<Proxy>,
    over: Arc<AtomicBool>,
    chaos: Option<JoinHandle<()>>,
}

/// What happens to the server while rounds run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Chaos {
    Nothing,
    /// It crashes and is started again.
    Restarts,
    /// Connections to it are cut.
    Cuts,
}

impl Chaos {
    pub(crate) fn parse(word: &str) -> Self {
        match word {
            "" => Self::Nothing,
            "restarts" => Self::Restarts,
            "cuts" => Self::Cuts,
            other => panic!("chaos is restarts or cuts, and not {other:?}"),
        }
    }
}

impl Journals {
    pub(crate) fn in_folders() -> Self {
        Self(None)
    }

    /// None where PostgreSQL is not installed.
    pub(crate) fn in_databases(chaos: Chaos) -> Option<Self> {
        let cluster = Arc::new(Cluster::start()?);
        let proxy = Arc::new(Proxy::to(cluster.port()));
        let over = Arc::new(AtomicBool::new(false));
        let (theirs, way, ends) = (cluster.clone(), proxy.clone(), over.clone());
        let chaos = (chaos != Chaos::Nothing).then(|| {
            std::thread::spawn(move || {
                while !ends.load(Ordering::SeqCst) {
                    match chaos {
                        Chaos::Restarts => {
                            std::thread::sleep(Duration::from_millis(2_500));
                            theirs.crash();
                            theirs.restart();
                        }
                        Chaos::Cuts | Chaos::Nothing => {
                            std::thread::sleep(Duration::from_millis(173));
                            way.cut();
                        }
                    }
                }
            })
        });
        Some(Self(Some(Arc::new(Server { cluster, proxy, over, chaos }))))
    }

    pub(crate) fn are_in_databases(&self) -> bool {
        self.0.is_some()
    }

    /// A database of a room's own; none where the room has a folder.
    pub(crate) fn database(&self) -> Option<Database> {
        let server = self.0.clone()?;
        let name = persist(|| server.cluster.try_database())?;
        Some(Database { server, name })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        if let Some(chaos) = self.chaos.take() {
            // It told why it panicked.
            let _ = chaos.join();
        }
    }
}

/// Tries for as long as a restart may take.
fn persist<T>(mut attempt: impl FnMut() -> Option<T>) -> Option<T> {
    for _ in 0..300 {
        if let Some(done) = attempt() {
            return Some(done);
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    None
}

/// A room's database. It goes with the room.
pub(crate) struct Database {
    server: Arc<Server>,
    name: String,
}

impl Database {
    /// Its address, through the way that can be cut.
    pub(crate) fn address(&self) -> String {
        format!("postgres://wharf@127.0.0.1:{}/{}", self.server.proxy.port(), self.name)
    }

    /// Runs SQL in it.
    pub(crate) fn sql(&self, sql: &str) -> String {
        persist(|| self.server.cluster.try_sql(&self.name, sql))
            .expect("the server is there again within half a minute")
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let drop = format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name);
        let _ = persist(|| self.server.cluster.try_sql("postgres", &drop)); // else it goes with the server
    }
}
