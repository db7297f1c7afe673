//! The same component on the bare engine: asynchronous, with epochs, with WASI linked and an empty context, from a pool.
//! No policy, no limits, no threads of its own: what a call costs at least.

use wasmtime::component::{Component, Linker, ResourceTable};
use wasmtime::{Config, Engine, InstanceAllocationStrategy, PoolingAllocationConfig, Result, Store, bail};
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};

mod bindings {
    #![allow(missing_docs, unreachable_pub, clippy::all)] // generated
    wasmtime::component::bindgen!({
        path: "../wit/0.1.0-draft",
        world: "tool",
        exports: { default: async },
    });
}

use bindings::exports::wharf::tool::tools::{Content, Invocation};

struct State {
    context: WasiCtx,
    table: ResourceTable,
}

impl WasiView for State {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.context, table: &mut self.table }
    }
}

/// A prepared component.
pub(crate) struct Bare {
    engine: Engine,
    prepared: wasmtime::component::InstancePre<State>,
    tools: bindings::exports::wharf::tool::tools::GuestIndices,
}

impl Bare {
    pub(crate) fn new(component: &[u8]) -> Result<Self> {
        let mut config = Config::new();
        config.wasm_component_model(true);
        config.wasm_component_model_async(true);
        config.epoch_interruption(true);
        let mut pool = PoolingAllocationConfig::new();
        pool.total_component_instances(16);
        config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
        let engine = Engine::new(&config)?;
        let mut linker = Linker::new(&engine);
        wasmtime_wasi::p2::add_to_linker_async(&mut linker)?;
        wasmtime_wasi::p3::add_to_linker(&mut linker)?;
        let prepared = linker.instantiate_pre(&Component::from_binary(&engine, component)?)?;
        let tools = bindings::exports::wharf::tool::tools::GuestIndices::new(&prepared)?;
        Ok(Self { engine, prepared, tools })
    }

    /// One call in a fresh store. Answers with the JSON that came back.
    pub(crate) async fn call(&self, input: &str) -> Result<String> {
        let state = State { context: WasiCtx::builder().build(), table: ResourceTable::new() };
        let mut store = Store::new(&self.engine, state);
        store.set_epoch_deadline(1_000);
        let instance = self.prepared.instantiate_async(&mut store).await?;
        let tools = self.tools.load(&mut store, &instance)?;
        let invocation = Invocation {
            tool: "echo".into(),
            input: input.into(),
            config: "{}".into(),
            call_id: "call-1".into(),
            idempotency_key: "key-1".into(),
            attempt: 1,
            time_left_ms: 30_000,
            attachments: Vec::new(),
        };
        match tools.call_invoke(&mut store, &invocation).await? {
            Ok(contents) => match contents.into_iter().next() {
                Some(Content::Json(json)) => Ok(json),
                other => bail!("not the JSON that was expected: {other:?}"),
            },
            Err(failure) => bail!("it failed: {failure:?}"),
        }
    }
}
