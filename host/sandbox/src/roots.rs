//! Granted folders: opened once, when the capability is loaded, and checked on what was opened. From then on every store
//! gets these handles and nobody walks the host's path again.
//!
//! Masks (design section 7): no grant reaches the harness file, the lock file, `.wharf/` or the compile cache.
//! - A grant whose folder is one of them or lies in one is refused.
//! - A writable grant whose folder contains one is refused: its guest could rename the folders above it.
//! - A read grant whose folder contains one hides it: what is opened or asked for is looked at through its handle, and
//!   what lies in a mask answers as if it were not there. This needs `/proc`, so other systems than Linux refuse.
//!
//! Names of hidden entries still stand in their folder's listing. A folder that is mounted at two places has two paths,
//! and a mask covers the one that it was given: grant such a folder under neither.

use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use cap_std::ambient_authority;
use wasmtime_wasi::filesystem::Dir;
use wasmtime_wasi::{FsPerms, OpenMode};
use wharf_core::grants::{FileAccess, FileGrant};

use crate::error::LoadError;

/// Where grants are resolved and what they must not reach. All paths are the caller's; none comes from a component.
#[derive(Debug, Clone, Default)]
pub struct Roots {
    /// The folder of the harness file: relative grants start here.
    pub base: PathBuf,
    /// Files and folders that no grant reaches: the harness file, the lock file, `.wharf/`. The sandbox adds its own
    /// compile cache.
    pub masked: Vec<PathBuf>,
    /// Folders of other capabilities' grants: a writable grant that contains one of them needs `overlap`.
    pub others: Vec<PathBuf>,
}

impl Roots {
    /// The folder that a grant names.
    pub fn resolve(&self, grant: &FileGrant) -> PathBuf {
        self.base.join(&grant.host)
    }
}

/// The opened folders of one capability.
#[derive(Default)]
pub(crate) struct OpenRoots {
    folders: Vec<OpenFolder>,
    /// Masks inside of read grants, as real paths.
    hidden: Vec<PathBuf>,
}

struct OpenFolder {
    dir: Dir,
    guest: String,
    real: PathBuf,
    writable: bool,
}

impl OpenRoots {
    /// Opens and checks the folders of `grants`. `name` is the capability's, for errors.
    pub(crate) fn open(name: &str, grants: &[FileGrant], roots: &Roots) -> Result<Self, LoadError> {
        let masks: Vec<PathBuf> = roots.masked.iter().map(|path| real_or_given(path)).collect();
        let others: Vec<PathBuf> = roots.others.iter().map(|path| real_or_given(path)).collect();
        let mut opened = Self::default();
        for grant in grants {
            let path = roots.resolve(grant);
            check_guest_path(name, grant, &path, &opened.folders)?;
            let folder = open_folder(name, grant, &path)?;
            opened.hidden.extend(masks_inside(name, &folder, &path, &masks)?);
            opened.folders.push(folder);
        }
        check_overlap(name, grants, &opened.folders, &others)?;
        Ok(opened)
    }

    /// Each folder with the path under which the guest sees it.
    pub(crate) fn preopens(&self) -> impl Iterator<Item = (Dir, String)> + '_ {
        self.folders.iter().map(|folder| (folder.dir.clone(), folder.guest.clone()))
    }

    /// Whether anything has to be looked for at all.
    pub(crate) fn hides_something(&self) -> bool {
        !self.hidden.is_empty()
    }

    /// Whether this open file or folder lies in a mask, decided on the handle (FS-1). What cannot be told is hidden.
    pub(crate) fn hides(&self, file: &fs::File) -> bool {
        self.hides_something()
            && match path_of(file) {
                Ok(path) => self.hidden.iter().any(|mask| path.starts_with(mask)),
                Err(_) => true,
            }
    }
}

