//! Granted folders: opened once, when the capability is loaded, and checked on what was opened. From then on every store
//! gets these handles and nobody walks the host's path again.
//!
//! Masks (design section 7): no grant reaches the harness file, the lock file, `.wharf/` or the compile cache.
//! - A grant whose folder is one of them or lies in one is refused.
//! - A writable grant whose folder contains one is refused: its guest could rename the folders above it.
//! - A read grant whose folder contains one hides it: what is opened or asked for is looked at through its handle, and
//!   what lies in a mask answers as if it were not there. This needs `/proc`, so other systems than Linux refuse.
//!
//! What the host reads again at the next load, components say, is in no writable grant's folder either: its guest would
//! choose what is loaded. That goes for every place on the way to such a file, to a mask or to another grant's root: who may
//! write where a link of the way lies may point it elsewhere.
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
use crate::limits;

/// Where grants are resolved and what they must not reach. All paths are the caller's; none comes from a component.
#[derive(Debug, Clone, Default)]
pub struct Roots {
    /// The folder of the harness file: relative grants start here.
    pub base: PathBuf,
    /// Files and folders that no grant reaches: the harness file, the lock file, `.wharf/`. The sandbox adds its own
    /// compile cache.
    pub masked: Vec<PathBuf>,
    /// Files whose content the host acts on, and that may be read: components, commands. No writable grant may contain one.
    pub fixed: Vec<PathBuf>,
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
    way: Way,
    writable: bool,
}

