//! The file system as SQLite calls it. Everything is handed on to the system's own one; what changes the disk is put down in
//! [`Disk`] first, which says whether it fails.
//!
//! A sync is put down and not handed on: what counts as durable here is what [`Disk`] keeps, and a real sync would only take
//! time. All unsafe code of this package is in this module. It rests on SQLite's contract: pointers that it hands over are
//! valid during the call, a file's memory is ours from `open` to `close`, and it is used by one thread at a time.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rusqlite::ffi::{
    self, SQLITE_CANTOPEN, SQLITE_FULL, SQLITE_IOERR, SQLITE_IOERR_DELETE, SQLITE_IOERR_FSYNC, SQLITE_IOERR_LOCK,
    SQLITE_IOERR_READ, SQLITE_IOERR_SHMLOCK, SQLITE_IOERR_TRUNCATE, SQLITE_IOERR_WRITE, SQLITE_OK, sqlite3_file,
    sqlite3_int64, sqlite3_io_methods, sqlite3_vfs,
};

use crate::disk::{Disk, Done, Fault, Kind, What};

/// One registered file system. It is never freed: SQLite keeps pointers into it.
pub(crate) struct Shim {
    vfs: sqlite3_vfs,
    below: *mut sqlite3_vfs,
    name: CString,
    disk: Mutex<Disk>,
}

// SAFETY: `vfs` belongs to SQLite, which guards it by a lock of its own; `below` is a file system that may be used by any
// thread; the rest may be shared anyway.
unsafe impl Sync for Shim {}
// SAFETY: as above; nothing in it belongs to a thread.
unsafe impl Send for Shim {}

/// A file: what SQLite sees, followed by the memory of the system's own file.
#[repr(C, align(8))]
struct Handle {
    seen: sqlite3_file,
    shim: *const Shim,
    /// The file's number on the disk; `None` for a temporary file, which no power cut needs to leave.
    file: Option<usize>,
    /// Its name in the folder.
    name: Option<Box<str>>,
}

static METHODS: sqlite3_io_methods = sqlite3_io_methods {
    // The second version: with shared memory, without mapped files, which would be written behind our back.
    iVersion: 2,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(device_characteristics),
    xShmMap: Some(shm_map),
    xShmLock: Some(shm_lock),
    xShmBarrier: Some(shm_barrier),
    xShmUnmap: Some(shm_unmap),
    xFetch: None,
    xUnfetch: None,
};

/// Makes a file system and tells SQLite of it.
pub(crate) fn register() -> &'static Shim {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let name = format!("wharf-fault-{}", NEXT.fetch_add(1, Ordering::Relaxed));
    let name = CString::new(name).expect("it has no zero byte");
    // SAFETY: a null name asks for the default file system; it lives as long as the process.
    let below = unsafe { ffi::sqlite3_vfs_find(std::ptr::null()) };
    assert!(!below.is_null(), "SQLite has no file system");
    // SAFETY: it is not null, and only its fixed sizes are read.
    let (size, path_max) = unsafe { ((*below).szOsFile, (*below).mxPathname) };
    let shim = Box::leak(Box::new(Shim {
        vfs: sqlite3_vfs {
            // The second version: with the time in whole numbers, without replaceable system calls.
            iVersion: 2,
            szOsFile: c_int::try_from(size_of::<Handle>()).expect("it is small") + size,
            mxPathname: path_max,
            pNext: std::ptr::null_mut(),
            zName: name.as_ptr(),
            pAppData: std::ptr::null_mut(),
            xOpen: Some(open),
            xDelete: Some(delete),
            xAccess: Some(access),
            xFullPathname: Some(full_pathname),
            // Nothing is loaded into a test's connection.
            xDlOpen: None,
            xDlError: None,
            xDlSym: None,
            xDlClose: None,
            xRandomness: Some(randomness),
            xSleep: Some(sleep),
            xCurrentTime: Some(current_time),
            xGetLastError: Some(last_error),
            xCurrentTimeInt64: Some(current_time_int64),
            xSetSystemCall: None,
            xGetSystemCall: None,
            xNextSystemCall: None,
        },
        below,
        name,
        disk: Mutex::default(),
    }));
    let whole: *mut Shim = shim;
    // SAFETY: `whole` comes from a leaked box, so it and what it points to stay valid; nobody else has it yet.
    let registered = unsafe {
        (*whole).vfs.pAppData = whole.cast();
        ffi::sqlite3_vfs_register(&raw mut (*whole).vfs, 0)
    };
    assert_eq!(registered, SQLITE_OK, "SQLite refuses the file system");
    // SAFETY: as above. From here on only SQLite writes to it, and only to `vfs`, which is not read through this reference.
    unsafe { &*whole }
}

