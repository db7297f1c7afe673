//! A loaded component with its grants and limits: what it offers, and calls of it, each in a store of its own that holds
//! nothing of an earlier call. It does not know why a call may start; whoever calls has decided and journaled that.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use wasmtime::component::InstancePre;
use wasmtime::{Store, UpdateDeadline};
use wharf_core::digest::Digest;
use wharf_core::grants::Limits;
use wharf_core::tool::{Content, Definition, Failure, FailureKind};

use crate::answers::{self, Description};
use crate::call::{CallOutcome, CallReport, Captured, Invocation, Observer};
use crate::compile::Compiled;
use crate::contract::{self, about, tools, types};
use crate::error::LoadError;
use crate::inspect::{Inspection, inspect};
use crate::limits;
use crate::roots::OpenRoots;
use crate::sandbox::{Inner as SandboxInner, LoadRequest, Sandbox, Stopped};
use crate::state::{StateParts, StoreState, captures};
use crate::trap;

/// A component that is ready to be called. Cheap to clone.
#[derive(Clone)]
pub struct Capability(Arc<Inner>);

struct Inner {
    name: Arc<str>,
    sandbox: Arc<SandboxInner>,
    prepared: InstancePre<StoreState>,
    tools: tools::GuestIndices,
    about: Option<about::GuestIndices>,
    inspection: Inspection,
    env: Vec<(String, String)>,
    roots: Arc<OpenRoots>,
    limits: Limits,
    permits: Arc<Semaphore>,
    /// Keeps the code where the next load of the same component finds it.
    _code: Compiled,
}

impl std::fmt::Debug for Capability {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Capability({:?}, {})", self.0.name, self.0.inspection.digest)
    }
}

impl Capability {
    pub(crate) async fn load(sandbox: Sandbox, request: LoadRequest) -> Result<Self, LoadError> {
        let LoadRequest { name, bytes, grants, limits, mut roots } = request;
        let inspection = inspect(&name, &bytes, &grants)?;
        let refused = inspection.refused();
        if !refused.is_empty() {
            return Err(LoadError::Imports { name, refused });
        }
        match &inspection.tools {
            None => return Err(LoadError::NothingUsable { name, exports: inspection.exports }),
            Some(version) if version != crate::CONTRACT => {
                let found = format!("wharf:tool@{version}");
                return Err(LoadError::Contract { name, found, served: &[crate::CONTRACT] });
            }
            Some(_) => {}
        }
        let sandbox = sandbox.0;
        roots.masked.extend(sandbox.compiler.cache_path().map(Into::into));
        let roots = Arc::new(OpenRoots::open(&name, &grants.files, &roots)?);
        let code = sandbox.compiler.compiled(&name, inspection.digest, bytes).await?;
        let Some(component) = code.get() else {
            return Err(LoadError::Unavailable { name, reason: "its code is not there".into() });
        };
        let mismatch =
            |error: wasmtime::Error| LoadError::Mismatch { name: name.clone(), reason: format!("{error:#}") };
        let prepared = sandbox.linker.instantiate_pre(component).map_err(mismatch)?;
        let tools = tools::GuestIndices::new(&prepared).map_err(mismatch)?;
        let about = match inspection.about {
            true => Some(about::GuestIndices::new(&prepared).map_err(mismatch)?),
            false => None,
        };
        let at_once = usize::try_from(limits.calls_at_once).unwrap_or(usize::MAX).clamp(1, Semaphore::MAX_PERMITS);
        Ok(Self(Arc::new(Inner {
            name: name.into(),
            sandbox,
            prepared,
            tools,
            about,
            inspection,
            env: grants.env.into_iter().collect(),
            roots,
            limits,
            permits: Arc::new(Semaphore::new(at_once)),
            _code: code,
        })))
    }

    /// Its name in the harness.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The digest of the component.
    pub fn digest(&self) -> Digest {
        self.0.inspection.digest
    }

