//! Runs the calls of a loaded harness: policy from its tool table, execution in the sandbox or in a native capability.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, Either, select};
use serde_json::Value;
use wharf_core::policy::CallPolicy;
use wharf_core::rules::ToolTable;
use wharf_core::step::Launch;
use wharf_core::tool::{Failure, FailureKind, envelope};
use wharf_core::{Call, CallId, Error};

use crate::coordinator::Executor;
use crate::native::{NativeCall, NativeCapability, NativeError};
use crate::seams::Seams;

/// What a running tool says besides its result. For people; never sent to the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolNote {
    /// How far it is.
    Progress {
        /// Which call.
        call: CallId,
        /// In the tool's words.
        message: String,
        /// Units done, where known.
        done: Option<u64>,
        /// Units in all, where known.
        total: Option<u64>,
    },
    /// It wrote to its standard output or error.
    Output {
        /// Which call.
        call: CallId,
        /// True for standard error.
        is_error: bool,
        /// What, cut to a bound.
        text: String,
    },
}

/// Told of notes, from any thread; must not block.
pub type ToolListener = Arc<dyn Fn(ToolNote) + Send + Sync>;

/// Where a capability's calls run.
pub(crate) enum Source {
    /// In the sandbox.
    #[cfg(feature = "components")]
    Component {
        /// The loaded component.
        capability: wharf_sandbox::Capability,
        /// Its config, as JSON text.
        config: String,
    },
    /// In this process.
    Native {
        /// The implementation.
        capability: Arc<dyn NativeCapability>,
        /// Its config.
        config: Arc<Value>,
    },
}

pub(crate) struct HarnessExecutor {
    pub(crate) table: Arc<ToolTable>,
    pub(crate) sources: Arc<BTreeMap<String, Source>>,
    pub(crate) seams: Arc<dyn Seams>,
    pub(crate) listener: Option<ToolListener>,
}

impl Executor for HarnessExecutor {
    fn authorize(&self, call: &Call) -> Result<CallPolicy, Error> {
        Ok(self.table.authorize(call))
    }

    fn execute(&self, launch: Launch) -> BoxFuture<'static, Result<String, String>> {
        let table = self.table.clone();
        let sources = self.sources.clone();
        let seams = self.seams.clone();
        let listener = self.listener.clone();
        Box::pin(async move {
            let Some(tool) = table.get(launch.call.name.as_str()) else {
                return Err(format!("tool {:?} is not there any more", launch.call.name.as_str()));
            };
            let input = tool.executor_input(&launch.call).into_owned();
            let time = tool.limits().values().time;
            match sources.get(tool.capability()) {
                #[cfg(feature = "components")]
                Some(Source::Component { capability, config }) => {
                    let call = wharf_sandbox::Invocation {
                        tool: tool.own_name().clone(),
                        input,
                        config: config.clone(),
                        call_id: launch.call.id.clone(),
                        idempotency_key: launch.idempotency_key.unwrap_or_else(|| launch.call.id.to_string()),
                        attempt: launch.attempt,
                        time_limit: Some(time),
                        attachments: Vec::new(),
                    };
                    let watch = Arc::new(Watch { call: launch.call.id, listener });
                    Ok(capability.invoke(call, watch).await.outcome.into_envelope())
                }
                Some(Source::Native { capability, config }) => {
                    let call = NativeCall {
                        tool: tool.own_name().clone(),
                        input,
                        config: config.clone(),
                        call_id: launch.call.id.clone(),
                        idempotency_key: launch.idempotency_key,
                        attempt: launch.attempt,
                    };
                    Ok(run_native(capability.call(call), &*seams, time).await)
                }
                None => Err(format!("capability {:?} is not loaded", tool.capability())),
            }
        })
    }
}

async fn run_native(
    work: BoxFuture<'static, Result<Vec<wharf_core::tool::Content>, NativeError>>, seams: &dyn Seams, time: Duration,
) -> String {
    match select(work, seams.sleep(time)).await {
        Either::Left((Ok(contents), _)) => envelope(Ok(&contents)),
        Either::Left((Err(NativeError::Failure(failure)), _)) => envelope(Err(&failure)),
        Either::Left((Err(NativeError::Internal(why)), _)) => {
            tracing::trace!(%why, "a native tool failed inside");
            envelope(Err(&Failure::new(FailureKind::Failed, "the tool failed inside; its host knows why")))
        }
        Either::Right(((), _)) => envelope(Err(&Failure::new(
            FailureKind::TimedOut,
            format!("the call was ended after its time limit of {time:?}"),
        ))),
    }
}

#[cfg(feature = "components")]
struct Watch {
    call: CallId,
    listener: Option<ToolListener>,
}

#[cfg(feature = "components")]
impl wharf_sandbox::Observer for Watch {
    fn progress(&self, progress: wharf_sandbox::Progress) {
        if let Some(listener) = &self.listener {
            listener(ToolNote::Progress {
                call: self.call.clone(),
                message: progress.message,
                done: progress.done,
                total: progress.total,
            });
        }
    }

    fn output(&self, kind: wharf_sandbox::OutputKind, bytes: &[u8]) {
        if let Some(listener) = &self.listener {
            listener(ToolNote::Output {
                call: self.call.clone(),
                is_error: matches!(kind, wharf_sandbox::OutputKind::Stderr),
                text: String::from_utf8_lossy(bytes).into_owned(),
            });
        }
    }
}