impl Shim {
    pub(crate) fn name(&self) -> &str {
        self.name.to_str().expect("it is ASCII")
    }

    pub(crate) fn disk(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes it from SQLite's list and forgets the disk.
    pub(crate) fn unregister(&self) {
        // SAFETY: it was registered, and SQLite only takes it out of its list.
        unsafe { ffi::sqlite3_vfs_unregister((&raw const self.vfs).cast_mut()) };
        *self.disk() = Disk::default();
    }
}

impl Fault {
    fn code(self, kind: Kind) -> c_int {
        match (kind, self) {
            (Kind::Write, Self::Full) => SQLITE_FULL,
            (Kind::Write, Self::Error | Self::Short | Self::Off) => SQLITE_IOERR_WRITE,
            (Kind::Truncate, _) => SQLITE_IOERR_TRUNCATE,
            (Kind::Sync, _) => SQLITE_IOERR_FSYNC,
            (Kind::Delete, _) => SQLITE_IOERR_DELETE,
        }
    }
}

/// The handle and its file system.
///
/// # Safety
///
/// `file` is one that [`open`] has made and that is not closed.
unsafe fn parts<'a>(file: *mut sqlite3_file) -> (&'a Handle, &'a Shim) {
    // SAFETY: a file of ours begins with a `Handle`, whose `shim` is never freed.
    unsafe {
        let handle = &*file.cast::<Handle>();
        (handle, &*handle.shim)
    }
}

/// The system's own file behind one of ours.
///
/// # Safety
///
/// `file` points to as much memory as [`register`] has asked for.
unsafe fn behind(file: *mut sqlite3_file) -> *mut sqlite3_file {
    // SAFETY: the memory behind the handle is part of the same block, and aligned as the handle's size is.
    unsafe { file.cast::<Handle>().add(1).cast() }
}

/// Calls the system's own file.
macro_rules! hand_on {
    ($file:expr, $method:ident $(, $argument:expr)*) => {{
        // SAFETY: SQLite calls with an open file of ours, and the one behind it was opened with it.
        unsafe {
            let file = behind($file);
            match (*(*file).pMethods).$method {
                Some(method) => method(file $(, $argument)*),
                None => SQLITE_IOERR,
            }
        }
    }};
}

/// Calls the system's own file system.
macro_rules! hand_down {
    ($vfs:expr, $method:ident $(, $argument:expr)*) => {{
        // SAFETY: SQLite calls with the file system that it was given, whose `pAppData` is a `Shim`; it is never freed.
        unsafe {
            let below = (*(*$vfs).pAppData.cast::<Shim>()).below;
            match (*below).$method {
                Some(method) => method(below $(, $argument)*),
                None => SQLITE_IOERR,
            }
        }
    }};
}

unsafe extern "C" fn open(
    vfs: *mut sqlite3_vfs,
    name: ffi::sqlite3_filename,
    file: *mut sqlite3_file,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    // SAFETY: `file` has the size that we asked for and is ours to fill; `vfs` is of a `Shim`, which is never freed.
    let shim = unsafe {
        (*file).pMethods = std::ptr::null(); // not to be closed if it does not open
        &*(*vfs).pAppData.cast::<Shim>()
    };
    let mut disk = shim.disk();
    if disk.is_off() {
        return SQLITE_CANTOPEN;
    }
    // SAFETY: as above.
    let below = unsafe { behind(file) };
    let opened = hand_down!(vfs, xOpen, name, below, flags, out);
    if opened != SQLITE_OK {
        return opened;
    }
    // SAFETY: SQLite gives a name that ends in a zero byte, or none.
    let name = (!name.is_null()).then(|| unsafe { file_name(name) });
    // SAFETY: it was opened.
    let id = name.as_deref().map(|name| disk.open(name, || unsafe { content(below) }));
    let seen = sqlite3_file { pMethods: &raw const METHODS };
    // SAFETY: the memory is ours and holds nothing that would have to be dropped.
    unsafe { file.cast::<Handle>().write(Handle { seen, shim, file: id, name }) };
    SQLITE_OK
}

/// # Safety
///
/// `path` points to a text that ends in a zero byte.
unsafe fn file_name(path: *const c_char) -> Box<str> {
    // SAFETY: as asked of the caller.
    let path = unsafe { CStr::from_ptr(path) }.to_string_lossy().into_owned();
    let name = Path::new(&path).file_name().map_or(path.clone(), |name| name.to_string_lossy().into_owned());
    name.into_boxed_str()
}

