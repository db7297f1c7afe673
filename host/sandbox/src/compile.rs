//! Component bytes to code that can run: compiled once per digest however many ask, one compilation at a time on threads
//! that block nobody, kept on disk. It knows no grants: the same code serves every capability.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use sha2::{Digest as _, Sha256};
use tokio::sync::{OnceCell, Semaphore};
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
    on_compile: Option<OnCompile>,
}

impl Compiler {
    pub(crate) fn new(engine: &Engine, cache: Option<Cache>, on_compile: Option<OnCompile>) -> Self {
        Self {
            engine: engine.clone(),
            engine_digest: engine_digest(engine),
            cache: cache.map(Arc::new),
            flights: Mutex::default(),
            slots: Arc::new(Semaphore::new(limits::COMPILATIONS_AT_ONCE)),
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
        flight.get_or_try_init(|| self.make(name, digest, bytes)).await?;
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
        let slot = self.slots.clone().acquire_owned().await.map_err(|error| failed(error.to_string()))?;
        let (on_compile, owned_name) = (self.on_compile.clone(), name.to_owned());
        let work = move || -> wasmtime::Result<Component> {
            // Held until the work is over, also when nobody waits for it any more.
            let _slot = slot;
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
        match tokio::task::spawn_blocking(work).await {
            Ok(Ok(component)) => Ok(component),
            Ok(Err(error)) => Err(failed(format!("{error:#}"))),
            // LIM-6: a compiler that panics on one component loses only that.
            Err(_) => Err(failed("the compiler failed on it".into())),
        }
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
