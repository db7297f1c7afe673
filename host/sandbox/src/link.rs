//! One linker for all components: standard WASI 0.2 and 0.3, and the contract. What it gives depends on the store that it
//! is used with, so it is built once, and a capability's prepared instance is made from it once (SCHED-2).

use wasmtime::Engine;
use wasmtime::component::Linker;

use crate::error::SandboxError;
use crate::state::StoreState;

pub(crate) fn linker(engine: &Engine) -> Result<Linker<StoreState>, SandboxError> {
    build(engine).map_err(|error| SandboxError::Engine { reason: format!("{error:#}") })
}

fn build(engine: &Engine) -> wasmtime::Result<Linker<StoreState>> {
    let mut linker = Linker::new(engine);
    wasmtime_wasi::p2::add_to_linker_async(&mut linker)?;
    wasmtime_wasi::p3::add_to_linker(&mut linker)?;
    wasmtime_wasi_http::p2::add_only_http_to_linker_async(&mut linker)?;
    wasmtime_wasi_http::p3::add_to_linker(&mut linker)?;
    crate::contract::add_to_linker(&mut linker)?;
    crate::files::restrict(&mut linker)?;
    Ok(linker)
}
