//! Named gates: a stream stops at one until somebody releases it. It must never know streams or scripts.

use std::collections::BTreeSet;

use tokio::sync::watch;

#[derive(Default)]
struct Names {
    released: BTreeSet<String>,
    reached: BTreeSet<String>,
}

/// All gates of a server. A released gate stays open.
pub(crate) struct Gates {
    names: watch::Sender<Names>,
}

impl Gates {
    pub(crate) fn new() -> Self {
        Self { names: watch::Sender::new(Names::default()) }
    }

    pub(crate) fn release(&self, gate: &str) {
        self.names.send_modify(|names| {
            names.released.insert(gate.to_owned());
        });
    }

    /// Waits at the gate.
    pub(crate) async fn pass(&self, gate: &str) {
        self.names.send_modify(|names| {
            names.reached.insert(gate.to_owned());
        });
        self.wait(|names| names.released.contains(gate)).await;
    }

    /// Waits until some stream has come to the gate.
    pub(crate) async fn reached(&self, gate: &str) {
        self.wait(|names| names.reached.contains(gate)).await;
    }

    async fn wait(&self, ready: impl Fn(&Names) -> bool) {
        let mut names = self.names.subscribe();
        if names.wait_for(|names| ready(names)).await.is_err() {
            // The sender lives in self, so this cannot be; waiting keeps the promise of the name.
            std::future::pending::<()>().await;
        }
    }
}
