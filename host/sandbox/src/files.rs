//! `wasi:filesystem` where the engine's own implementation is not strict enough: the folders are the ones that were opened
//! at load, only regular files and folders can be opened (a FIFO would hold a thread for as long as nobody writes to it),
//! nothing of the kernel's own file systems can (below a granted `/` they show the host's memory and environment), and masks
//! answer as if they were not there. What is open or being listed is counted, and past the bound the answer is "quota". All
//! other functions of the interface stay the engine's own: they work on handles that came from here.

use std::io;
use std::sync::Arc;

use cap_fs_ext::{FollowSymlinks, OpenOptionsFollowExt, OpenOptionsMaybeDirExt};
use cap_std::fs::{Dir as CapDir, OpenOptions, OpenOptionsExt};
use rustix::fs::OFlags;
use rustix::io::Errno;
use wasmtime::component::{Access, Accessor, FutureReader, Linker, Resource, StreamReader};
use wasmtime::{AsContextMut, StoreContextMut};
use wasmtime_wasi::filesystem::{Descriptor, Dir, File, WasiFilesystem, WasiFilesystemView};
use wasmtime_wasi::p2::bindings::filesystem::types as p2;
use wasmtime_wasi::p3::bindings::filesystem::types as p3;
use wasmtime_wasi::{FsPerms, OpenMode};

use crate::roots::OpenRoots;
use crate::state::StoreState;

const P2: [&str; 2] = ["wasi:filesystem/types@0.2.12", "wasi:filesystem/preopens@0.2.12"];
const P3: [&str; 2] = ["wasi:filesystem/types@0.3.0", "wasi:filesystem/preopens@0.3.0"];

/// Replaces functions of both versions; `linker` already holds the engine's.
pub(crate) fn restrict(linker: &mut Linker<StoreState>) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    for preopens in [P2[1], P3[1]] {
        linker.instance(preopens)?.func_wrap("get-directories", |store, (): ()| get_directories(store))?;
    }
    restrict_p2(linker)?;
    restrict_p3(linker)?;
    linker.allow_shadowing(false);
    Ok(())
}

type Directories = Vec<(Resource<Descriptor>, String)>;

fn get_directories(mut store: StoreContextMut<'_, StoreState>) -> wasmtime::Result<(Directories,)> {
    let state = store.data_mut();
    let roots = state.roots().clone();
    let mut directories = Vec::new();
    for (dir, guest) in roots.preopens() {
        directories.push((state.table().push(Descriptor::Dir(dir))?, guest));
    }
    Ok((directories,))
}

/// What a guest asks for when it opens something, in the words of neither version.
#[derive(Clone, Copy, Default)]
struct Asked {
    follow: bool,
    create: bool,
    exclusive: bool,
    truncate: bool,
    directory: bool,
    read: bool,
    write: bool,
    sync: bool,
}

/// [`Asked`] in the flags of one version: both name them alike, as types of their own.
macro_rules! asked {
    ($version:ident, $path_flags:expr, $open_flags:expr, $flags:expr) => {
        Asked {
            follow: $path_flags.contains($version::PathFlags::SYMLINK_FOLLOW),
            create: $open_flags.contains($version::OpenFlags::CREATE),
            exclusive: $open_flags.contains($version::OpenFlags::EXCLUSIVE),
            truncate: $open_flags.contains($version::OpenFlags::TRUNCATE),
            directory: $open_flags.contains($version::OpenFlags::DIRECTORY),
            read: $flags.contains($version::DescriptorFlags::READ),
            write: $flags.contains($version::DescriptorFlags::WRITE),
            sync: $flags.intersects(
                $version::DescriptorFlags::FILE_INTEGRITY_SYNC
                    | $version::DescriptorFlags::DATA_INTEGRITY_SYNC
                    | $version::DescriptorFlags::REQUESTED_WRITE_SYNC,
            ),
        }
    };
}

/// Opens `path` in `dir`, and decides on the opened handle.
fn open(dir: &Dir, path: &str, asked: Asked, roots: &OpenRoots) -> io::Result<Descriptor> {
    if asked.sync {
        return Err(Errno::NOTSUP.into());
    }
    if asked.directory && (asked.create || asked.exclusive || asked.truncate) {
        return Err(Errno::INVAL.into());
    }
    let write = asked.write || asked.create || asked.truncate;
    // What is opened for neither is opened for reading, so that it can be looked at.
    let read = asked.read || !asked.write;
    if write && dir.perms == FsPerms::ReadOnly {
        return Err(Errno::PERM.into());
    }
    let mut options = OpenOptions::new();
    options.read(read).write(write).truncate(asked.truncate).maybe_dir(true);
    if asked.exclusive && asked.create {
        options.create_new(true);
    } else {
        options.create(asked.create);
    }
    options.follow(if asked.follow { FollowSymlinks::Yes } else { FollowSymlinks::No });
    // A FIFO opens at once, and is refused below; for files and folders it changes nothing.
    options.custom_flags(flag(OFlags::NONBLOCK | OFlags::NOCTTY));
    let file = within(dir)?.open_with(path, &options)?.into_std();
    let kind = file.metadata()?;
    check_opened(&file, roots)?;
    let mut mode = OpenMode::empty();
    mode.set(OpenMode::READ, read);
    mode.set(OpenMode::WRITE, write);
    if kind.is_dir() {
        Ok(Descriptor::Dir(Dir::new(file, dir.perms, mode, false)))
    } else if asked.directory {
        Err(Errno::NOTDIR.into())
    } else if kind.is_file() {
        Ok(Descriptor::File(File::new(file, dir.perms, mode, false)))
    } else {
        Err(Errno::PERM.into())
    }
}

