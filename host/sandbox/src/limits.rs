//! Bounds of this crate, each with the reason for it.

use std::time::Duration;

/// Between two ticks of the epoch, the unit in which spinning guests are interrupted. Far below any sensible time limit
/// (LIM-4), and the longest that one spinning guest holds a component thread before another call gets it.
pub const EPOCH_TICK: Duration = Duration::from_millis(2);

/// While nothing runs the ticker looks this often whether its engine is gone.
pub const EPOCH_IDLE: Duration = Duration::from_secs(1);

/// Component threads at most. Guests that spin share them in slices of [`EPOCH_TICK`]; more threads than this would only
/// take cores from the host.
pub const COMPONENT_THREADS_MAX: usize = 64;

/// Component threads at least: a file operation or a timer of one call goes on while another call spins.
pub const COMPONENT_THREADS_MIN: usize = 2;

/// Threads for blocking file operations and compilation. A file operation that hangs (a dead network file system) holds
/// one of them for as long as it hangs.
pub const BLOCKING_THREADS_MAX: usize = 64;

/// Components that are compiled at once. One compilation already uses every core.
pub const COMPILATIONS_AT_ONCE: usize = 1;

/// How long a component waits until others are compiled. The largest take seconds, so that a harness of twenty is through
/// long before.
pub const COMPILE_WAIT_MAX: Duration = Duration::from_secs(600);

/// How long compiling one component may take. An 18 MB component takes some ten seconds, ten times that where neither
/// machine nor build is a quick one. A compilation that takes longer is given up and cannot be stopped; it goes on beside
/// the others, which wait for it no more. [`FUNCTIONS_MAX`] and its like keep it from going on for ever.
pub const COMPILE_TIME_MAX: Duration = Duration::from_secs(300);

/// Functions of one component at most. A Python component has some 30,000.
pub const FUNCTIONS_MAX: u64 = 250_000;

/// Code of one component, in bytes. Of a Python component's 18 MB two thirds are code.
pub const CODE_BYTES_MAX: u64 = 64 << 20;

/// Code of one function, in bytes. The time to compile a function grows faster than its length; the largest that people
/// wrote, interpreters' loops, have some 200 KB.
pub const FUNCTION_CODE_BYTES_MAX: u64 = 1 << 20;

/// Instances of modules and components that one component makes inside itself. Tools that join components make dozens;
/// nesting can make a billion of a kilobyte, and the compiler looks at each.
pub const INSTANCES_MAX: u64 = 10_000;

/// Calls that hold an instance at once, over all capabilities of a sandbox; the pool has room for exactly these, so that
/// it cannot run out under load (LIM-8). Others wait.
pub const CALLS_AT_ONCE_MAX: usize = 128;

/// How long a call waits for its capability's and the sandbox's permit. It is not part of the call's own time, and a
/// queue that has not moved for this long will not move.
pub const PERMIT_WAIT_MAX: Duration = Duration::from_secs(600);

/// Room of the pool for one component: core instances. A Python component has about 30, a JavaScript one 5.
pub const CORE_INSTANCES_PER_COMPONENT: u32 = 64;

/// Room of the pool for one component: memories. Components of one language have one, adapters may add one each.
pub const MEMORIES_PER_COMPONENT: u32 = 8;

/// Room of the pool for one component: tables. Python's dynamic linking uses one for each library in the worst case.
pub const TABLES_PER_COMPONENT: u32 = 32;

/// Room of the pool for one table, in elements. JavaScript's engine needs some 20,000, Python's interpreter 40,000.
pub const TABLE_ELEMENTS_MAX: usize = 100_000;

/// Room of the pool for one memory, in bytes: all that 32 bits address. The call's own limit is far below it.
pub const MEMORY_BYTES_MAX: usize = 4 << 30;

/// Room of the pool for the engine's own data of one core instance, in bytes. It grows with the number of imports,
/// functions and globals; Python's is near 1 MiB.
pub const INSTANCE_BYTES_MAX: usize = 4 << 20;

/// Stack of a guest, in bytes. Deeper recursion is a trap.
pub const GUEST_STACK_BYTES: usize = 1 << 20;

/// Stack of the fibre that a guest runs on, in bytes: the guest's own and room for host functions.
pub const FIBER_STACK_BYTES: usize = 2 << 20;

/// What one table element counts for a call's memory limit, in bytes.
pub const TABLE_ELEMENT_BYTES: u64 = 8;

/// Handles (files, streams, pollables …) that one call may hold at once. Each is some memory of the host's that no limit of
/// the call's counts.
pub const HANDLES_MAX: usize = 1_000;

