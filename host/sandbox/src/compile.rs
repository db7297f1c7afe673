//! Component bytes to code that can run: compiled once per digest however many ask, one compilation at a time on threads
//! that block nobody, within bounded time, kept on disk. It knows no grants: the same code serves every capability.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use sha2::{Digest as _, Sha256};
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore};
use wasmtime::Engine;
use wasmtime::component::Component;
use wharf_core::digest::Digest;

use crate::cache::{Authentic, Cache, Entry};
use crate::error::LoadError;
use crate::limits;

/// Tells of compilations, so that somebody can show that this takes a while. Called on a thread that may block.
pub type OnCompile = Arc<dyn Fn(CompileEvent<'_>) + Send + Sync>;

/// A compilation that a load has to wait for. Loads from the cache have none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CompileEvent<'a> {
    /// It begins.
    Started {
        /// The capability that asked first.
        name: &'a str,
        /// Size of the component.
        bytes: usize,
    },
    /// It is over.
    Finished {
        /// The capability that asked first.
        name: &'a str,
        /// How long it took.
        took: Duration,
    },
}

/// Code that lives for as long as somebody holds this.
pub(crate) type Compiled = Arc<OnceCell<Component>>;

pub(crate) struct Compiler {
    engine: Engine,
    engine_digest: Digest,
    cache: Option<Arc<Cache>>,
    flights: Mutex<HashMap<Digest, Weak<OnceCell<Component>>>>,
    slots: Arc<Semaphore>,
    bounds: Bounds,
    on_compile: Option<OnCompile>,
}

/// How long one component may take from the others.
#[derive(Clone, Copy)]
struct Bounds {
    /// Until it is its turn.
    wait: Duration,
    /// From then on.
    time: Duration,
}

/// The right to compile. Shared by the compilation, which may outlive whoever asked for it, and by whoever asked, who gives
/// it back when the time is over.
type Slot = Arc<Mutex<Option<OwnedSemaphorePermit>>>;

impl Compiler {
    pub(crate) fn new(engine: &Engine, cache: Option<Cache>, on_compile: Option<OnCompile>) -> Self {
        Self {
            engine: engine.clone(),
            engine_digest: engine_digest(engine),
            cache: cache.map(Arc::new),
            flights: Mutex::default(),
            slots: Arc::new(Semaphore::new(limits::COMPILATIONS_AT_ONCE)),
            bounds: Bounds { wait: limits::COMPILE_WAIT_MAX, time: limits::COMPILE_TIME_MAX },
            on_compile,
        }
    }

    /// The folder that no grant may reach.
    pub(crate) fn cache_path(&self) -> Option<&std::path::Path> {
        self.cache.as_ref().map(|cache| cache.path())
    }

    /// The code of these bytes, whose digest is `digest`. Must be called on the sandbox's own threads.
    pub(crate) async fn compiled(&self, name: &str, digest: Digest, bytes: Bytes) -> Result<Compiled, LoadError> {
        let flight = self.flight(digest);
        // Others may be making the same code, one after another if it fails; each of them is bounded, their number is not.
        let Bounds { wait, time } = self.bounds;
        let made = flight.get_or_try_init(|| self.make(name, digest, bytes));
        match tokio::time::timeout(wait.saturating_add(time), made).await {
            Ok(made) => made?,
            Err(_elapsed) => return Err(self.no_turn(name)),
        };
        Ok(flight)
    }

    /// One cell per digest that is in use.
    fn flight(&self, digest: Digest) -> Compiled {
        let mut flights = self.flights.lock().unwrap_or_else(PoisonError::into_inner);
        flights.retain(|_, flight| flight.strong_count() > 0);
        if let Some(flight) = flights.get(&digest).and_then(Weak::upgrade) {
            return flight;
        }
        let flight = Compiled::default();
        flights.insert(digest, Arc::downgrade(&flight));
        flight
    }

    async fn make(&self, name: &str, digest: Digest, bytes: Bytes) -> Result<Component, LoadError> {
        let failed = |reason: String| LoadError::Compile { name: name.into(), reason };
        let (engine, cache) = (self.engine.clone(), self.cache.clone());
        let entry = Entry::new(&digest, &self.engine_digest);
        let slot = match tokio::time::timeout(self.bounds.wait, self.slots.clone().acquire_owned()).await {
            Ok(slot) => slot.map_err(|error| failed(error.to_string()))?,
            Err(_elapsed) => return Err(self.no_turn(name)),
        };
        let slot: Slot = Arc::new(Mutex::new(Some(slot)));
        let held = GiveBack(slot.clone());
        let (on_compile, owned_name) = (self.on_compile.clone(), name.to_owned());
        let work = move || -> wasmtime::Result<Component> {
            // Held until the work is over, also when nobody waits for it any more, unless it takes too long.
            let _held = held;
            if let Some(found) = cache.as_ref().and_then(|cache| cache.read(&entry)) {
                match trust(&engine, &found) {
                    Ok(component) => return Ok(component),
                    Err(error) => tracing::warn!(%error, "an entry of the compile cache does not fit the engine"),
                }
            }
            let tell = |event: CompileEvent<'_>| on_compile.iter().for_each(|tell| tell(event));
            let started = Instant::now();
            tell(CompileEvent::Started { name: &owned_name, bytes: bytes.len() });
            let component = Component::from_binary(&engine, &bytes)?;
            tell(CompileEvent::Finished { name: &owned_name, took: started.elapsed() });
            if let Some(cache) = &cache {
                cache.write(&entry, &component.serialize()?);
            }
            Ok(component)
        };
        match tokio::time::timeout(self.bounds.time, tokio::task::spawn_blocking(work)).await {
            Ok(Ok(Ok(component))) => Ok(component),
            Ok(Ok(Err(error))) => Err(failed(format!("{error:#}"))),
            // LIM-6: a compiler that panics on one component loses only that.
            Ok(Err(_)) => Err(failed("the compiler failed on it".into())),
            Err(_elapsed) => {
                drop(GiveBack(slot));
                Err(LoadError::CompileTimedOut { name: name.into(), limit: self.bounds.time })
            }
        }
    }