/// Fails as if it were not there if `path` lies in a mask, and if it is the kernel's. Opens nothing but a handle that can
/// only be looked at.
fn look(dir: &Dir, path: &str, follow: bool, roots: &OpenRoots) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.read(true).maybe_dir(true);
    options.follow(if follow { FollowSymlinks::Yes } else { FollowSymlinks::No });
    options.custom_flags(look_flags());
    check_opened(&within(dir)?.open_with(path, &options)?.into_std(), roots)
}

/// Decides on the opened handle: what lies in a mask is not there, and what is the kernel's is refused.
fn check_opened(file: &std::fs::File, roots: &OpenRoots) -> io::Result<()> {
    if roots.hides(file) {
        Err(Errno::NOENT.into())
    } else if is_kernels(file)? {
        Err(Errno::PERM.into())
    } else {
        Ok(())
    }
}

/// Whether this lies on a file system that shows and changes the kernel's and the processes' own state.
#[cfg(target_os = "linux")]
pub(crate) fn is_kernels(file: &std::fs::File) -> io::Result<bool> {
    use rustix::fs::{FsWord, PROC_SUPER_MAGIC};
    // Numbers of the kernel's interface (linux/magic.h); procfs is the only one that has a name here.
    const DEBUGFS: FsWord = 0x6462_6720;
    const TRACEFS: FsWord = 0x7472_6163;
    const SYSFS: FsWord = 0x6265_6572;
    const CONFIGFS: FsWord = 0x6265_6570;
    const SECURITYFS: FsWord = 0x7363_6673;
    const CGROUP: FsWord = 0x0027_e0eb;
    const CGROUP2: FsWord = 0x6367_7270;
    const NSFS: FsWord = 0x6e73_6673;
    let kind = rustix::fs::fstatfs(file)?.f_type;
    let kernels = [PROC_SUPER_MAGIC, SYSFS, DEBUGFS, TRACEFS, CONFIGFS, SECURITYFS, CGROUP, CGROUP2, NSFS];
    Ok(kernels.contains(&kind))
}

/// Other systems show nothing of the kind as files.
#[cfg(not(target_os = "linux"))]
pub(crate) fn is_kernels(_file: &std::fs::File) -> io::Result<bool> {
    Ok(false)
}

#[cfg(target_os = "linux")]
fn look_flags() -> i32 {
    flag(OFlags::PATH)
}

/// Elsewhere nothing is ever hidden, and this is never asked.
#[cfg(not(target_os = "linux"))]
fn look_flags() -> i32 {
    flag(OFlags::NONBLOCK)
}

/// Flags as the system's open takes them; they fit, they are the system's own.
fn flag(flags: OFlags) -> i32 {
    i32::try_from(flags.bits()).unwrap_or_default()
}

fn within(dir: &Dir) -> io::Result<CapDir> {
    Ok(CapDir::from_std_file(dir.dir.try_clone()?))
}

/// The folder behind a handle; a file there is not a folder.
fn folder(state: &mut StoreState, fd: &Resource<Descriptor>) -> wasmtime::Result<Option<(Dir, Arc<OpenRoots>)>> {
    let roots = state.roots().clone();
    Ok(match state.table().get(fd)? {
        Descriptor::Dir(dir) => Some((dir.clone(), roots)),
        Descriptor::File(_) => None,
    })
}

/// Runs `look` for a link: what a link of the kernel's says is the host's own.
async fn looked_at_link(found: Option<(Dir, Arc<OpenRoots>)>, path: &str) -> io::Result<()> {
    let Some((dir, roots)) = found.filter(|(_, roots)| roots.hides_something() || cfg!(target_os = "linux")) else {
        return Ok(());
    };
    let path = path.to_owned();
    wasmtime_wasi::runtime::spawn_blocking(move || look(&dir, &path, false, &roots)).await
}

