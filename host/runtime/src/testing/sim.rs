//! Virtual time, counted ids and an executor of one thread.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use futures::future::BoxFuture;

use crate::seams::{Seams, Task};

/// Longest virtual time of one [`SimSeams::run`]: who waits for something that never comes renews its lease for ever, and
/// its test should fail instead.
const RUN_TIME_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Wall clock at the virtual start, in milliseconds since 1970.
const WALL_START_MS: u64 = 1_800_000_000_000;

/// The task that [`SimSeams::run`] was given.
const MAIN: u64 = 0;

/// Seams without a runtime. Clones share time, ids and tasks.
///
/// Time stands still while any task can go on. When none can, it moves to the next timer.
#[derive(Clone)]
pub struct SimSeams(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    now: Duration,
    fresh: u64,
    /// Counts tasks and timers.
    made: u64,
    tasks: HashMap<u64, BoxFuture<'static, ()>>,
    /// The one that is being polled.
    polled: Option<u64>,
    /// True if it was stopped meanwhile.
    stopped: bool,
    ready: VecDeque<u64>,
    timers: BTreeMap<(Duration, u64), Waker>,
    /// Who waits until nothing can go on without time.
    idle: Vec<Waker>,
    /// Chooses among the tasks that can go on; without it the first one goes on.
    random: Option<u64>,
}

impl Default for SimSeams {
    fn default() -> Self {
        Self::new()
    }
}

impl SimSeams {
    /// At time zero; tasks go on in the order in which they were woken.
    pub fn new() -> Self {
        Self(Arc::default())
    }

    /// At time zero; the seed chooses the order.
    pub fn seeded(seed: u64) -> Self {
        let sim = Self::new();
        sim.lock().random = Some(seed.wrapping_mul(2).wrapping_add(1));
        sim
    }

    /// For [`Options::new`](crate::coordinator::Options::new).
    pub fn shared(&self) -> Arc<dyn Seams> {
        Arc::new(self.clone())
    }

    /// For [`MemoryStore::with_clock`](wharf_store::MemoryStore::with_clock), so that leases follow virtual time.
    pub fn clock(&self) -> wharf_store::Clock {
        let sim = self.clone();
        Arc::new(move || sim.now())
    }

    /// Runs a future, and all tasks that are spawned meanwhile, until the future is done. Tasks that are left stay for the
    /// next run.
    ///
    /// # Panics
    /// If nothing can happen any more, or after a day of virtual time: what the test waits for never comes.
    pub fn run<T>(&self, main: impl Future<Output = T>) -> T {
        let mut main = pin!(main);
        let give_up = self.now() + RUN_TIME_MAX;
        wake(&self.0, MAIN);
        loop {
            match self.next_ready() {
                Some(MAIN) => {
                    if let Poll::Ready(done) = main.as_mut().poll(&mut Context::from_waker(&self.waker(MAIN))) {
                        return done;
                    }
                }
                Some(id) => self.poll_task(id),
                None if self.wake_idle() => {}
                None => {
                    assert!(self.next_timer(), "nothing can happen any more: no task is ready and no timer is set");
                    assert!(self.now() < give_up, "still busy after {RUN_TIME_MAX:?} of virtual time");
                }
            }
        }
    }

    /// Moves time on without letting any task go on meanwhile, as when a process is paused. Timers that were passed fire in
    /// their order.
    pub fn advance(&self, by: Duration) {
        let due: Vec<Waker> = {
            let mut state = self.lock();
            state.now += by;
            let now = state.now;
            let later = state.timers.split_off(&(now, u64::MAX));
            std::mem::replace(&mut state.timers, later).into_values().collect()
        };
        due.into_iter().for_each(Waker::wake);
    }

