//! Compiled code on disk. What is read from here is run without being checked again, so an entry counts only if this
//! host's own key says that this host wrote it; anything wrong means that the component is compiled again.
//!
//! The folder has mode 0700 and belongs to us, the key file in it 0600; no grant reaches it (it is one of the masks). The
//! caller chooses it, and must choose one that no project's files can bring along: whoever brings a key may bring code. It
//! knows no engine: code is bytes here.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use cap_std::ambient_authority;
use cap_std::fs::{Dir, DirBuilder, DirBuilderExt, MetadataExt, OpenOptions, OpenOptionsExt};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use wharf_core::digest::Digest;

use crate::limits;

const KEY_FILE: &str = "key";
const TAG_BYTES: usize = 32;

/// One block of SHA-256: the longest key that is used as it is.
type Key = [u8; 64];

/// The folder, opened once.
pub(crate) struct Cache {
    dir: Dir,
    key: Key,
    path: PathBuf,
}

/// Code that this host compiled and wrote. Made by [`Cache::read`] alone, consumed where it is trusted.
pub(crate) struct Authentic(Vec<u8>);

impl Authentic {
    pub(crate) fn code(&self) -> &[u8] {
        self.0.get(TAG_BYTES..).unwrap_or_default()
    }
}

/// What an entry is for: one component on one kind of engine.
pub(crate) struct Entry(String);

impl Entry {
    /// `engine` stands for version, settings and processor features.
    pub(crate) fn new(component: &Digest, engine: &Digest) -> Self {
        let hex = |digest: &Digest| digest.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        Self(format!("{}-{}-{}.code", hex(component), &hex(engine)[..16], env!("CARGO_PKG_VERSION")))
    }
}

impl Cache {
    /// Opens or makes the folder. An error is a reason to go on without it.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        if let (Some(parent), Some(name)) = (path.parent(), path.file_name()) {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            Dir::create_ambient_dir_all(parent, ambient_authority())?;
            let parent = Dir::open_ambient_dir(parent, ambient_authority())?;
            match parent.create_dir_with(name, DirBuilder::new().mode(0o700)) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
        let dir = Dir::open_ambient_dir(path, ambient_authority())?;
        let key = key(&dir)?;
        Ok(Self { dir, key, path: std::fs::canonicalize(path)? })
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The code of an entry, if it is there and this host wrote it.
    pub(crate) fn read(&self, entry: &Entry) -> Option<Authentic> {
        match self.try_read(entry) {
            Ok(found) => Some(found),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                tracing::warn!(entry = %entry.0, %error, "an entry of the compile cache is not used");
                None
            }
        }
    }

    fn try_read(&self, entry: &Entry) -> io::Result<Authentic> {
        let file = self.dir.open_with(&entry.0, OpenOptions::new().read(true))?;
        let length = file.metadata()?.len();
        if length > limits::CACHE_ENTRY_BYTES_MAX {
            return Err(io::Error::other("it is too large"));
        }
        let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or_default());
        file.take(limits::CACHE_ENTRY_BYTES_MAX).read_to_end(&mut bytes)?;
        let Some((tag, code)) = bytes.split_at_checked(TAG_BYTES) else {
            return Err(io::Error::other("it is too short"));
        };
        match self.mac(entry, code).verify_slice(tag) {
            Ok(()) => Ok(Authentic(bytes)),
            Err(_) => Err(io::Error::other("it was not written by this host's key")),
        }
    }

    /// Writes an entry, whole or not at all. Failing to is no failure of the load: the next one compiles again.
    pub(crate) fn write(&self, entry: &Entry, code: &[u8]) {
        let tag = self.mac(entry, code).finalize().into_bytes();
        if let Err(error) = write_whole(&self.dir, &entry.0, &[&tag, code], Replace::Yes) {
            tracing::warn!(entry = %entry.0, %error, "compiled code was not cached");
        }
    }

    /// Over the entry's name and its code, so that one entry does not pass for another.
    fn mac(&self, entry: &Entry, code: &[u8]) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new(&self.key.into());
        mac.update(entry.0.as_bytes());
        mac.update(&[0]);
        mac.update(code);
        mac
    }
}

