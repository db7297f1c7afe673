//! What one store holds: the capabilities that one call was given, and its meters. Made fresh for each call and dropped
//! with it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use wasmtime::component::ResourceTable;
use wasmtime::{ResourceLimiter, Result};
use wasmtime_wasi::{Deterministic, HostMonotonicClock, HostWallClock, WasiCtx, WasiCtxView, WasiView};
use wasmtime_wasi_http::{
    Error as HttpError, RequestOptions, WasiBody, WasiHttpCtx, WasiHttpCtxView, WasiHttpHooks, WasiHttpView,
};

use crate::call::{Attachment, Observer, OutputKind, Progress};
use crate::capture::Capture;
use crate::descriptors::{Descriptors, Room};
use crate::limits;
use crate::roots::OpenRoots;

/// The data of a store.
pub(crate) struct StoreState {
    wasi: WasiCtx,
    http: WasiHttpCtx,
    hooks: DenyRequests,
    table: ResourceTable,
    pub(crate) meter: Meter,
    pub(crate) deadline: Instant,
    roots: Arc<OpenRoots>,
    /// This call's count of open files, and that of all calls.
    descriptors: [Arc<Descriptors>; 2],
    /// The same of folders that are being listed.
    listings: [Arc<Descriptors>; 2],
    capability: Arc<str>,
    attachments: Vec<Attachment>,
    observer: Arc<dyn Observer>,
    last_progress: Option<Instant>,
}

/// What a store is made with.
pub(crate) struct StateParts<'a> {
    pub(crate) capability: Arc<str>,
    pub(crate) roots: Arc<OpenRoots>,
    /// The count of all calls.
    pub(crate) descriptors: Arc<Descriptors>,
    /// The count of all calls' listings.
    pub(crate) listings: Arc<Descriptors>,
    pub(crate) env: &'a [(String, String)],
    pub(crate) attachments: Vec<Attachment>,
    pub(crate) memory_bytes: u64,
    pub(crate) deadline: Instant,
    pub(crate) observer: Arc<dyn Observer>,
    pub(crate) stdout: Capture,
    pub(crate) stderr: Capture,
    /// Clocks that stand still and randomness that repeats, for the pure functions.
    pub(crate) pure: bool,
}

impl StoreState {
    pub(crate) fn new(parts: StateParts<'_>) -> Self {
        let mut wasi = WasiCtx::builder();
        // Closed standard input, no arguments and no preopened folders are the builder's defaults; folders come from
        // `roots` through our own preopens.
        wasi.stdout(parts.stdout).stderr(parts.stderr).envs(parts.env);
        wasi.allow_tcp(false).allow_udp(false).allow_ip_name_lookup(false);
        if parts.pure {
            wasi.wall_clock(StandingClock).monotonic_clock(StandingClock);
            wasi.secure_random(repeating()).insecure_random(repeating()).insecure_random_seed(0);
        }
        let mut table = ResourceTable::new();
        table.set_max_capacity(limits::HANDLES_MAX);
        let mut http = WasiHttpCtx::new();
        http.set_field_size_limit(limits::HTTP_FIELDS_BYTES_MAX);
        Self {
            wasi: wasi.build(),
            http,
            hooks: DenyRequests,
            table,
            meter: Meter::new(parts.memory_bytes),
            deadline: parts.deadline,
            roots: parts.roots,
            descriptors: [Descriptors::new(limits::DESCRIPTORS_PER_CALL_MAX), parts.descriptors],
            listings: [Descriptors::new(limits::LISTINGS_PER_CALL_MAX), parts.listings],
            capability: parts.capability,
            attachments: parts.attachments,
            observer: parts.observer,
            last_progress: None,
        }
    }

    pub(crate) fn roots(&self) -> &Arc<OpenRoots> {
        &self.roots
    }

    /// Room for one more open file, in this call's count and in that of all calls.
    pub(crate) fn room_for_file(&self) -> Option<[Room; 2]> {
        let [own, all] = &self.descriptors;
        Some([own.room()?, all.room()?])
    }

    /// Room for one more folder to be listed.
    pub(crate) fn room_for_listing(&self) -> Option<[Room; 2]> {
        let [own, all] = &self.listings;
        Some([own.room()?, all.room()?])
    }

