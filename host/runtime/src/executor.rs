//! Runs the calls of a loaded harness: policy from its tool table, execution in the sandbox or in a native capability.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;

use futures::future::{BoxFuture, Either, select};
use serde_json::Value;
use tokio::sync::Semaphore;
use wharf_core::cut::{cut_contents, cut_failure};
use wharf_core::grants::Limits;
use wharf_core::policy::CallPolicy;
#[cfg(feature = "components")]
use wharf_core::rules::BoundTool;
use wharf_core::rules::ToolTable;
use wharf_core::step::Launch;
use wharf_core::tool::{Failure, FailureKind, envelope};
use wharf_core::{Call, CallId, Error, SessionId};

use crate::coordinator::Executor;
use crate::limits;
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
        /// One for each call that may run at once.
        permits: Arc<Semaphore>,
    },
}

pub(crate) struct HarnessExecutor {
    pub(crate) table: Arc<ToolTable>,
    pub(crate) sources: Arc<BTreeMap<String, Source>>,
    pub(crate) seams: Arc<dyn Seams>,
    /// Ids of calls are a session's own.
    #[cfg_attr(not(feature = "components"), allow(dead_code, reason = "native tools make keys of their own"))]
    pub(crate) session: SessionId,
    #[cfg_attr(not(feature = "components"), allow(dead_code, reason = "only components say notes"))]
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
        #[cfg(feature = "components")]
        let listener = self.listener.clone();
        #[cfg(feature = "components")]
        let session = self.session.clone();
        Box::pin(async move {
            let Some(tool) = table.get(launch.call.name.as_str()) else {
                return Err(format!("tool {:?} is not there any more", launch.call.name.as_str()));
            };
            match sources.get(tool.capability()) {
                #[cfg(feature = "components")]
                Some(Source::Component { capability, config }) => {
                    let watch = Arc::new(Watch { call: launch.call.id.clone(), listener });
                    let call = invocation(&session, tool, config, launch);
                    Ok(capability.invoke(call, watch).await.outcome.into_envelope())
                }
                Some(Source::Native { capability, config, permits }) => {
                    let bounds = tool.limits().values();
                    let call = NativeCall {
                        tool: tool.own_name().clone(),
                        input: tool.executor_input(&launch.call).into_owned(),
                        config: config.clone(),
                        call_id: launch.call.id.clone(),
                        idempotency_key: launch.idempotency_key,
                        attempt: launch.attempt,
                    };
                    let wait = seams.sleep(limits::PERMIT_WAIT_MAX);
                    let Either::Left((Ok(_permit), _)) = select(pin!(permits.acquire()), wait).await else {
                        let why =
                            format!("other calls left no room for {:?}; try again later", limits::PERMIT_WAIT_MAX);
                        return Ok(envelope(Err(&Failure::new(FailureKind::Unavailable, why))));
                    };
                    Ok(run_native(capability.call(call), &*seams, &bounds).await)
                }
                None => Err(format!("capability {:?} is not loaded", tool.capability())),
            }
        })
    }
}

