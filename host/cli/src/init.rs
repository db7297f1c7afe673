//! `wharf init`: a harness file to begin with.

use std::io::ErrorKind;

use wharf::core::Error;

use crate::args::InitArgs;
use crate::exit::Exit;
use crate::{files, say, screen};

/// What is written. It is right as it stands: a test checks it.
pub(crate) const TEMPLATE: &str = include_str!("init.toml");

/// Writes the file.
///
/// # Errors
/// A config error if it is there already or cannot be written.
pub(crate) fn run(args: &InitArgs) -> anyhow::Result<Exit> {
    let name = args.file.display().to_string();
    let written =
        if args.force { files::replace(&args.file, TEMPLATE) } else { files::write_new(&args.file, TEMPLATE) };
    written.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => Error::config(format!("{name:?} is there already, and was not changed"))
            .hint(format!("name another file, or replace it: wharf init {} --force", say::shell(&name))),
        _ => Error::config(format!("{name:?} cannot be written: {error}")),
    })?;
    let flag = if name == "wharf.toml" { String::new() } else { format!(" -H {}", say::shell(&name)) };
    screen::say(&format!("wrote {name}"));
    screen::say("");
    screen::say("next:");
    screen::say(&format!("  wharf check{flag}                  what each tool ends up with, and why"));
    screen::say("  export OPENAI_API_KEY=…       or change [providers.openai] in the file");
    screen::say(&format!("  wharf run{flag} \"Hello\""));
    Ok(Exit::Ok)
}

#[cfg(test)]
mod tests {
    use wharf::core::harness::Harness;

    use super::TEMPLATE;

    /// The file without the marks of what is commented out: `#|` before a key.
    fn with_everything() -> String {
        TEMPLATE.lines().map(|line| line.strip_prefix("#| ").unwrap_or(line)).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn the_file_is_right_as_it_stands_and_with_everything_that_is_commented_out() {
        let plain = Harness::parse("wharf.toml", TEMPLATE).expect("it is a harness");
        assert_eq!(plain.capabilities().count(), 0);
        let whole = Harness::parse("wharf.toml", &with_everything()).expect("it is one with all of it");
        assert_eq!(whole.capabilities().map(|c| c.name.as_str()).collect::<Vec<_>>(), ["files"]);
    }
}
