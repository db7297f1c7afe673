//! To drive a coordinator without a runtime, a clock or a sleep: virtual time in one thread, calls that end when a test
//! says so, streams from a script, and a store that fails where it is told to.
//!
//! Everything here is deterministic: the same test gives the same interleaving, and a seed gives another one. It knows
//! [`Seams`](crate::seams::Seams), [`Executor`](crate::coordinator::Executor),
//! [`Requester`](crate::coordinator::Requester) and [`Store`](wharf_store::Store), and nothing behind them.
//!
//! ```
//! use std::sync::Arc;
//! use wharf::coordinator::{Coordinator, Options, Rest};
//! use wharf::testing::{Ending, FakeExecutor, ScriptedRequester, SimSeams, Step, finished, started};
//! use wharf::core::{Call, policy::CallPolicy};
//! use wharf_store::{JournalKey, MemoryStore};
//!
//! let sim = SimSeams::new();
//! let store = Arc::new(MemoryStore::with_clock(sim.clock()));
//! let executor = FakeExecutor::new().policy("add", CallPolicy::start());
//! executor.plan("c1", Ending::output("3"));
//! let mut requester = ScriptedRequester::new(&sim);
//! requester.answer([started("r1"), Step::sync_call(Call::function("c1", "add", "[1,2]")), finished("r1", "tool_calls")]);
//! requester.answer([started("r2"), Step::text("three"), finished("r2", "stop")]);
//!
//! let options = Options::new(store, JournalKey::local("s1"), executor.shared(), sim.shared());
//! let rest = sim.run(async {
//!     let mut coordinator = Coordinator::open(options).await?;
//!     coordinator.start_turn(Vec::new()).await?;
//!     coordinator.run(4, &mut requester, &mut ()).await
//! });
//! assert_eq!(rest, Ok(Rest::Finished));
//! assert_eq!(requester.asks().len(), 2);
//! ```

mod executor;
mod gate;
mod lines;
mod requester;
mod sim;
mod store;

pub use executor::{Ending, FakeExecutor};
pub use gate::Gate;
pub use lines::{Timeline, line, lines};
pub use requester::{
    RecordingObserver, ScriptedRequester, ScriptedRetriever, Seen, Step, completion, finished, started, stream,
};
pub use sim::SimSeams;
pub use store::{StoreFault, StoreOp, TrialStore};