    pub(crate) fn table(&mut self) -> &mut ResourceTable {
        &mut self.table
    }

    pub(crate) fn capability(&self) -> Arc<str> {
        self.capability.clone()
    }

    pub(crate) fn attachments(&self) -> &[Attachment] {
        &self.attachments
    }

    /// Hands a report on, unless the last one was just now.
    pub(crate) fn report_progress(&mut self, mut message: String, done: Option<u64>, total: Option<u64>) {
        let now = Instant::now();
        if self.last_progress.is_some_and(|last| now.duration_since(last) < limits::PROGRESS_INTERVAL) {
            return;
        }
        self.last_progress = Some(now);
        message.truncate(message.floor_char_boundary(limits::PROGRESS_BYTES_MAX));
        self.observer.progress(Progress { message, done, total });
    }
}

/// Both output streams of one call.
pub(crate) fn captures(observer: &Arc<dyn Observer>) -> (Capture, Capture) {
    (Capture::new(OutputKind::Stdout, observer.clone()), Capture::new(OutputKind::Stderr, observer.clone()))
}

impl WasiView for StoreState {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}

impl WasiHttpView for StoreState {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        WasiHttpCtxView { hooks: &mut self.hooks, table: &mut self.table, ctx: &mut self.http }
    }
}

/// The one function through which a component's HTTP requests would leave. No grant opens it yet.
struct DenyRequests;

type Sent = Box<
    dyn Future<
            Output = wasmtime_wasi_http::Result<(
                http::Response<WasiBody>,
                Box<dyn Future<Output = Result<(), HttpError>> + Send>,
            )>,
        > + Send,
>;

impl WasiHttpHooks for DenyRequests {
    fn send_request(
        &mut self,
        _request: http::Request<WasiBody>,
        _options: Option<RequestOptions>,
        _body: Box<dyn Future<Output = Result<(), HttpError>> + Send>,
    ) -> Sent {
        Box::new(async { Err(HttpError::HttpRequestDenied) })
    }
}

/// Sums the memory of a store: all linear memories and tables of all its instances together.
pub(crate) struct Meter {
    limit: u64,
    used: u64,
    last: u64,
    pub(crate) peak: u64,
    /// A growth was refused.
    pub(crate) exceeded: bool,
}

impl Meter {
    fn new(limit: u64) -> Self {
        Self { limit, used: 0, last: 0, peak: 0, exceeded: false }
    }

    fn grow(&mut self, current: u64, desired: u64) -> bool {
        let more = desired.saturating_sub(current);
        let used = self.used.saturating_add(more);
        if used > self.limit {
            self.exceeded = true;
            return false;
        }
        self.used = used;
        self.last = more;
        self.peak = self.peak.max(used);
        true
    }

    /// The engine could not do what was just allowed.
    fn give_back(&mut self) {
        self.used = self.used.saturating_sub(std::mem::take(&mut self.last));
    }
}

impl ResourceLimiter for Meter {
    fn memory_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> Result<bool> {
        // Past its own declared maximum a memory does not grow; that is not our limit.
        Ok(maximum.is_none_or(|maximum| desired <= maximum) && self.grow(current as u64, desired as u64))
    }

    fn memory_grow_failed(&mut self, _error: wasmtime::Error) -> Result<()> {
        self.give_back();
        Ok(())
    }

    fn table_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> Result<bool> {
        let bytes = |elements: usize| (elements as u64).saturating_mul(limits::TABLE_ELEMENT_BYTES);
        Ok(maximum.is_none_or(|maximum| desired <= maximum) && self.grow(bytes(current), bytes(desired)))
    }

    fn table_grow_failed(&mut self, _error: wasmtime::Error) -> Result<()> {
        self.give_back();
        Ok(())
    }
}

/// 1 January 2025, for ever.
struct StandingClock;

impl HostWallClock for StandingClock {
    fn resolution(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn now(&self) -> Duration {
        Duration::from_secs(1_735_689_600)
    }
}

impl HostMonotonicClock for StandingClock {
    fn resolution(&self) -> u64 {
        1
    }

    fn now(&self) -> u64 {
        0
    }
}

fn repeating() -> Deterministic {
    Deterministic::new((0..=255).collect())
}