/// Runs `look` for one path if anything is hidden at all.
async fn looked(found: Option<(Dir, Arc<OpenRoots>)>, path: &str, follow: bool) -> io::Result<()> {
    let Some((dir, roots)) = found.filter(|(_, roots)| roots.hides_something()) else { return Ok(()) };
    let path = path.to_owned();
    wasmtime_wasi::runtime::spawn_blocking(move || look(&dir, &path, follow, &roots)).await
}

/// Runs `open` on a thread that may block.
async fn opened(found: Option<(Dir, Arc<OpenRoots>)>, path: String, asked: Asked) -> io::Result<Descriptor> {
    let Some((dir, roots)) = found else { return Err(Errno::NOTDIR.into()) };
    wasmtime_wasi::runtime::spawn_blocking(move || open(&dir, &path, asked, &roots)).await
}

type Answer<T, E> = wasmtime::Result<(Result<T, E>,)>;

fn restrict_p2(linker: &mut Linker<StoreState>) -> wasmtime::Result<()> {
    use p2::{DescriptorFlags, ErrorCode, HostDescriptor, OpenFlags, PathFlags};
    type Store<'a> = StoreContextMut<'a, StoreState>;
    type Fd = Resource<Descriptor>;

    fn answer<T>(result: Result<T, wasmtime_wasi::p2::FsError>) -> Answer<T, ErrorCode> {
        match result {
            Ok(value) => Ok((Ok(value),)),
            Err(error) => Ok((Err(error.downcast()?),)),
        }
    }

    let mut types = linker.instance(P2[0])?;
    types.func_wrap_async(
        "[method]descriptor.open-at",
        |mut store: Store<'_>,
         (fd, path_flags, path, open_flags, flags): (Fd, PathFlags, String, OpenFlags, DescriptorFlags)| {
            Box::new(async move {
                let asked = asked!(p2, path_flags, open_flags, flags);
                let found = folder(store.data_mut(), &fd)?;
                let Some(rooms) = store.data().room_for_file() else { return Ok((Err(ErrorCode::Quota),)) };
                match opened(found, path, asked).await {
                    Ok(descriptor) => {
                        rooms.iter().for_each(|room| room.take(&descriptor));
                        Ok((Ok(store.data_mut().table().push(descriptor)?),))
                    }
                    Err(error) => Ok((Err(ErrorCode::from(&error)),)),
                }
            })
        },
    )?;
    types.func_wrap_async(
        "[method]descriptor.stat-at",
        |mut store: Store<'_>, (fd, flags, path): (Fd, PathFlags, String)| {
            Box::new(async move {
                let found = folder(store.data_mut(), &fd)?;
                match looked(found, &path, flags.contains(PathFlags::SYMLINK_FOLLOW)).await {
                    Ok(()) => answer(store.data_mut().filesystem().stat_at(fd, flags, path).await),
                    Err(error) => Ok((Err(ErrorCode::from(&error)),)),
                }
            })
        },
    )?;
    types.func_wrap_async(
        "[method]descriptor.metadata-hash-at",
        |mut store: Store<'_>, (fd, flags, path): (Fd, PathFlags, String)| {
            Box::new(async move {
                let found = folder(store.data_mut(), &fd)?;
                match looked(found, &path, flags.contains(PathFlags::SYMLINK_FOLLOW)).await {
                    Ok(()) => answer(store.data_mut().filesystem().metadata_hash_at(fd, flags, path).await),
                    Err(error) => Ok((Err(ErrorCode::from(&error)),)),
                }
            })
        },
    )?;
    types.func_wrap_async("[method]descriptor.readlink-at", |mut store: Store<'_>, (fd, path): (Fd, String)| {
        Box::new(async move {
            let found = folder(store.data_mut(), &fd)?;
            match looked_at_link(found, &path).await {
                Ok(()) => answer(store.data_mut().filesystem().readlink_at(fd, path).await),
                Err(error) => Ok((Err(ErrorCode::from(&error)),)),
            }
        })
    })
}

type Listing = (StreamReader<p3::DirectoryEntry>, FutureReader<Result<(), p3::ErrorCode>>);

/// Lists a folder as the engine does, which holds a blocking thread until the guest has read it to its end; so their number
/// is bounded. The listing gets a handle of its own, by which it is seen when it is over.
fn read_directory(
    mut store: StoreContextMut<'_, StoreState>,
    fd: &Resource<Descriptor>,
) -> wasmtime::Result<(Listing,)> {
    let state = store.data_mut();
    let (dir, rooms) = match (state.table().get(fd)?.clone(), state.room_for_listing()) {
        (Descriptor::File(_), _) => return failed_listing(store, p3::ErrorCode::NotDirectory),
        (Descriptor::Dir(_), None) => return failed_listing(store, p3::ErrorCode::Quota),
        (Descriptor::Dir(dir), Some(rooms)) => (dir, rooms),
    };
    let own = match dir.dir.try_clone() {
        Ok(file) => Descriptor::Dir(Dir::new(file, dir.perms, dir.open_mode, false)),
        Err(error) => return failed_listing(store, p3::ErrorCode::from(&error)),
    };
    rooms.iter().for_each(|room| room.take(&own));
    let own = state.table().push(own)?;
    let access = Access::<_, WasiFilesystem>::new(store.as_context_mut(), StoreState::filesystem);
    let lent = Resource::new_borrow(own.rep());
    let listing = <WasiFilesystem as p3::HostDescriptorWithStore<StoreState>>::read_directory(access, lent);
    store.data_mut().table().delete(own)?;
    Ok((listing?,))
}

