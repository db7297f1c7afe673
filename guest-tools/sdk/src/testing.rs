//! For tests of tools on the author's own machine: a host that is a plain value, and the exports as plain functions.
//!
//! ```
//! # use wharf_tool_sdk::{Call, Component, Content, Failure, NoConfig, Tool, testing};
//! struct Shout;
//! impl Component for Shout {
//!     type Config = NoConfig;
//!     fn tools(_: &NoConfig) -> Result<Vec<Tool<NoConfig>>, Failure> {
//!         Ok(vec![Tool::text("shout", "Writes text in capitals.", |_: &Call<NoConfig>, text: &str| {
//!             Ok(text.to_uppercase())
//!         })])
//!     }
//! }
//! assert_eq!(testing::invoke::<Shout>("shout", "hi", "{}"), Ok(vec![Content::Text("HI".to_owned())]));
//! ```

use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

use crate::{Component, Content, Failure, Host, Invocation, component};

pub use crate::component::{config_schema, definitions, describe};

/// One report of progress: message, done, total.
pub type Report = (String, Option<u64>, Option<u64>);

/// A host for tests. Clones share what was recorded.
#[derive(Clone, Default)]
pub struct FakeHost {
    reports: Rc<RefCell<Vec<Report>>>,
    secrets: Vec<String>,
    blobs: BTreeMap<String, Vec<u8>>,
    tools: BTreeMap<String, Result<Vec<Content>, Failure>>,
    calls: Rc<RefCell<Vec<(String, String)>>>,
}

impl FakeHost {
    /// Grants a secret.
    #[must_use]
    pub fn with_secret(mut self, name: &str) -> Self {
        self.secrets.push(name.to_owned());
        self
    }

    /// Hands a blob to the call.
    #[must_use]
    pub fn with_blob(mut self, digest: &str, bytes: &[u8]) -> Self {
        self.blobs.insert(digest.to_owned(), bytes.to_vec());
        self
    }

    /// Grants another tool, with the answer that it gives.
    #[must_use]
    pub fn with_tool(mut self, name: &str, answer: Result<Vec<Content>, Failure>) -> Self {
        self.tools.insert(name.to_owned(), answer);
        self
    }

    /// What was reported so far.
    #[must_use]
    pub fn reports(&self) -> Vec<Report> {
        self.reports.borrow().clone()
    }

    /// The other tools that were called so far, with their input.
    #[must_use]
    pub fn calls(&self) -> Vec<(String, String)> {
        self.calls.borrow().clone()
    }
}

impl Host for FakeHost {
    fn report(&self, message: &str, done: Option<u64>, total: Option<u64>) {
        self.reports.borrow_mut().push((message.to_owned(), done, total));
    }

    fn has_secret(&self, name: &str) -> bool {
        self.secrets.iter().any(|granted| granted == name)
    }

    fn read_blob(&self, digest: &str, offset: u64, length: u32) -> Result<Vec<u8>, Failure> {
        let bytes = self.blobs.get(digest).ok_or_else(|| Failure::not_found(format!("no blob {digest:?}")))?;
        let skipped = usize::try_from(offset).unwrap_or(usize::MAX);
        let taken = usize::try_from(length).unwrap_or(usize::MAX);
        Ok(bytes.iter().skip(skipped).take(taken).copied().collect())
    }

    fn call_tool(&self, name: &str, input: &str) -> Result<Vec<Content>, Failure> {
        self.calls.borrow_mut().push((name.to_owned(), input.to_owned()));
        self.tools
            .get(name)
            .cloned()
            .unwrap_or_else(|| Err(Failure::denied(format!("the tool {name:?} is not granted"))))
    }
}

/// An invocation with plain values for what the host fills in: call id `call_1`, first attempt, 30 seconds left.
#[must_use]
pub fn invocation(tool: &str, input: &str, config: &str) -> Invocation {
    Invocation {
        tool: tool.to_owned(),
        input: input.to_owned(),
        config: config.to_owned(),
        call_id: "call_1".to_owned(),
        idempotency_key: "key_1".to_owned(),
        attempt: 1,
        time_left_ms: 30_000,
        attachments: Vec::new(),
    }
}

/// Calls a tool with a host that grants nothing.
///
/// # Errors
/// Whatever the tool answers.
pub fn invoke<C: Component>(tool: &str, input: &str, config: &str) -> Result<Vec<Content>, Failure> {
    invoke_in::<C>(&FakeHost::default(), invocation(tool, input, config))
}

/// Calls a tool with a host and an invocation of the test's choice.
///
/// # Errors
/// Whatever the tool answers.
pub fn invoke_in<C: Component>(host: &FakeHost, invocation: Invocation) -> Result<Vec<Content>, Failure> {
    component::invoke::<C>(invocation, Box::new(host.clone()))
}
