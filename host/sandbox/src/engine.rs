//! The engine, its pool and its ticker. It knows no component and no policy.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::Thread;

use wasmtime::{Config, Engine, InstanceAllocationStrategy, PoolingAllocationConfig};

use crate::error::SandboxError;
use crate::limits;

/// An engine with the pooling allocator, or without where the pool cannot be had (too little address space): then
/// instances take longer to make and nothing else changes. The second value is the reason for being without.
pub(crate) fn engine() -> Result<(Engine, Option<String>), SandboxError> {
    let mut config = config();
    config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool()));
    let reason = match Engine::new(&config) {
        Ok(engine) => return Ok((engine, None)),
        Err(error) => format!("{error:#}"),
    };
    tracing::warn!(%reason, "no pool for instances: each call allocates its own");
    config.allocation_strategy(InstanceAllocationStrategy::OnDemand);
    match Engine::new(&config) {
        Ok(engine) => Ok((engine, Some(reason))),
        Err(error) => Err(SandboxError::Engine { reason: format!("{error:#}") }),
    }
}

fn config() -> Config {
    let mut config = Config::new();
    config.wasm_component_model(true);
    config.wasm_component_model_async(true);
    config.epoch_interruption(true);
    config.max_wasm_stack(limits::GUEST_STACK_BYTES);
    config.async_stack_size(limits::FIBER_STACK_BYTES);
    // Shared memory would be memory that no limiter sees; the engine is built without it (feature `threads`).
    config
}

fn pool() -> PoolingAllocationConfig {
    let calls = u32::try_from(limits::CALLS_AT_ONCE_MAX).unwrap_or(u32::MAX);
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(calls);
    pool.total_core_instances(calls * limits::CORE_INSTANCES_PER_COMPONENT);
    pool.total_memories(calls * limits::MEMORIES_PER_COMPONENT);
    pool.total_tables(calls * limits::TABLES_PER_COMPONENT);
    // A component may have more than one fibre when it does several things at once.
    pool.total_stacks(calls * 4);
    pool.max_core_instances_per_component(limits::CORE_INSTANCES_PER_COMPONENT);
    pool.max_memories_per_component(limits::MEMORIES_PER_COMPONENT);
    pool.max_tables_per_component(limits::TABLES_PER_COMPONENT);
    pool.max_memories_per_module(limits::MEMORIES_PER_COMPONENT);
    pool.max_tables_per_module(limits::TABLES_PER_COMPONENT);
    pool.table_elements(limits::TABLE_ELEMENTS_MAX);
    pool.max_memory_size(limits::MEMORY_BYTES_MAX);
    pool.max_core_instance_size(limits::INSTANCE_BYTES_MAX);
    pool.max_component_instance_size(limits::INSTANCE_BYTES_MAX);
    pool
}

/// Advances the engine's epoch while calls run, and sleeps while none does.
#[derive(Clone)]
pub(crate) struct Ticker {
    running: Arc<AtomicUsize>,
    thread: Thread,
}

impl Ticker {
    /// Starts the thread. It ends when the engine is gone.
    pub(crate) fn start(engine: &Engine) -> Result<Self, SandboxError> {
        let running = Arc::new(AtomicUsize::new(0));
        let weak = engine.weak();
        let seen = running.clone();
        let thread = std::thread::Builder::new()
            .name("wharf-epoch".into())
            .spawn(move || {
                while let Some(engine) = weak.upgrade() {
                    engine.increment_epoch();
                    drop(engine);
                    if seen.load(Ordering::Acquire) == 0 {
                        // Woken by the next call; looks by itself whether the engine is gone.
                        std::thread::park_timeout(limits::EPOCH_IDLE);
                    } else {
                        std::thread::sleep(limits::EPOCH_TICK);
                    }
                }
            })
            .map_err(|source| SandboxError::Threads { source })?;
        Ok(Self { running, thread: thread.thread().clone() })
    }

    /// Ticks for as long as the guard lives.
    pub(crate) fn run(&self) -> Ticking {
        if self.running.fetch_add(1, Ordering::AcqRel) == 0 {
            self.thread.unpark();
        }
        Ticking(self.running.clone())
    }

    /// Lets the thread look whether the engine is gone.
    pub(crate) fn wake(&self) {
        self.thread.unpark();
    }
}

/// While this lives the epoch advances.
pub(crate) struct Ticking(Arc<AtomicUsize>);

impl Drop for Ticking {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