fn failed_listing(mut store: StoreContextMut<'_, StoreState>, error: p3::ErrorCode) -> wasmtime::Result<(Listing,)> {
    let entries = StreamReader::new(&mut store, std::iter::empty())?;
    Ok(((entries, FutureReader::new(&mut store, async move { wasmtime::error::Ok(Err(error)) })?),))
}

fn restrict_p3(linker: &mut Linker<StoreState>) -> wasmtime::Result<()> {
    use p3::{DescriptorFlags, ErrorCode, HostDescriptorWithStore as Host, OpenFlags, PathFlags};
    type Store = Accessor<StoreState>;
    type Fd = Resource<Descriptor>;

    fn answer<T>(result: wasmtime_wasi::p3::filesystem::FilesystemResult<T>) -> Answer<T, ErrorCode> {
        match result {
            Ok(value) => Ok((Ok(value),)),
            Err(error) => Ok((Err(error.downcast()?),)),
        }
    }

    let mut types = linker.instance(P3[0])?;
    types.func_wrap("[method]descriptor.read-directory", |store: StoreContextMut<'_, StoreState>, (fd,): (Fd,)| {
        read_directory(store, &fd)
    })?;
    types.func_wrap_concurrent(
        "[method]descriptor.open-at",
        |store: &Store,
         (fd, path_flags, path, open_flags, flags): (Fd, PathFlags, String, OpenFlags, DescriptorFlags)| {
            Box::pin(async move {
                let asked = asked!(p3, path_flags, open_flags, flags);
                let found = store.with(|mut access| folder(access.data_mut(), &fd))?;
                let Some(rooms) = store.with(|mut access| access.data_mut().room_for_file()) else {
                    return Ok((Err(ErrorCode::Quota),));
                };
                match opened(found, path, asked).await {
                    Ok(descriptor) => {
                        rooms.iter().for_each(|room| room.take(&descriptor));
                        let fd = store.with(|mut access| access.data_mut().table().push(descriptor))?;
                        Ok((Ok(fd),))
                    }
                    Err(error) => Ok((Err(ErrorCode::from(&error)),)),
                }
            })
        },
    )?;
    types.func_wrap_concurrent(
        "[method]descriptor.stat-at",
        |store: &Store, (fd, flags, path): (Fd, PathFlags, String)| {
            Box::pin(async move {
                let found = store.with(|mut access| folder(access.data_mut(), &fd))?;
                match looked(found, &path, flags.contains(PathFlags::SYMLINK_FOLLOW)).await {
                    Ok(()) => {
                        let store = store.with_getter::<WasiFilesystem>(StoreState::filesystem);
                        answer(<WasiFilesystem as Host<StoreState>>::stat_at(&store, fd, flags, path).await)
                    }
                    Err(error) => Ok((Err(ErrorCode::from(&error)),)),
                }
            })
        },
    )?;
    types.func_wrap_concurrent(
        "[method]descriptor.metadata-hash-at",
        |store: &Store, (fd, flags, path): (Fd, PathFlags, String)| {
            Box::pin(async move {
                let found = store.with(|mut access| folder(access.data_mut(), &fd))?;
                match looked(found, &path, flags.contains(PathFlags::SYMLINK_FOLLOW)).await {
                    Ok(()) => {
                        let store = store.with_getter::<WasiFilesystem>(StoreState::filesystem);
                        answer(<WasiFilesystem as Host<StoreState>>::metadata_hash_at(&store, fd, flags, path).await)
                    }
                    Err(error) => Ok((Err(ErrorCode::from(&error)),)),
                }
            })
        },
    )?;
    types.func_wrap_concurrent("[method]descriptor.readlink-at", |store: &Store, (fd, path): (Fd, String)| {
        Box::pin(async move {
            let found = store.with(|mut access| folder(access.data_mut(), &fd))?;
            match looked_at_link(found, &path).await {
                Ok(()) => {
                    let store = store.with_getter::<WasiFilesystem>(StoreState::filesystem);
                    answer(<WasiFilesystem as Host<StoreState>>::readlink_at(&store, fd, path).await)
                }
                Err(error) => Ok((Err(ErrorCode::from(&error)),)),
            }
        })
    })
}