    /// The version of the contract that it is served by.
    pub fn contract(&self) -> &'static str {
        crate::CONTRACT
    }

    /// What was read from it at load.
    pub fn inspection(&self) -> &Inspection {
        &self.0.inspection
    }

    /// How much a call may use that has no limits of its own.
    pub fn limits(&self) -> &Limits {
        &self.0.limits
    }

    /// The JSON Schema of its config; none if it takes no config.
    pub async fn config_schema(&self) -> Result<Option<serde_json::Value>, LoadError> {
        match self.ask("config-schema", Question::ConfigSchema).await? {
            Answer::ConfigSchema(schema) => answers::config_schema(self.name(), schema),
            other => Err(self.wrong_answer("config-schema", &other)),
        }
    }

    /// The tools that a config gives (Z11). Runs in a store without grants, with clocks that stand still, one second and
    /// 64 MiB; counts and sizes are capped. The caller keeps the answer.
    pub async fn definitions(&self, config: &str) -> Result<Vec<Definition>, LoadError> {
        match self.ask("definitions", Question::Definitions(config.into())).await? {
            Answer::Definitions(Ok(definitions)) => answers::definitions(self.name(), definitions),
            Answer::Definitions(Err(failure)) => Err(self.refused(failure)),
            other => Err(self.wrong_answer("definitions", &other)),
        }
    }

    /// What it says of itself and to the model's instructions, if it is more than a bag of tools. Runs as
    /// [`Capability::definitions`] does.
    pub async fn describe(&self, config: &str) -> Result<Option<Description>, LoadError> {
        if self.0.about.is_none() {
            return Ok(None);
        }
        match self.ask("describe", Question::Describe(config.into())).await? {
            Answer::Describe(Ok(description)) => answers::description(self.name(), description).map(Some),
            Answer::Describe(Err(failure)) => Err(self.refused(failure)),
            other => Err(self.wrong_answer("describe", &other)),
        }
    }

    /// Runs one call and tells what came of it. Waits first until the capability has a call to spare. Dropping the
    /// future ends the call: its store is dropped, a loop at its next tick.
    pub async fn invoke(&self, call: Invocation, observer: Arc<dyn Observer>) -> CallReport {
        let inner = self.0.clone();
        let bare = |outcome| CallReport {
            outcome,
            stdout: Captured::default(),
            stderr: Captured::default(),
            elapsed: Duration::ZERO,
            memory_peak_bytes: 0,
        };
        match self.0.sandbox.run(inner.call(call, observer)).await {
            Ok(report) => report,
            Err(Stopped::Shutdown) => bare(CallOutcome::Cancelled),
            Err(stopped @ Stopped::Panic) => bare(CallOutcome::Trapped { message: stopped.to_string() }),
        }
    }

    async fn ask(&self, asked: &'static str, question: Question) -> Result<Answer, LoadError> {
        let (inner, name) = (self.0.clone(), self.name().to_owned());
        let ran = self.0.sandbox.run(inner.pure(question)).await;
        let ended = match ran.map(|ran| ran.result) {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(ended)) => ended,
            Err(stopped) => Ended::NotRun(stopped.to_string()),
        };
        Err(match ended {
            Ended::TimedOut => LoadError::TimedOut { name, asked, limit: limits::PURE_TIME },
            Ended::MemoryExceeded => LoadError::MemoryExceeded { name, asked, limit_bytes: limits::PURE_MEMORY_BYTES },
            Ended::Trapped(message) => LoadError::Trapped { name, asked, message },
            Ended::NotRun(reason) => LoadError::Unavailable { name, reason },
        })
    }

    fn refused(&self, failure: types::Failure) -> LoadError {
        let failure = contract::core_failure(failure, limits::DESCRIPTION_BYTES_MAX as u64);
        LoadError::ConfigRefused { name: self.name().into(), failure: Box::new(failure) }
    }

    fn wrong_answer(&self, asked: &'static str, answer: &Answer) -> LoadError {
        let reason = format!("another answer than the one asked for ({})", answer.word());
        LoadError::Answer { name: self.name().into(), asked, reason }
    }
}

/// One function of the component with what it is given.
enum Question {
    ConfigSchema,
    Definitions(String),
    Describe(String),
    Invoke(Box<Invocation>),
}

