//! Turns a core module that rustc made for wasm32-wasip1 into a component: `wharf-componentize IN.wasm OUT.wasm`.
//!
//! A toolchain that has the target wasm32-wasip2 does this by itself. The adapter between the two generations of WASI is a
//! crate of the engine's release line, so that what it imports is what the host serves.

use std::{env, error::Error, fs, process::ExitCode};

use wasi_preview1_component_adapter_provider::{
    WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME, WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER,
};
use wit_component::ComponentEncoder;

fn main() -> ExitCode {
    let paths: Vec<String> = env::args().skip(1).collect();
    let [input, output] = paths.as_slice() else {
        return fail("usage: wharf-componentize IN.wasm OUT.wasm");
    };
    match componentize(input, output) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&format!("{input}: {error}")),
    }
}

fn componentize(input: &str, output: &str) -> Result<(), Box<dyn Error>> {
    let module = fs::read(input)?;
    let component = ComponentEncoder::default()
        .module(&module)?
        .adapter(WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME, WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER)?
        .validate(true)
        .encode()?;
    fs::write(output, component)?;
    Ok(())
}

#[allow(clippy::print_stderr, reason = "a program's own voice")]
fn fail(message: &str) -> ExitCode {
    eprintln!("wharf-componentize: {message}");
    ExitCode::from(1)
}