/// All that is in a file. Read through SQLite's own file: closing another handle of it would drop SQLite's locks.
///
/// # Safety
///
/// `file` is an open file of the system's own file system.
unsafe fn content(file: *mut sqlite3_file) -> Vec<u8> {
    let mut size = 0;
    // SAFETY: as asked of the caller; the buffer has the length that is named.
    unsafe {
        let methods = &*(*file).pMethods;
        let (Some(file_size), Some(read)) = (methods.xFileSize, methods.xRead) else { return Vec::new() };
        assert_eq!(file_size(file, &raw mut size), SQLITE_OK, "the size of a file that was just opened");
        let mut bytes = vec![0; usize::try_from(size).expect("a test's file fits into memory")];
        let length = c_int::try_from(bytes.len()).expect("a test's file fits into a read");
        assert_eq!(read(file, bytes.as_mut_ptr().cast(), length, 0), SQLITE_OK, "what a file holds");
        bytes
    }
}

unsafe extern "C" fn close(file: *mut sqlite3_file) -> c_int {
    let closed = hand_on!(file, xClose);
    // SAFETY: SQLite does not use the file after this.
    unsafe { std::ptr::drop_in_place(file.cast::<Handle>()) };
    closed
}

unsafe extern "C" fn read(file: *mut sqlite3_file, into: *mut c_void, length: c_int, offset: sqlite3_int64) -> c_int {
    // SAFETY: SQLite calls with an open file.
    let (_, shim) = unsafe { parts(file) };
    if shim.disk().is_off() {
        return SQLITE_IOERR_READ;
    }
    hand_on!(file, xRead, into, length, offset)
}

unsafe extern "C" fn write(
    file: *mut sqlite3_file,
    from: *const c_void,
    length: c_int,
    offset: sqlite3_int64,
) -> c_int {
    // SAFETY: SQLite calls with an open file.
    let (handle, shim) = unsafe { parts(file) };
    let (Some(id), Some(name)) = (handle.file, &handle.name) else {
        return hand_on!(file, xWrite, from, length, offset);
    };
    // SAFETY: SQLite hands over as many bytes as it says.
    let bytes = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), usize::try_from(length).unwrap_or(0)) };
    let put_down = |disk: &mut Disk, bytes: &[u8]| {
        disk.change(id, What::Write { offset: offset.cast_unsigned(), bytes: bytes.to_vec() });
    };
    let mut disk = shim.disk();
    let failed = match disk.ask(Kind::Write, name) {
        Ok(()) => {
            let written = hand_on!(file, xWrite, from, length, offset);
            if written == SQLITE_OK {
                put_down(&mut disk, bytes);
            }
            return written;
        }
        Err(failed) => failed,
    };
    match failed.done {
        Done::Nothing => {}
        Done::Half => {
            let written = hand_on!(file, xWrite, from, length / 2, offset);
            if written == SQLITE_OK {
                put_down(&mut disk, &bytes[..bytes.len() / 2]);
            }
        }
        Done::Perhaps => put_down(&mut disk, bytes),
    }
    failed.fault.code(Kind::Write)
}

unsafe extern "C" fn truncate(file: *mut sqlite3_file, size: sqlite3_int64) -> c_int {
    // SAFETY: SQLite calls with an open file.
    let (handle, shim) = unsafe { parts(file) };
    let (Some(id), Some(name)) = (handle.file, &handle.name) else { return hand_on!(file, xTruncate, size) };
    let mut disk = shim.disk();
    if let Err(failed) = disk.ask(Kind::Truncate, name) {
        if failed.done == Done::Perhaps {
            disk.change(id, What::Truncate { size: size.cast_unsigned() });
        }
        return failed.fault.code(Kind::Truncate);
    }
    let done = hand_on!(file, xTruncate, size);
    if done == SQLITE_OK {
        disk.change(id, What::Truncate { size: size.cast_unsigned() });
    }
    done
}

unsafe extern "C" fn sync(file: *mut sqlite3_file, flags: c_int) -> c_int {
    // SAFETY: SQLite calls with an open file.
    let (handle, shim) = unsafe { parts(file) };
    let (Some(id), Some(name)) = (handle.file, &handle.name) else { return hand_on!(file, xSync, flags) };
    let mut disk = shim.disk();
    match disk.ask(Kind::Sync, name) {
        Ok(()) => {
            disk.synced(id);
            SQLITE_OK
        }
        Err(failed) => {
            disk.sync_failed(id);
            failed.fault.code(Kind::Sync)
        }
    }
}