enum Answer {
    ConfigSchema(Option<String>),
    Definitions(Result<Vec<types::Definition>, types::Failure>),
    Describe(Result<about::Description, types::Failure>),
    Invoke(Result<Vec<types::Content>, types::Failure>),
}

impl Answer {
    fn word(&self) -> &'static str {
        match self {
            Self::ConfigSchema(_) => "config-schema",
            Self::Definitions(_) => "definitions",
            Self::Describe(_) => "describe",
            Self::Invoke(_) => "invoke",
        }
    }
}

/// How much one run may use.
struct Bounds {
    time: Duration,
    memory_bytes: u64,
    answer_bytes: usize,
    /// No grants, standing clocks, repeating randomness.
    pure: bool,
}

/// Why a run has no answer.
enum Ended {
    TimedOut,
    MemoryExceeded,
    Trapped(String),
    NotRun(String),
}

struct Ran {
    result: Result<Answer, Ended>,
    stdout: Captured,
    stderr: Captured,
    elapsed: Duration,
    memory_peak_bytes: u64,
}

/// Raised in a guest that still runs when its time is over.
#[derive(Debug, thiserror::Error)]
#[error("the time limit is reached")]
struct TimeIsOver;

impl Inner {
    async fn pure(self: Arc<Self>, question: Question) -> Ran {
        let bounds = Bounds {
            time: limits::PURE_TIME,
            memory_bytes: limits::PURE_MEMORY_BYTES,
            answer_bytes: limits::PURE_ANSWER_BYTES_MAX,
            pure: true,
        };
        match permit(&self.sandbox.calls).await {
            Ok(_permit) => self.run(question, bounds, Arc::new(())).await,
            Err(reason) => Ran::not_run(reason),
        }
    }

    async fn call(self: Arc<Self>, call: Invocation, observer: Arc<dyn Observer>) -> CallReport {
        let own = call.limits.as_ref().unwrap_or(&self.limits);
        let (memory_bytes, output_bytes) = (own.memory_bytes, own.output_bytes);
        let time = call.time_limit.map_or(own.time, |left| left.min(own.time));
        let bounds = Bounds { time, memory_bytes, answer_bytes: limits::RESULT_BYTES_MAX, pure: false };
        let ran = match (permit(&self.permits).await, permit(&self.sandbox.calls).await) {
            (Ok(_own), Ok(_shared)) => self.run(Question::Invoke(Box::new(call)), bounds, observer).await,
            (Err(reason), _) | (_, Err(reason)) => Ran::not_run(reason),
        };
        let outcome = match ran.result {
            Ok(Answer::Invoke(Ok(contents))) => success(contents, output_bytes),
            Ok(Answer::Invoke(Err(failure))) => CallOutcome::Failure(contract::core_failure(failure, output_bytes)),
            Ok(other) => CallOutcome::Trapped { message: format!("it answered with {}", other.word()) },
            Err(Ended::TimedOut) => CallOutcome::TimedOut { limit: time },
            Err(Ended::MemoryExceeded) => CallOutcome::MemoryExceeded { limit_bytes: memory_bytes },
            Err(Ended::Trapped(message)) => CallOutcome::Trapped { message },
            Err(Ended::NotRun(reason)) => CallOutcome::Failure(Failure::new(FailureKind::Unavailable, reason)),
        };
        CallReport {
            outcome,
            stdout: ran.stdout,
            stderr: ran.stderr,
            elapsed: ran.elapsed,
            memory_peak_bytes: ran.memory_peak_bytes,
        }
    }