fn open_folder(name: &str, grant: &FileGrant, path: &Path) -> Result<OpenFolder, LoadError> {
    let failed = |source| LoadError::Folder { name: name.into(), path: path.to_owned(), source };
    let refused = |reason: &str, hint: &str| LoadError::Grant {
        name: name.into(),
        path: path.to_owned(),
        reason: reason.into(),
        hint: hint.into(),
    };
    let kind = fs::metadata(path).map_err(failed)?;
    if !kind.is_dir() {
        return Err(refused("it is not a folder", "grant the folder that holds the file"));
    }
    let file = cap_std::fs::Dir::open_ambient_dir(path, ambient_authority()).map_err(failed)?.into_std_file();
    let real = fs::canonicalize(path).map_err(failed)?;
    // The path is walked twice; whoever could swap a link in between would be found by the identity.
    let (have, want) = (file.metadata().map_err(failed)?, fs::symlink_metadata(&real).map_err(failed)?);
    if (have.dev(), have.ino()) != (want.dev(), want.ino()) {
        return Err(refused("it was replaced while it was opened", "run again when nothing changes the folder"));
    }
    let (perms, mode, writable) = match grant.access {
        FileAccess::Read => (FsPerms::ReadOnly, OpenMode::READ, false),
        FileAccess::ReadWrite => (FsPerms::ReadWrite, OpenMode::READ | OpenMode::WRITE, true),
    };
    Ok(OpenFolder { dir: Dir::new(file, perms, mode, false), guest: grant.guest.clone(), real, writable })
}

fn check_guest_path(name: &str, grant: &FileGrant, path: &Path, before: &[OpenFolder]) -> Result<(), LoadError> {
    let refused = |reason: String, hint: &str| LoadError::Grant {
        name: name.into(),
        path: path.to_owned(),
        reason,
        hint: hint.into(),
    };
    let plain =
        Path::new(&grant.guest).components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    if !grant.guest.starts_with('/') || !plain || grant.guest.contains('\0') {
        return Err(refused(
            format!("its guest path {:?} is not absolute and plain", grant.guest),
            "write guest = \"/name\"",
        ));
    }
    if before.iter().any(|folder| folder.guest == grant.guest) {
        return Err(refused(
            format!("another folder is already granted as {:?}", grant.guest),
            "give each grant a guest path of its own",
        ));
    }
    Ok(())
}

/// The masks that a folder contains, if it may contain them.
fn masks_inside(name: &str, folder: &OpenFolder, path: &Path, masks: &[PathBuf]) -> Result<Vec<PathBuf>, LoadError> {
    let refused = |reason: String, hint: &str| LoadError::Grant {
        name: name.into(),
        path: path.to_owned(),
        reason,
        hint: hint.into(),
    };
    if let Some(mask) = masks.iter().find(|mask| folder.real.starts_with(mask)) {
        return Err(refused(
            format!("it lies in {mask:?}, which no tool may reach"),
            "grant another folder; policy, journal and cache stay out of every grant",
        ));
    }
    let inside: Vec<PathBuf> = masks.iter().filter(|mask| mask.starts_with(&folder.real)).cloned().collect();
    match inside.first() {
        Some(mask) if folder.writable => Err(refused(
            format!("it contains {mask:?}, which no tool may write"),
            "grant a folder below it, or grant it with access = \"read\"",
        )),
        Some(mask) if !cfg!(target_os = "linux") => {
            Err(refused(format!("it contains {mask:?}, which this system cannot hide"), "grant a folder below it"))
        }
        Some(_) | None => Ok(inside),
    }
}

/// A writable grant that contains another grant's root could swap it for a link to somewhere else.
fn check_overlap(
    name: &str,
    grants: &[FileGrant],
    folders: &[OpenFolder],
    others: &[PathBuf],
) -> Result<(), LoadError> {
    for (n, (grant, folder)) in grants.iter().zip(folders).enumerate() {
        if !folder.writable || grant.overlap {
            continue;
        }
        let own = folders.iter().enumerate().filter(|(m, _)| *m != n).map(|(_, other)| &other.real);
        if let Some(other) = own.chain(others).find(|other| other.starts_with(&folder.real)) {
            return Err(LoadError::Grant {
                name: name.into(),
                path: folder.real.clone(),
                reason: format!("it is writable and contains {other:?}, which is granted too"),
                hint: "grant folders apart from each other, or say that it is meant with overlap = true".into(),
            });
        }
    }
    Ok(())
}

/// The real path; for what does not exist yet, the real path of its folder and its name.
fn real_or_given(path: &Path) -> PathBuf {
    if let Ok(real) = fs::canonicalize(path) {
        return real;
    }
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => {
            real_or_given(if parent.as_os_str().is_empty() { Path::new(".") } else { parent }).join(name)
        }
        _ => path.to_owned(),
    }
}

/// The path under which the kernel knows an open file.
fn path_of(file: &fs::File) -> std::io::Result<PathBuf> {
    fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))
}