impl OpenRoots {
    /// Opens and checks the folders of `grants`. `name` is the capability's, for errors.
    pub(crate) fn open(name: &str, grants: &[FileGrant], roots: &Roots) -> Result<Self, LoadError> {
        let ways = |paths: &[PathBuf]| paths.iter().map(|path| Way::to(path)).collect::<Vec<_>>();
        let (masks, fixed, others) = (ways(&roots.masked), ways(&roots.fixed), ways(&roots.others));
        let mut opened = Self::default();
        for grant in grants {
            let path = roots.resolve(grant);
            check_guest_path(name, grant, &path, &opened.folders)?;
            let folder = open_folder(name, grant, &path)?;
            opened.hidden.extend(masks_inside(name, &folder, &path, &masks)?);
            check_fixed(name, &folder, &path, &fixed)?;
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

fn refused(name: &str, path: &Path, reason: impl Into<String>, hint: &str) -> LoadError {
    LoadError::Grant { name: name.into(), path: path.to_owned(), reason: reason.into(), hint: hint.into() }
}

fn open_folder(name: &str, grant: &FileGrant, path: &Path) -> Result<OpenFolder, LoadError> {
    let failed = |source| LoadError::Folder { name: name.into(), path: path.to_owned(), source };
    let refused = |reason, hint| refused(name, path, reason, hint);
    let kind = fs::metadata(path).map_err(failed)?;
    if !kind.is_dir() {
        return Err(refused("it is not a folder", "grant the folder that holds the file"));
    }
    let file = cap_std::fs::Dir::open_ambient_dir(path, ambient_authority()).map_err(failed)?.into_std_file();
    if crate::files::is_kernels(&file).map_err(failed)? {
        return Err(refused(
            "it shows the system's own state, this program's memory and environment among it",
            "grant a folder of files; single values can be given with env",
        ));
    }
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
    let way = Way::to(path);
    Ok(OpenFolder { dir: Dir::new(file, perms, mode, false), guest: grant.guest.clone(), real, way, writable })
}

fn check_guest_path(name: &str, grant: &FileGrant, path: &Path, before: &[OpenFolder]) -> Result<(), LoadError> {
    let refused = |reason: String, hint| refused(name, path, reason, hint);
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
fn masks_inside(name: &str, folder: &OpenFolder, path: &Path, masks: &[Way]) -> Result<Vec<PathBuf>, LoadError> {
    let refused = |reason: String, hint| refused(name, path, reason, hint);
    if let Some(mask) = masks.iter().map(|mask| &mask.real).find(|mask| folder.real.starts_with(mask)) {
        return Err(refused(
            format!("it lies in {mask:?}, which no tool may reach"),
            "grant another folder; policy, journal and cache stay out of every grant",
        ));
    }
    if folder.writable
        && let Some(place) = masks.iter().find_map(|mask| mask.place_below(&folder.real))
    {
        return Err(refused(
            format!("it contains {place:?}, which no tool may write"),
            "grant a folder below it, or grant it with access = \"read\"",
        ));
    }
    let inside: Vec<PathBuf> =
        masks.iter().map(|mask| &mask.real).filter(|mask| mask.starts_with(&folder.real)).cloned().collect();
    match inside.first() {
        Some(mask) if !cfg!(target_os = "linux") => {
            Err(refused(format!("it contains {mask:?}, which this system cannot hide"), "grant a folder below it"))
        }
        Some(_) | None => Ok(inside),
    }
}

/// A writable grant that contains a component could put another one in its place.
fn check_fixed(name: &str, folder: &OpenFolder, path: &Path, fixed: &[Way]) -> Result<(), LoadError> {
    match fixed.iter().find_map(|file| file.place_below(&folder.real)) {
        Some(place) if folder.writable => Err(refused(
            name,
            path,
            format!("it is writable and contains {place:?}, which the host loads or runs"),
            "keep components and commands apart from what tools may write, or grant it with access = \"read\"",
        )),
        Some(_) | None => Ok(()),
    }
}

/// A writable grant that contains another grant's root, or a link on the way to any grant's root, could swap it for a link
/// to somewhere else.
fn check_overlap(name: &str, grants: &[FileGrant], folders: &[OpenFolder], others: &[Way]) -> Result<(), LoadError> {
    for (n, (grant, folder)) in grants.iter().zip(folders).enumerate() {
        if !folder.writable || grant.overlap {
            continue;
        }
        let hint = "grant folders apart from each other, or say that it is meant with overlap = true";
        let refused = |reason: String| Err(refused(name, &folder.real, reason, hint));
        let own = folders.iter().enumerate().filter(|(m, _)| *m != n).map(|(_, other)| &other.way);
        if let Some(other) = own.chain(others).find(|other| other.real.starts_with(&folder.real)) {
            return refused(format!("it is writable and contains {:?}, which is granted too", other.real));
        }
        let mut all = folders.iter().map(|other| &other.way).chain(others);
        if let Some(place) = all.find_map(|way| way.place_below(&folder.real)) {
            return refused(format!("it is writable and contains {place:?}, through which a grant's folder is found"));
        }
    }
    Ok(())
}

/// How a path is found: each name on the way in the real folder that holds it, links and what they point to included.
struct Way {
    /// Where it ends: the real path, also of what does not exist yet.
    real: PathBuf,
    places: Vec<PathBuf>,
}

impl Way {
    fn to(path: &Path) -> Self {
        // Only an empty path has no absolute form; it stands for the folder that one is in.
        let path = std::path::absolute(path).or_else(|_| std::path::absolute(".")).unwrap_or_else(|_| path.to_owned());
        let parts = |path: &Path| path.components().rev().map(|part| part.as_os_str().to_owned()).collect::<Vec<_>>();
        let (mut real, mut places) = (PathBuf::from("/"), Vec::new());
        let (mut left, mut links) = (parts(&path), 0);
        while let Some(part) = left.pop() {
            match part.as_encoded_bytes() {
                b"/" => real = PathBuf::from("/"),
                b"." => {}
                b".." => {
                    real.pop();
                }
                _ => {
                    let place = real.join(&part);
                    places.push(place.clone());
                    // What is no link, or is not there, is a place like any other.
                    match fs::read_link(&place) {
                        Ok(target) if links < limits::LINKS_MAX => {
                            links += 1;
                            left.extend(parts(&target));
                        }
                        Ok(_) | Err(_) => real = place,
                    }
                }
            }
        }
        Self { real, places }
    }

    /// The first place on the way that whoever may write in `folder` may change.
    fn place_below(&self, folder: &Path) -> Option<&Path> {
        self.places.iter().map(PathBuf::as_path).find(|place| place.starts_with(folder) && *place != folder)
    }
}

/// The path under which the kernel knows an open file.
fn path_of(file: &fs::File) -> std::io::Result<PathBuf> {
    fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))
}