async fn run_native(
    work: BoxFuture<'static, Result<Vec<wharf_core::tool::Content>, NativeError>>,
    seams: &dyn Seams,
    bounds: &Limits,
) -> String {
    let time = bounds.time;
    match select(work, seams.sleep(time)).await {
        Either::Left((Ok(contents), _)) => envelope(Ok(&cut_contents(contents, bounds.output_bytes))),
        Either::Left((Err(NativeError::Failure(failure)), _)) => {
            envelope(Err(&cut_failure(failure, bounds.output_bytes)))
        }
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

/// What a component is handed.
#[cfg(feature = "components")]
fn invocation(session: &SessionId, tool: &BoundTool, config: &str, launch: Launch) -> wharf_sandbox::Invocation {
    // Calls are the same thing in the eyes of others if they have one key (L56), and providers repeat ids over sessions. The
    // length keeps two pairs apart that read alike.
    let own_key = || format!("{}:{session}/{}", session.as_str().len(), launch.call.id);
    wharf_sandbox::Invocation {
        tool: tool.own_name().clone(),
        input: tool.executor_input(&launch.call).into_owned(),
        config: config.to_owned(),
        idempotency_key: launch.idempotency_key.unwrap_or_else(own_key),
        call_id: launch.call.id,
        attempt: launch.attempt,
        limits: Some(tool.limits().values()),
        time_limit: None,
        attachments: Vec::new(),
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

#[cfg(test)]
mod tests {
    use futures::future::join;
    use serde_json::json;
    use wharf_core::ToolName;
    use wharf_core::harness::Harness;
    use wharf_core::tool::{Claims, Content, Definition, InputFormat};

    use super::*;
    use crate::builder::Wharf;
    use crate::load::Surroundings;
    use crate::native::About;
    use crate::testing::{Gate, SimSeams};

    /// Says its input back; `fail` fails with it; `wait` tells that it runs and goes on when it may.
    struct Talker {
        running: Gate,
        go_on: Gate,
    }

    impl NativeCapability for Talker {
        fn about(&self) -> About {
            About { id: "talker".to_owned(), ..About::default() }
        }

        fn tools(&self, _config: &Value) -> Result<Vec<Definition>, Error> {
            let tool = |name: &str| Definition {
                name: ToolName::new(name),
                title: None,
                category: None,
                description: String::new(),
                input: InputFormat::Text,
                output_schema: None,
                claims: Claims::default(),
            };
            Ok(["say", "fail", "wait"].map(tool).to_vec())
        }

        fn call(&self, call: NativeCall) -> BoxFuture<'static, Result<Vec<Content>, NativeError>> {
            let (running, go_on) = (self.running.clone(), self.go_on.clone());
            Box::pin(async move {
                match call.tool.as_str() {
                    "fail" => {
                        return Err(NativeError::Failure(Failure {
                            details: Some(json!([1, 2, 3])),
                            ..Failure::new(FailureKind::Conflict, call.input)
                        }));
                    }
                    "wait" => {
                        running.open();
                        go_on.passed().await;
                    }
                    _ => {}
                }
                Ok(vec![Content::Text(call.input)])
            })
        }
    }

    const HARNESS: &str = r#"
[harness]
name = "t"
model = "p/m"
[capabilities.talker]
native = "talker"
limits = { output = "6B", time = "10s", calls_at_once = 1 }
tools.say.limits = { output = "4B" }
"#;

    fn executor(sim: &SimSeams, talker: Talker) -> HarnessExecutor {
        let harness = Harness::parse("h.toml", HARNESS).unwrap();
        let wharf = Wharf::builder().native(talker).seams(sim.shared()).build().unwrap();
        let agent = sim.run(wharf.load(harness, Surroundings::default())).unwrap();
        HarnessExecutor {
            table: agent.table.clone(),
            sources: agent.sources.clone(),
            seams: sim.shared(),
            session: "s".into(),
            listener: None,
        }
    }

    fn launch(id: &str, tool: &str, input: &str) -> Launch {
        let call = Call::custom(id, tool, input);
        Launch { call, attempt: 1, idempotency_key: None, replay: wharf_core::policy::ReplayClass::Never }
    }

    fn error(kind: &str, message: &str) -> Result<String, String> {
        Ok(format!(r#"{{"result":null,"error":{{"kind":"{kind}","message":"{message}"}},"images":[]}}"#))
    }

    // covers L56
    #[cfg(feature = "components")]
    #[test]
    fn calls_of_two_sessions_share_no_idempotency_key_though_the_provider_repeats_their_ids() {
        let executor = executor(&SimSeams::new(), Talker { running: Gate::new(), go_on: Gate::new() });
        let tool = executor.table.get("say").unwrap();
        let key = |session: &str, launch| invocation(&session.into(), tool, "{}", launch).idempotency_key;
        let own = |session: &str, id: &str| key(session, launch(id, "say", "x"));
        let keys = [own("a", "call_0"), own("b", "call_0"), own("a", "call_1"), own("a/b", "c"), own("a", "b/c")];
        assert_eq!(keys, ["1:a/call_0", "1:b/call_0", "1:a/call_1", "3:a/b/c", "1:a/b/c"]);
        assert_eq!(own("a", "call_0"), keys[0], "each run of a call has the same one");
        let keyed = Launch { idempotency_key: Some("recorded".into()), ..launch("call_0", "say", "x") };
        assert_eq!(key("a", keyed), "recorded");
    }

    // AUTH-8: the limits that policy gives a tool are the ones that its calls have.
    #[test]
    fn a_native_tools_output_and_failure_are_cut_to_what_its_tool_may_give() {
        let sim = SimSeams::new();
        let executor = executor(&sim, Talker { running: Gate::new(), go_on: Gate::new() });
        let run = |tool, input| sim.run(executor.execute(launch("c", tool, input)));
        let said = |text: &str| Ok(format!(r#"{{"result":"{text}","error":null,"images":[]}}"#));
        assert_eq!(run("say", "1234"), said("1234"));
        assert_eq!(run("say", "12345"), said("12\\n[… 1 bytes cut …]\\n45"));
        let details = r#"","details":"[1,\n[… 1 bytes cut …]\n,3]"#;
        assert_eq!(run("fail", "123456"), error("conflict", &format!("123456{details}")));
        assert_eq!(run("fail", "1234567"), error("conflict", &format!(r"123\n[… 1 bytes cut …]\n567{details}")));
    }

    // AUTH-8: the limits that policy gives a tool are the ones that its calls have.
    #[test]
    fn calls_of_a_native_capability_wait_for_each_other_outside_of_their_own_time() {
        let sim = SimSeams::new();
        let talker = Talker { running: Gate::new(), go_on: Gate::new() };
        let running = talker.running.clone();
        let executor = executor(&sim, talker);
        // The first call holds the only permit until its ten seconds are over; the second has its own ten after that.
        let first = executor.execute(launch("c1", "wait", ""));
        let second = async {
            running.passed().await;
            executor.execute(launch("c2", "say", "1234")).await
        };
        let both = sim.run(async {
            let start = sim.shared().now();
            let done = join(first, async { (second.await, sim.shared().now() - start) }).await;
            (done.0, done.1.0, done.1.1)
        });
        let timed_out = error("timed-out", "the call was ended after its time limit of 10s");
        let said = Ok(r#"{"result":"1234","error":null,"images":[]}"#.to_owned());
        assert_eq!(both, (timed_out, said, std::time::Duration::from_secs(10)));
    }
}
