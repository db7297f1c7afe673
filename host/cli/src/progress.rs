//! What is said while something takes long.

use wharf::sandbox::CompileEvent;

/// One line for a compilation, or none where there is nothing to say.
pub(crate) fn compile_text(event: &CompileEvent<'_>) -> Option<String> {
    match event {
        CompileEvent::Started { name, bytes } => {
            Some(format!("{name}: {} KiB of WebAssembly to native code, once", bytes.div_ceil(1024)))
        }
        CompileEvent::Finished { name, took } => Some(format!("{name}: done in {:.1} s", took.as_secs_f64())),
        _ => None, // a newer sandbox may tell more
    }
}
