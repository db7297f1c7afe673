//! The tools: each run is in the log, which is the witness of what had an effect.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::json;
use wharf::coordinator::Executor;
use wharf::seams::Seams;
use wharf_core::policy::{CallPolicy, Hold, RefusalReason, ReplayClass};
use wharf_core::step::Launch;
use wharf_core::{Call, Error};

use crate::outside::{Event, Owner, marked};
use crate::script::{CallPlan, Goes, HoldPlan};
use crate::world::World;

/// How long a run takes, in time and late.
const SOON: Duration = Duration::from_millis(300);
const LATE: Duration = Duration::from_secs(22);

/// Size of an output that is kept beside its record.
const BIG: usize = 40 << 10;

/// What a crashing tool says.
pub const CRASH: &str = "the tool crashes, as its script says";

/// The tools of one process.
pub struct Tools {
    pub world: World,
    pub owner: Owner,
}

impl Tools {
    pub fn shared(world: &World, owner: Owner) -> Arc<dyn Executor> {
        Arc::new(Self { world: world.clone(), owner })
    }
}

/// The policy of a call.
pub fn policy(plan: &CallPlan) -> CallPolicy {
    let policy = match plan.hold {
        _ if plan.goes == Goes::Refused => CallPolicy::refuse(RefusalReason::Policy, "policy says no".to_owned()),
        HoldPlan::Nothing => CallPolicy::start(),
        HoldPlan::Approved | HoldPlan::Declined => CallPolicy::hold(Hold::Approval),
        HoldPlan::Outside => CallPolicy::hold(Hold::Output),
    };
    let policy = policy.with_async().with_replay(plan.class);
    if plan.locks { policy.with_class("one") } else { policy }
}

impl Executor for Tools {
    fn authorize(&self, call: &Call) -> Result<CallPolicy, Error> {
        let state = self.world.lock();
        let plan = state.calls.get(&marked(call.text()));
        let plan = plan.ok_or_else(|| Error::config(format!("call {:?} is in no script", call.text())))?;
        let policy = policy(plan);
        Ok(if state.narrow { policy.with_replay(ReplayClass::Never) } else { policy })
    }

    fn execute(&self, launch: Launch) -> BoxFuture<'static, Result<String, String>> {
        let (world, owner) = (self.world.clone(), self.owner);
        Box::pin(async move { run(world, owner, launch).await })
    }
}

async fn run(world: World, owner: Owner, launch: Launch) -> Result<String, String> {
    if !world.lives(owner) {
        return futures::future::pending().await;
    }
    let call = marked(launch.call.text());
    let goes = world.lock().calls.get(&call).map(|plan| plan.goes);
    world.saw(Event::Started { owner, call: call.clone(), key: launch.idempotency_key });
    if !world.tool_moment(owner) {
        return futures::future::pending().await;
    }
    let jitter = Duration::from_millis(world.sim().random(3_000));
    match goes {
        Some(Goes::Late) => world.sim().sleep(LATE + jitter).await,
        Some(Goes::Hangs) => futures::future::pending().await,
        _ => world.sim().sleep(SOON + jitter).await,
    }
    if !world.lives(owner) {
        return futures::future::pending().await;
    }
    let result = match goes {
        Some(Goes::Fails) => Err("it did not work".to_owned()),
        // More than stands in a record.
        Some(Goes::Big) => Ok(format!("result {} of {call}{}", launch.attempt, " ".repeat(BIG))),
        _ => Ok(format!("result {} of {call}", launch.attempt)),
    };
    let output = match &result {
        _ if goes == Some(Goes::Crashes) => None,
        Ok(output) => Some(output.clone()),
        Err(message) => Some(json!({ "error": message }).to_string()),
    };
    world.saw(Event::Ended { owner, call, output });
    if !world.tool_moment(owner) {
        return futures::future::pending().await;
    }
    if goes == Some(Goes::Crashes) {
        std::panic::panic_any(CRASH);
    }
    result
}