    fn no_turn(&self, name: &str) -> LoadError {
        let reason = format!("other components were compiled for {:?}; try again later", self.bounds.wait);
        LoadError::Unavailable { name: name.into(), reason }
    }
}

/// Gives a slot back when dropped, if nobody did before.
struct GiveBack(Slot);

impl Drop for GiveBack {
    fn drop(&mut self) {
        drop(self.0.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

/// Turns cached code into a component. The one place of this workspace with unsafe code.
#[allow(unsafe_code)]
fn trust(engine: &Engine, code: &Authentic) -> wasmtime::Result<Component> {
    // SAFETY: `deserialize` demands bytes that came from `Component::serialize` unchanged. `Authentic` is made in one
    // place, after a keyed digest over entry name and code has been verified with a key that only this user can read and
    // that lies in a folder that no component reaches and that the embedder promised not to take from elsewhere (the
    // program takes one in the user's own cache, never in a project); only `Cache::write` makes that digest, and it is given the output
    // of `serialize` alone. An engine with other settings or another version is refused by `deserialize` itself.
    unsafe { Component::deserialize(engine, code.code()) }
}

/// Version, settings and processor features of an engine: code for one is not for another (SCHED-3).
fn engine_digest(engine: &Engine) -> Digest {
    struct Sha(Sha256);
    impl Hasher for Sha {
        fn write(&mut self, bytes: &[u8]) {
            self.0.update(bytes);
        }
        fn finish(&self) -> u64 {
            0 // the whole digest is taken instead
        }
    }
    let mut hasher = Sha(Sha256::new());
    engine.precompile_compatibility_hash().hash(&mut hasher);
    Digest::of(&hasher.0.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    const LONG: Duration = Duration::from_secs(600);
    const SHORT: Duration = Duration::from_millis(20);

    /// A compiler that takes as long over the component "stuck" as the returned sender lives, and the name of each that it
    /// begins with.
    fn compiler(bounds: Bounds) -> (Arc<Compiler>, mpsc::Sender<()>, tokio::sync::mpsc::UnboundedReceiver<String>) {
        let (engine, _) = crate::engine::engine().unwrap();
        let (release, released) = mpsc::channel::<()>();
        let (tell, begun) = tokio::sync::mpsc::unbounded_channel();
        let released = Mutex::new(released);
        let on_compile = move |event: CompileEvent<'_>| {
            if let CompileEvent::Started { name, .. } = event {
                tell.send(name.to_owned()).unwrap();
                if name == "stuck" {
                    released.lock().unwrap().recv().unwrap_err();
                }
            }
        };
        let compiler = Compiler { bounds, ..Compiler::new(&engine, None, Some(Arc::new(on_compile))) };
        (Arc::new(compiler), release, begun)
    }

    async fn compile(compiler: Arc<Compiler>, name: &'static str) -> Result<(), LoadError> {
        let bytes = wat::parse_str(format!("(component (core module (func (export \"{name}\"))))")).unwrap();
        compiler.compiled(name, Digest::of(&bytes), bytes.into()).await.map(drop)
    }

    #[tokio::test]
    async fn a_component_that_takes_too_long_to_compile_is_refused_and_the_others_go_on() {
        let (compiler, release, _begun) = compiler(Bounds { wait: LONG, time: SHORT });
        let error = compile(compiler.clone(), "stuck").await.unwrap_err();
        assert_eq!(error.to_string(), "capability \"stuck\" was not compiled in 20ms");
        // It still runs, and holds nobody up.
        let compiler =
            Arc::new(Compiler { bounds: Bounds { wait: LONG, time: LONG }, ..Arc::into_inner(compiler).unwrap() });
        compile(compiler, "other").await.unwrap();
        drop(release);
    }

    #[tokio::test]
    async fn a_component_waits_for_others_only_so_long() {
        let (compiler, release, mut begun) = compiler(Bounds { wait: SHORT, time: LONG });
        let stuck = tokio::spawn(compile(compiler.clone(), "stuck"));
        assert_eq!(begun.recv().await.as_deref(), Some("stuck"));
        let error = compile(compiler.clone(), "other").await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "capability \"other\" was not asked: other components were compiled for 20ms; try again later"
        );
        drop(release);
        stuck.await.unwrap().unwrap();
        compile(compiler, "other").await.unwrap();
    }

    // Whoever asked may be gone; the work goes on, and nobody else compiles beside it.
    #[tokio::test]
    async fn a_compilation_that_nobody_waits_for_keeps_its_turn_until_it_is_over() {
        let (compiler, release, mut begun) = compiler(Bounds { wait: LONG, time: LONG });
        let stuck = tokio::spawn(compile(compiler.clone(), "stuck"));
        assert_eq!(begun.recv().await.as_deref(), Some("stuck"));
        stuck.abort();
        assert!(stuck.await.unwrap_err().is_cancelled());
        assert_eq!(compiler.slots.available_permits(), 0);
        drop(release);
        compile(compiler, "other").await.unwrap();
    }
}
