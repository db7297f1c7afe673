//! Where compiled code is kept: in a folder of the user's, never in one of a project. Code from there is run as it is, and a
//! project comes from anywhere: an archive could bring a key together with entries that this key vouches for.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Once;

use crate::screen;

/// The folder, for all harnesses of this user. None where the user has no home; that is said once.
pub(crate) fn folder() -> Option<PathBuf> {
    static SAID: Once = Once::new();
    let found = choose(std::env::var_os("XDG_CACHE_HOME"), std::env::var_os("HOME"));
    if found.is_none() {
        SAID.call_once(|| {
            screen::warning("compiled components are not kept: neither XDG_CACHE_HOME nor HOME names a folder");
        });
    }
    found
}

/// Relative paths count as not set: they would lie in whatever folder one is in.
fn choose(cache: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    let absolute = |path: OsString| Some(PathBuf::from(path)).filter(|path| path.is_absolute());
    let cache = cache.and_then(absolute).or_else(|| home.and_then(absolute).map(|home| home.join(".cache")));
    cache.map(|cache| cache.join("wharf"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_the_users_and_never_relative() {
        let chosen = |cache: Option<&str>, home: Option<&str>| {
            choose(cache.map(Into::into), home.map(Into::into)).map(|path| path.display().to_string())
        };
        assert_eq!(chosen(Some("/c"), Some("/h")).as_deref(), Some("/c/wharf"));
        assert_eq!(chosen(None, Some("/h")).as_deref(), Some("/h/.cache/wharf"));
        for unusable in ["", "c", "./c"] {
            assert_eq!(chosen(Some(unusable), Some("/h")).as_deref(), Some("/h/.cache/wharf"));
            assert_eq!(chosen(Some(unusable), Some(unusable)), None);
        }
        assert_eq!(chosen(None, None), None);
    }
}