/// This folder's key; made if there is none.
fn key(dir: &Dir) -> io::Result<Key> {
    let mut fresh: Key = [0; 64];
    getrandom::fill(&mut fresh).map_err(io::Error::other)?;
    // Also tells who we are: what we write belongs to us. Another process may have made the key first; then that stays.
    let us = write_whole(dir, KEY_FILE, &[&fresh], Replace::No)?;
    check_private(&dir.dir_metadata()?, us, "the folder")?;
    let mut file = dir.open(KEY_FILE)?;
    check_private(&file.metadata()?, us, "the key file")?;
    let mut key: Key = [0; 64];
    file.read_exact(&mut key)?;
    Ok(key)
}

fn check_private(metadata: &cap_std::fs::Metadata, us: u32, what: &str) -> io::Result<()> {
    if metadata.uid() != us {
        return Err(io::Error::other(format!("{what} belongs to user {}, not to us", metadata.uid())));
    }
    if metadata.mode() & 0o077 != 0 {
        return Err(io::Error::other(format!("{what} is open to others (mode {:o})", metadata.mode() & 0o777)));
    }
    Ok(())
}

enum Replace {
    Yes,
    No,
}

/// Writes under a name of its own and then gives it the right one. Returns the owner of what was written.
fn write_whole(dir: &Dir, name: &str, parts: &[&[u8]], replace: Replace) -> io::Result<u32> {
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(io::Error::other)?;
    let temporary = format!(".{:016x}.tmp", u64::from_ne_bytes(random));
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let written = dir.open_with(&temporary, &options).and_then(|mut file| {
        for part in parts {
            file.write_all(part)?;
        }
        Ok(file.metadata()?.uid())
    });
    let named = written.and_then(|owner| {
        match replace {
            Replace::Yes => dir.rename(&temporary, dir, name)?,
            Replace::No => match dir.hard_link(&temporary, dir, name) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                Ok(()) | Err(_) => dir.remove_file(&temporary)?,
            },
        }
        Ok(owner)
    });
    if named.is_err() {
        // The error to tell is the first one; a left temporary file harms nobody.
        dir.remove_file(&temporary).ok();
    }
    named
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn entry(component: &[u8]) -> Entry {
        Entry::new(&Digest::of(component), &Digest::of(b"engine"))
    }

    fn files(path: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            std::fs::read_dir(path).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn an_entry_is_read_back_by_whoever_has_the_key() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/cache");
        Cache::open(&path).unwrap().write(&entry(b"a"), b"code");
        let again = Cache::open(&path).unwrap();
        assert_eq!(again.read(&entry(b"a")).unwrap().code(), b"code");
        assert!(again.read(&entry(b"b")).is_none());
        assert_eq!(files(&path), [entry(b"a").0, KEY_FILE.into()], "no temporary file is left");
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(&path.join(KEY_FILE))), (0o700, 0o600));
    }

    #[test]
    fn a_changed_moved_or_foreign_entry_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cache");
        let cache = Cache::open(&path).unwrap();
        let name = |component| path.join(entry(component).0);
        cache.write(&entry(b"a"), b"code");
        std::fs::copy(name(b"a"), name(b"b")).unwrap();
        assert!(cache.read(&entry(b"b")).is_none(), "one entry passes for another");
        let whole = std::fs::read(name(b"a")).unwrap();
        for changed in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[changed] ^= 1;
            std::fs::write(name(b"a"), bytes).unwrap();
            assert!(cache.read(&entry(b"a")).is_none(), "byte {changed} may change");
        }
        for length in 0..whole.len() {
            std::fs::write(name(b"a"), &whole[..length]).unwrap();
            assert!(cache.read(&entry(b"a")).is_none(), "length {length} is enough");
        }
        std::fs::write(name(b"a"), &whole).unwrap();
        assert!(cache.read(&entry(b"a")).is_some());
        std::fs::remove_file(path.join(KEY_FILE)).unwrap();
        assert!(Cache::open(&path).unwrap().read(&entry(b"a")).is_none(), "a new key reads an old entry");
    }

    #[test]
    fn a_folder_or_key_that_others_can_reach_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cache");
        let open_to_others = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        Cache::open(&path).unwrap();
        open_to_others(&path, 0o770);
        assert_eq!(Cache::open(&path).err().unwrap().to_string(), "the folder is open to others (mode 770)");
        open_to_others(&path, 0o700);
        open_to_others(&path.join(KEY_FILE), 0o604);
        assert_eq!(Cache::open(&path).err().unwrap().to_string(), "the key file is open to others (mode 604)");
        open_to_others(&path.join(KEY_FILE), 0o600);
        Cache::open(&path).unwrap();
    }
}
