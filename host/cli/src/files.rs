//! Every access of the command line to files, through handles: a folder is opened first, and the file within it.

use std::io::{self, Read, Write};
use std::path::Path;

use cap_std::ambient_authority;
use cap_std::fs::{Dir, OpenOptions};

/// Reads a file of at most `bytes_max`.
///
/// # Errors
/// What the system says, or that it is too large or no regular file.
pub(crate) fn read(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let (dir, name) = parent(path)?;
    let file = dir.open(name)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(io::Error::other(format!("it has more than {bytes_max} bytes")));
    }
    Ok(bytes)
}

/// As [`read`], for UTF-8 text.
///
/// # Errors
/// As [`read`], or that it is not UTF-8 and from where on.
pub(crate) fn read_text(path: &Path, bytes_max: u64) -> io::Result<String> {
    text(read(path, bytes_max)?)
}

/// Standard input as text, of at most `bytes_max`.
///
/// # Errors
/// As [`read_text`].
pub(crate) fn read_stdin(bytes_max: u64) -> io::Result<String> {
    let mut bytes = Vec::new();
    io::stdin().take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(io::Error::other(format!("it has more than {bytes_max} bytes")));
    }
    text(bytes)
}

fn text(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(|error| {
        io::Error::other(format!("it is not UTF-8: the first bad byte is at {}", error.utf8_error().valid_up_to()))
    })
}

/// Whether there is a file of this name.
pub(crate) fn is_file(path: &Path) -> bool {
    parent(path).and_then(|(dir, name)| dir.metadata(name)).is_ok_and(|found| found.is_file())
}

/// Whether there is a folder of this name.
pub(crate) fn is_dir(path: &Path) -> bool {
    Dir::open_ambient_dir(path, ambient_authority()).is_ok()
}

/// Writes a file that is not there yet; one that is there is an error of kind `AlreadyExists`.
///
/// # Errors
/// What the system says.
pub(crate) fn write_new(path: &Path, content: &str) -> io::Result<()> {
    let (dir, name) = parent(path)?;
    dir.open_with(name, OpenOptions::new().write(true).create_new(true))?.write_all(content.as_bytes())
}

/// Writes a file, whether or not it is there.
///
/// # Errors
/// What the system says.
pub(crate) fn replace(path: &Path, content: &str) -> io::Result<()> {
    let (dir, name) = parent(path)?;
    dir.write(name, content)
}

/// Puts a file in place as a whole: after a crash at any point there is the former one or the new one (M4, M5). What a crash
/// may leave beside it ends in `.part` and does no harm.
///
/// # Errors
/// What the system says.
pub(crate) fn replace_whole(path: &Path, content: &str) -> io::Result<()> {
    let (dir, name) = parent(path)?;
    let part = format!("{}.{}.part", name.display(), std::process::id());
    let written = (|| {
        let mut file = dir.open_with(&part, OpenOptions::new().write(true).create(true).truncate(true))?;
        file.write_all(content.as_bytes())?;
        file.sync_all()?;
        dir.rename(&part, &dir, name)
    })();
    if let Err(error) = written {
        // It may not be there; the first failure is the one to tell.
        let _ = dir.remove_file(&part);
        return Err(error);
    }
    // The name is in the folder, which has a sync of its own.
    dir.open(".")?.sync_all()
}

fn parent(path: &Path) -> io::Result<(Dir, &Path)> {
    let name = path.file_name().ok_or_else(|| io::Error::other("it names no file"))?;
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        Some(_) | None => Path::new("."),
    };
    Ok((Dir::open_ambient_dir(folder, ambient_authority())?, Path::new(name)))
}
