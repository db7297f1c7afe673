//! A way to a server on 127.0.0.1 that can be cut. It ends with its connections when it is dropped.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// Passes bytes on until it is told otherwise.
pub struct Proxy {
    port: u16,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    target: u16,
    refuses: AtomicBool,
    loses: AtomicBool,
    lost: AtomicU32,
    over: AtomicBool,
    open: Mutex<Vec<TcpStream>>,
}

impl Proxy {
    /// A way to this port.
    ///
    /// # Panics
    ///
    /// If no port is free.
    pub fn to(target: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let port = listener.local_addr().expect("its port").port();
        let state = Arc::new(State { target, ..State::default() });
        let theirs = Arc::clone(&state);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if theirs.over.load(Ordering::SeqCst) {
                    return;
                }
                if !theirs.refuses.load(Ordering::SeqCst) {
                    connect(&theirs, client);
                }
            }
        });
        Self { port, state }
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Cuts everything and takes no new connection, or takes them again.
    pub fn refuse(&self, refuses: bool) {
        self.state.refuses.store(refuses, Ordering::SeqCst);
        if refuses {
            self.state.cut();
        }
    }

    /// Cuts all connections there are; new ones are taken.
    pub fn cut(&self) {
        self.state.cut();
    }

    /// The next answer of the server does not come through: its connection is cut instead.
    pub fn lose_next_answer(&self) {
        self.state.loses.store(true, Ordering::SeqCst);
    }

    /// How many answers were lost.
    pub fn lost(&self) -> u32 {
        self.state.lost.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.state.over.store(true, Ordering::SeqCst);
        self.state.cut();
        // Wakes the thread that listens; if that is gone already, so much the better.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

impl State {
    fn cut(&self) {
        for stream in self.open.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            let _ = stream.shutdown(Shutdown::Both); // it may be over already
        }
    }
}

fn connect(state: &Arc<State>, client: TcpStream) {
    let Ok(server) = TcpStream::connect(("127.0.0.1", state.target)) else { return };
    let both = [&client, &server].map(TcpStream::try_clone);
    let [Ok(client_too), Ok(server_too)] = both else { return };
    let kept = [&client, &server].map(TcpStream::try_clone).into_iter().flatten();
    state.open.lock().unwrap_or_else(PoisonError::into_inner).extend(kept);
    thread::spawn(move || pass(client, server, || true));
    let theirs = Arc::clone(state);
    thread::spawn(move || {
        pass(server_too, client_too, || {
            let loses = theirs.loses.swap(false, Ordering::SeqCst);
            if loses {
                theirs.lost.fetch_add(1, Ordering::SeqCst);
            }
            !loses
        });
    });
}

/// Passes bytes on until one side ends or `may` says no; then cuts both.
fn pass(mut from: TcpStream, mut to: TcpStream, may: impl Fn() -> bool) {
    let mut bytes = [0; 1 << 16];
    while let Ok(count) = from.read(&mut bytes) {
        if count == 0 || !may() || to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    for stream in [from, to] {
        let _ = stream.shutdown(Shutdown::Both); // the other direction may have done it
    }
}