unsafe extern "C" fn delete(vfs: *mut sqlite3_vfs, path: *const c_char, sync_folder: c_int) -> c_int {
    // SAFETY: `vfs` is of a `Shim`, which is never freed; SQLite gives a name that ends in a zero byte.
    let (shim, name) = unsafe { (&*(*vfs).pAppData.cast::<Shim>(), file_name(path)) };
    let mut disk = shim.disk();
    if let Err(failed) = disk.ask(Kind::Delete, &name) {
        if failed.done == Done::Perhaps {
            disk.deleted(&name, false);
        }
        return failed.fault.code(Kind::Delete);
    }
    let done = hand_down!(vfs, xDelete, path, 0);
    if done == SQLITE_OK {
        disk.deleted(&name, sync_folder != 0);
    }
    done
}

unsafe extern "C" fn file_size(file: *mut sqlite3_file, size: *mut sqlite3_int64) -> c_int {
    hand_on!(file, xFileSize, size)
}

unsafe extern "C" fn lock(file: *mut sqlite3_file, level: c_int) -> c_int {
    // SAFETY: SQLite calls with an open file.
    let (_, shim) = unsafe { parts(file) };
    if shim.disk().is_off() {
        return SQLITE_IOERR_LOCK;
    }
    hand_on!(file, xLock, level)
}

unsafe extern "C" fn unlock(file: *mut sqlite3_file, level: c_int) -> c_int {
    hand_on!(file, xUnlock, level)
}

unsafe extern "C" fn check_reserved_lock(file: *mut sqlite3_file, out: *mut c_int) -> c_int {
    hand_on!(file, xCheckReservedLock, out)
}

unsafe extern "C" fn file_control(file: *mut sqlite3_file, what: c_int, argument: *mut c_void) -> c_int {
    hand_on!(file, xFileControl, what, argument)
}

unsafe extern "C" fn sector_size(file: *mut sqlite3_file) -> c_int {
    hand_on!(file, xSectorSize)
}

unsafe extern "C" fn device_characteristics(file: *mut sqlite3_file) -> c_int {
    hand_on!(file, xDeviceCharacteristics)
}

unsafe extern "C" fn shm_map(
    file: *mut sqlite3_file,
    region: c_int,
    size: c_int,
    extend: c_int,
    out: *mut *mut c_void,
) -> c_int {
    hand_on!(file, xShmMap, region, size, extend, out)
}

unsafe extern "C" fn shm_lock(file: *mut sqlite3_file, offset: c_int, count: c_int, flags: c_int) -> c_int {
    // SAFETY: SQLite calls with an open file.
    let (_, shim) = unsafe { parts(file) };
    if flags & ffi::SQLITE_SHM_LOCK != 0 && shim.disk().is_off() {
        return SQLITE_IOERR_SHMLOCK;
    }
    hand_on!(file, xShmLock, offset, count, flags)
}

unsafe extern "C" fn shm_barrier(file: *mut sqlite3_file) {
    // SAFETY: as in `hand_on`; this method answers nothing.
    unsafe {
        let file = behind(file);
        if let Some(barrier) = (*(*file).pMethods).xShmBarrier {
            barrier(file);
        }
    }
}

unsafe extern "C" fn shm_unmap(file: *mut sqlite3_file, delete: c_int) -> c_int {
    hand_on!(file, xShmUnmap, delete)
}

unsafe extern "C" fn access(vfs: *mut sqlite3_vfs, path: *const c_char, flags: c_int, out: *mut c_int) -> c_int {
    hand_down!(vfs, xAccess, path, flags, out)
}

unsafe extern "C" fn full_pathname(
    vfs: *mut sqlite3_vfs,
    path: *const c_char,
    length: c_int,
    out: *mut c_char,
) -> c_int {
    hand_down!(vfs, xFullPathname, path, length, out)
}

unsafe extern "C" fn randomness(vfs: *mut sqlite3_vfs, length: c_int, out: *mut c_char) -> c_int {
    hand_down!(vfs, xRandomness, length, out)
}

unsafe extern "C" fn sleep(vfs: *mut sqlite3_vfs, microseconds: c_int) -> c_int {
    hand_down!(vfs, xSleep, microseconds)
}

unsafe extern "C" fn current_time(vfs: *mut sqlite3_vfs, out: *mut f64) -> c_int {
    hand_down!(vfs, xCurrentTime, out)
}

unsafe extern "C" fn last_error(vfs: *mut sqlite3_vfs, length: c_int, out: *mut c_char) -> c_int {
    hand_down!(vfs, xGetLastError, length, out)
}

unsafe extern "C" fn current_time_int64(vfs: *mut sqlite3_vfs, out: *mut sqlite3_int64) -> c_int {
    hand_down!(vfs, xCurrentTimeInt64, out)
}
