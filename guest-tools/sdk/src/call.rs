//! One call of a tool, and what the host serves to it. Tool logic sees the host through the [`Host`] trait alone, so that it
//! can be tested where no host is.

use std::time::Duration;

use crate::{Attachment, Content, Failure, Invocation, limits};

/// What the host serves beside standard WASI.
pub trait Host {
    /// Tells people how far the call is. Never reaches the model.
    fn report(&self, message: &str, done: Option<u64>, total: Option<u64>);

    /// Whether a secret is granted. Its value is put into requests by the host and never seen here.
    fn has_secret(&self, name: &str) -> bool;

    /// At most `length` bytes of a blob from `offset`; fewer at its end.
    ///
    /// # Errors
    /// `not-found` for a blob that was not handed to this call.
    fn read_blob(&self, digest: &str, offset: u64, length: u32) -> Result<Vec<u8>, Failure>;

    /// Calls another tool of the harness and waits for its result.
    ///
    /// # Errors
    /// `denied` for a tool that is not granted, and whatever the other tool answers.
    fn call_tool(&self, name: &str, input: &str) -> Result<Vec<Content>, Failure>;
}

/// Inside a component the host is called directly, so that what a tool never calls is not imported; elsewhere it is a value
/// that a test brings.
#[cfg(target_arch = "wasm32")]
pub(crate) type HostHandle = Outside;
#[cfg(not(target_arch = "wasm32"))]
pub(crate) type HostHandle = Box<dyn Host>;

/// The host of a component that runs for real.
pub(crate) fn outside() -> HostHandle {
    #[cfg(target_arch = "wasm32")]
    return Outside;
    #[cfg(not(target_arch = "wasm32"))]
    return Box::new(Outside);
}

/// One call of a tool with config `C`.
pub struct Call<C> {
    /// The capability's config from the harness file.
    pub config: C,
    /// The host's id of the call, unique within the session.
    pub call_id: String,
    /// Equal for each run of this call and for no other call. Hand it to services that discard repeats.
    pub idempotency_key: String,
    /// 1 for the first run, higher when the host runs the call again after a crash.
    pub attempt: u32,
    /// What was left of the call's time limit when it began. Past it the host drops the call without clean-up.
    pub time_left: Duration,
    /// Blobs that were handed to this call.
    pub attachments: Vec<Attachment>,
    host: HostHandle,
}

impl<C> Call<C> {
    /// A call as the host describes it. The tool and its input were taken out before.
    pub(crate) fn new(config: C, invocation: Invocation, host: HostHandle) -> Self {
        Self {
            config,
            call_id: invocation.call_id,
            idempotency_key: invocation.idempotency_key,
            attempt: invocation.attempt,
            time_left: Duration::from_millis(invocation.time_left_ms),
            attachments: invocation.attachments,
            host,
        }
    }

    /// Tells people how far the call is, for example `call.report("reading", Some(3), Some(10))`.
    pub fn report(&self, message: &str, done: Option<u64>, total: Option<u64>) {
        self.host.report(message, done, total);
    }

    /// Whether the operator granted the secret `name`.
    pub fn has_secret(&self, name: &str) -> bool {
        self.host.has_secret(name)
    }

    /// The bytes of an attachment, if they are at most `length_max`.
    ///
    /// # Errors
    /// `invalid-input` when it is longer, `failed` when the host sends fewer bytes than it announced.
    pub fn read_attachment(&self, attachment: &Attachment, length_max: u64) -> Result<Vec<u8>, Failure> {
        if attachment.length > length_max {
            return Err(Failure::invalid_input(format!(
                "the attachment has {} bytes; this tool takes at most {length_max}",
                attachment.length
            )));
        }
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < attachment.length {
            let piece = self.host.read_blob(&attachment.digest, bytes.len() as u64, limits::BLOB_PIECE_BYTES)?;
            if piece.is_empty() || (bytes.len() + piece.len()) as u64 > attachment.length {
                return Err(Failure::failed(format!(
                    "the attachment {} has another length than announced",
                    attachment.digest
                )));
            }
            bytes.extend(piece);
        }
        Ok(bytes)
    }

    /// Part of a blob: at most `length` bytes from `offset`.
    ///
    /// # Errors
    /// `not-found` for a blob that was not handed to this call.
    pub fn read_blob(&self, digest: &str, offset: u64, length: u32) -> Result<Vec<u8>, Failure> {
        self.host.read_blob(digest, offset, length)
    }

    /// Calls another tool of the harness by name with the exact text that it is to read, and waits.
    ///
    /// # Errors
    /// `denied` for a tool that is not granted, and whatever the other tool answers.
    pub fn call_tool(&self, name: &str, input: &str) -> Result<Vec<Content>, Failure> {
        self.host.call_tool(name, input)
    }
}

/// The host that the component runs in. Outside of WebAssembly nothing is there, and calling it is an error of the caller.
pub(crate) struct Outside;

impl Host for Outside {
    fn report(&self, message: &str, done: Option<u64>, total: Option<u64>) {
        crate::bindings::imports::wharf::tool::progress::report(message, done, total);
    }

    fn has_secret(&self, name: &str) -> bool {
        crate::bindings::imports::wharf::tool::secrets::has(name)
    }

    fn read_blob(&self, digest: &str, offset: u64, length: u32) -> Result<Vec<u8>, Failure> {
        crate::bindings::imports::wharf::tool::blobs::read(digest, offset, length)
    }

    fn call_tool(&self, name: &str, input: &str) -> Result<Vec<Content>, Failure> {
        crate::bindings::imports::wharf::tool::calls::call(name, input)
    }
}