    /// Ready once nothing can go on before time moves.
    pub fn idle(&self) -> impl Future<Output = ()> + Send + 'static {
        Idle { sim: self.clone(), asked: false }
    }

    /// A number below `below`, from the seed. Without a seed, 0.
    pub fn random(&self, below: u64) -> u64 {
        self.lock().random(below)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn waker(&self, id: u64) -> Waker {
        Waker::from(Arc::new(TaskWaker { state: Arc::downgrade(&self.0), id }))
    }

    fn next_ready(&self) -> Option<u64> {
        let mut state = self.lock();
        let choices = state.ready.len() as u64;
        let chosen = state.random(choices);
        state.ready.remove(usize::try_from(chosen).unwrap_or(0))
    }

    fn poll_task(&self, id: u64) {
        let mut task = {
            let mut state = self.lock();
            let Some(task) = state.tasks.remove(&id) else { return };
            state.polled = Some(id);
            task
        };
        let pending = task.as_mut().poll(&mut Context::from_waker(&self.waker(id))).is_pending();
        let mut state = self.lock();
        state.polled = None;
        if std::mem::take(&mut state.stopped) || !pending {
            drop(state); // what the task owned may use the seams while it is dropped
            drop(task);
        } else {
            state.tasks.insert(id, task);
        }
    }

    fn wake_idle(&self) -> bool {
        let idle = std::mem::take(&mut self.lock().idle);
        let any = !idle.is_empty();
        idle.into_iter().for_each(Waker::wake);
        any
    }

    fn next_timer(&self) -> bool {
        let fired = {
            let mut state = self.lock();
            let Some(((at, _), waker)) = state.timers.pop_first() else { return false };
            state.now = state.now.max(at);
            waker
        };
        fired.wake();
        true
    }
}

impl State {
    fn number(&mut self) -> u64 {
        self.made += 1;
        self.made
    }

    fn random(&mut self, below: u64) -> u64 {
        let Some(seed) = &mut self.random else { return 0 };
        if below == 0 {
            return 0;
        }
        // xorshift64*: any of its kind is random enough to choose an order.
        *seed ^= *seed >> 12;
        *seed ^= *seed << 25;
        *seed ^= *seed >> 27;
        (seed.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % below
    }
}

fn wake(state: &Mutex<State>, id: u64) {
    let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
    if !state.ready.contains(&id) {
        state.ready.push_back(id);
    }
}

struct TaskWaker {
    state: Weak<Mutex<State>>,
    id: u64,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        if let Some(state) = self.state.upgrade() {
            wake(&state, self.id);
        }
    }
}

impl Seams for SimSeams {
    fn spawn(&self, _name: &'static str, task: BoxFuture<'static, ()>) -> Task {
        let id = {
            let mut state = self.lock();
            let id = state.number();
            state.tasks.insert(id, task);
            id
        };
        wake(&self.0, id);
        let state = Arc::downgrade(&self.0);
        Task::new(move || {
            let Some(state) = state.upgrade() else { return };
            let mut locked = state.lock().unwrap_or_else(PoisonError::into_inner);
            let task = locked.tasks.remove(&id);
            if locked.polled == Some(id) {
                locked.stopped = true;
            }
            drop(locked);
            drop(task);
        })
    }

    fn now(&self) -> Duration {
        self.lock().now
    }

    fn wall_ms(&self) -> u64 {
        WALL_START_MS + u64::try_from(self.now().as_millis()).unwrap_or(u64::MAX - WALL_START_MS)
    }

    fn sleep(&self, time: Duration) -> BoxFuture<'static, ()> {
        Box::pin(Sleep { sim: self.clone(), until: self.now() + time, timer: None })
    }

    fn fresh(&self) -> String {
        let mut state = self.lock();
        state.fresh += 1;
        format!("id-{:06}", state.fresh)
    }
}

struct Sleep {
    sim: SimSeams,
    until: Duration,
    timer: Option<u64>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let sim = self.sim.clone();
        let mut state = sim.lock();
        if state.now >= self.until {
            return Poll::Ready(());
        }
        let number = *self.timer.get_or_insert_with(|| state.number());
        let until = self.until;
        state.timers.insert((until, number), context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(number) = self.timer {
            self.sim.lock().timers.remove(&(self.until, number));
        }
    }
}

struct Idle {
    sim: SimSeams,
    asked: bool,
}

impl Future for Idle {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.asked, true) && self.sim.lock().ready.is_empty() {
            return Poll::Ready(());
        }
        self.sim.lock().idle.push(context.waker().clone());
        Poll::Pending
    }
}
