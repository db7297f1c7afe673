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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::served_interfaces;

    /// The inspection's list and the linker are two: a name on the list that is not linked would be "granted" and then
    /// fail as a mismatch.
    #[test]
    fn everything_on_the_list_of_what_is_served_is_linked() {
        let (engine, _) = crate::engine::engine().unwrap();
        let mut linker = linker(&engine).unwrap();
        let mut missing = Vec::new();
        for (interface, version) in served_interfaces() {
            let release = match version {
                crate::CONTRACT => version,
                "0.2" => "0.2.12",
                "0.3" => "0.3.0",
                version => panic!("which release of {interface}@{version}?"),
            };
            let name = format!("{interface}@{release}");
            // Only a name that is taken is refused.
            if linker.root().func_wrap(&name, |_, (): ()| Ok(())).is_ok() {
                missing.push(name);
            }
        }
        // An interface of types alone needs no definition.
        assert_eq!(missing, ["wasi:cli/types@0.3.0"]);
    }
}
