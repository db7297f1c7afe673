//! Times and allocations of a piece of work: warmed up, repeated, told as medians.

use std::alloc::{GlobalAlloc, Layout, System};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The system's allocator, counting.
pub(crate) struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// Allocations of the whole process while this ran; run it when nothing else does.
pub(crate) fn allocations(work: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    work();
    ALLOCATIONS.load(Ordering::Relaxed) - before
}

/// What repeated work took, each time.
pub(crate) struct Times(Vec<Duration>);

impl Times {
    pub(crate) fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        Self(times)
    }

    pub(crate) fn median(&self) -> Duration {
        self.at(50)
    }

    fn at(&self, percent: usize) -> Duration {
        self.0.get(self.0.len() * percent / 100).or(self.0.last()).copied().unwrap_or_default()
    }
}

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>10}   {:>10}   {:>10}", shown(self.at(50)), shown(self.at(10)), shown(self.at(90)))
    }
}

/// Three digits and a unit.
pub(crate) fn shown(time: Duration) -> String {
    let nanos = time.as_nanos();
    match nanos {
        0..1_000 => format!("{nanos} ns"),
        1_000..100_000 => format!("{:.2} µs", nanos as f64 / 1e3),
        100_000..1_000_000 => format!("{:.0} µs", nanos as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} ms", nanos as f64 / 1e6),
        _ => format!("{:.2} s", nanos as f64 / 1e9),
    }
}

/// Takes each sample of several pieces of work in turn, so that what disturbs the machine disturbs all of them. A sample
/// is the mean over `each` runs.
pub(crate) fn in_turn<const N: usize>(samples: usize, each: u32, mut works: [&mut dyn FnMut(); N]) -> [Times; N] {
    let mut times: [Vec<Duration>; N] = std::array::from_fn(|_| Vec::with_capacity(samples));
    let warm_up = samples / 10;
    for sample in 0..samples + warm_up {
        for (work, times) in works.iter_mut().zip(&mut times) {
            let start = Instant::now();
            for _ in 0..each {
                work();
            }
            if sample >= warm_up {
                times.push(start.elapsed() / each);
            }
        }
    }
    times.map(Times::of)
}