/// Files and folders that one call may have open at once. Programs that walk a tree have one for each level.
pub const DESCRIPTORS_PER_CALL_MAX: usize = 128;

/// Files and folders that all calls of a sandbox may have open at once: half of the 1,024 descriptors that a process has
/// where nobody raised that, so that journal and connections go on.
pub const DESCRIPTORS_MAX: usize = 512;

/// Folders that one call may list at once through WASI 0.3. Each listing that is not read to its end holds one of
/// [`BLOCKING_THREADS_MAX`] threads for as long as the guest leaves it open.
pub const LISTINGS_PER_CALL_MAX: usize = 16;

/// The same of all calls of a sandbox; the other threads are for opening, reading and compiling.
pub const LISTINGS_MAX: usize = 48;

/// Headers of one HTTP request or response that a component makes, in bytes: what servers commonly take.
pub const HTTP_FIELDS_BYTES_MAX: usize = 8 << 10;

/// Symbolic links that are followed on the way to one path, as many as Linux follows.
pub const LINKS_MAX: usize = 40;

/// Largest component, in bytes. Python's are 18 MB.
pub const COMPONENT_BYTES_MAX: usize = 128 << 20;

/// Imports and exports of a component at most; a report about more helps nobody.
pub const COMPONENT_NAMES_MAX: usize = 10_000;

/// Largest entry of the compile cache that is read, in bytes. The native code of an 18 MB component is 36 MB.
pub const CACHE_ENTRY_BYTES_MAX: u64 = 1 << 30;

/// Time of `config-schema`, `definitions` and `describe` (design section 6).
pub const PURE_TIME: Duration = Duration::from_secs(1);

/// Memory of `config-schema`, `definitions` and `describe` (design section 6).
pub const PURE_MEMORY_BYTES: u64 = 64 << 20;

/// Bytes that `config-schema`, `definitions` and `describe` may hand over: it is untrusted text that goes into every
/// request.
pub const PURE_ANSWER_BYTES_MAX: usize = 4 << 20;

/// Tools of one component at most. Providers take 128 in a request.
pub const DEFINITIONS_MAX: usize = 128;

/// Longest name of a tool (Z11, and what providers take).
pub const TOOL_NAME_BYTES_MAX: usize = 64;

/// Longest title or category, in bytes: one line for people.
pub const TITLE_BYTES_MAX: usize = 256;

/// Longest description of a tool, in bytes: the model reads it with every request.
pub const DESCRIPTION_BYTES_MAX: usize = 16 << 10;

/// Longest grammar, in bytes.
pub const GRAMMAR_BYTES_MAX: usize = 64 << 10;

/// Longest text for the instructions that a component may give, in bytes.
pub const INSTRUCTIONS_BYTES_MAX: usize = 32 << 10;

/// Bytes that one host call or result may hand over, all contents together. Results above it fail the call (design
/// section 8).
pub const RESULT_BYTES_MAX: usize = 16 << 20;

/// Contents of one result at most.
pub const CONTENTS_MAX: usize = 1024;

/// Longest media type of a blob, in bytes: the registered ones have fewer (RFC 6838 allows 127 for each half, and nobody
/// uses them up). One that is longer is taken as unknown.
pub const MEDIA_TYPE_BYTES_MAX: usize = 128;

/// Longest name of a blob, in bytes, as file systems have it; the rest is cut.
pub const BLOB_NAME_BYTES_MAX: usize = 255;

/// Standard output, and standard error, that is kept of one call, in bytes each; the first bytes are kept.
pub const CAPTURE_BYTES_MAX: usize = 64 << 10;

/// Between two progress reports that an observer sees. Others in between are dropped.
pub const PROGRESS_INTERVAL: Duration = Duration::from_millis(50);

/// Longest message of a progress report, in bytes; the rest is cut.
pub const PROGRESS_BYTES_MAX: usize = 1 << 10;

/// Most bytes that one `blobs.read` gives.
pub const BLOB_READ_BYTES_MAX: usize = 1 << 20;

/// Functions that a trap's message names.
pub const TRAP_FRAMES_MAX: usize = 8;

/// Longest name of a function that a trap's message shows, in bytes; the rest is cut.
pub const FUNCTION_NAME_BYTES_MAX: usize = 256;

/// Longest mangled name of a Rust function that is made readable, in bytes: longer ones are shown as they are.
pub const FUNCTION_MANGLED_BYTES_MAX: usize = 1 << 10;

/// Longest message of a trap, in bytes: names in it come from the component.
pub const TRAP_BYTES_MAX: usize = 2 << 10;