    /// A fresh store and instance, one question, an answer. Everything that happens in here counts for the time.
    async fn run(&self, question: Question, bounds: Bounds, observer: Arc<dyn Observer>) -> Ran {
        let started = Instant::now();
        let deadline = started + bounds.time;
        let _ticking = self.sandbox.ticker.run();
        let (stdout, stderr) = captures(&observer);
        let mut store = Store::new(
            &self.sandbox.engine,
            StoreState::new(StateParts {
                capability: self.name.clone(),
                roots: if bounds.pure { Arc::default() } else { self.roots.clone() },
                descriptors: self.sandbox.descriptors.clone(),
                listings: self.sandbox.listings.clone(),
                env: if bounds.pure { &[] } else { &self.env },
                attachments: match &question {
                    Question::Invoke(call) => call.attachments.clone(),
                    Question::ConfigSchema | Question::Definitions(_) | Question::Describe(_) => Vec::new(),
                },
                memory_bytes: bounds.memory_bytes,
                deadline,
                observer,
                stdout: stdout.clone(),
                stderr: stderr.clone(),
                pure: bounds.pure,
            }),
        );
        store.limiter(|state| &mut state.meter);
        store.set_hostcall_fuel(bounds.answer_bytes);
        store.set_epoch_deadline(1);
        // A guest that spins is stopped here, one that sleeps by the timer below (LIM-1).
        store.epoch_deadline_callback(|store| {
            if Instant::now() >= store.data().deadline { Err(TimeIsOver.into()) } else { Ok(UpdateDeadline::Yield(1)) }
        });
        let asked = self.question(&mut store, question);
        let result = match tokio::time::timeout_at(deadline.into(), asked).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) if error.is::<TimeIsOver>() => Err(Ended::TimedOut),
            Ok(Err(error)) if error.is::<wasmtime::PoolConcurrencyLimitError>() => {
                Err(Ended::NotRun("too many components run at once; try again later".into()))
            }
            Ok(Err(_)) if store.data().meter.exceeded => Err(Ended::MemoryExceeded),
            Ok(Err(error)) => Err(Ended::Trapped(trap::message(&error))),
            Err(_elapsed) => Err(Ended::TimedOut),
        };
        Ran {
            result,
            stdout: stdout.captured(),
            stderr: stderr.captured(),
            elapsed: started.elapsed(),
            memory_peak_bytes: store.data().meter.peak,
        }
    }

    async fn question(&self, store: &mut Store<StoreState>, question: Question) -> wasmtime::Result<Answer> {
        let instance = self.prepared.instantiate_async(&mut *store).await?;
        match question {
            Question::ConfigSchema => {
                let tools = self.tools.load(&mut *store, &instance)?;
                Ok(Answer::ConfigSchema(tools.call_config_schema(store).await?))
            }
            Question::Definitions(config) => {
                let tools = self.tools.load(&mut *store, &instance)?;
                Ok(Answer::Definitions(tools.call_definitions(store, &config).await?))
            }
            Question::Describe(config) => {
                let Some(about) = &self.about else { wasmtime::bail!("it exports no description") };
                let about = about.load(&mut *store, &instance)?;
                Ok(Answer::Describe(about.call_describe(store, &config).await?))
            }
            Question::Invoke(call) => {
                let tools = self.tools.load(&mut *store, &instance)?;
                let left = store.data().deadline.saturating_duration_since(Instant::now());
                let left_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
                let invocation = contract::invocation(&call, left_ms);
                drop(call);
                Ok(Answer::Invoke(tools.call_invoke(store, &invocation).await?))
            }
        }
    }
}

fn success(contents: Vec<types::Content>, output_bytes: u64) -> CallOutcome {
    if contents.len() > limits::CONTENTS_MAX {
        let message = format!("the tool gave {} contents, at most {} are taken", contents.len(), limits::CONTENTS_MAX);
        return CallOutcome::Failure(Failure::new(FailureKind::Failed, message));
    }
    let contents: Vec<Content> = contract::contents(contents);
    CallOutcome::Success(wharf_core::cut::cut_contents(contents, output_bytes))
}

impl Ran {
    fn not_run(reason: String) -> Self {
        Self {
            result: Err(Ended::NotRun(reason)),
            stdout: Captured::default(),
            stderr: Captured::default(),
            elapsed: Duration::ZERO,
            memory_peak_bytes: 0,
        }
    }
}

/// Waits for a permit, not for ever.
async fn permit(permits: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, String> {
    match tokio::time::timeout(limits::PERMIT_WAIT_MAX, permits.clone().acquire_owned()).await {
        Ok(Ok(permit)) => Ok(permit),
        Ok(Err(closed)) => Err(closed.to_string()),
        Err(_elapsed) => Err(format!("other calls left no room for {:?}; try again later", limits::PERMIT_WAIT_MAX)),
    }
}
