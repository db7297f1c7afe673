//! Reads grants, and brings those of a capability and of its profiles together. Nothing here widens anything: what is
//! not well formed grants nothing and is reported (AUTH-2), and an empty list grants nothing (AUTH-3).

use std::collections::BTreeMap;

use super::read::{Node, Table};
use crate::grants::{FileAccess, FileGrant, Grants, HttpGrant, SecretGrant, SecretSource};
use crate::ids::ToolName;

pub(super) fn read_grants(node: &Node<'_>) -> Grants {
    let Some(table) = node.table() else { return Grants::default() };
    let list = |key| table.get(key).and_then(|node| node.list()).unwrap_or_default();
    Grants {
        files: list("fs").iter().filter_map(read_file).collect(),
        http: list("http").iter().filter_map(read_http).collect(),
        env: table.get("env").map(|node| read_env(&node)).unwrap_or_default(),
        secrets: list("secrets").iter().filter_map(read_secret).collect(),
        tools: table
            .get("tools")
            .and_then(|node| node.texts())
            .unwrap_or_default()
            .into_iter()
            .map(|name| ToolName::new(name.value))
            .collect(),
        state: table.get("state").and_then(|node| node.boolean()).is_some_and(|flag| flag.value),
    }
}

/// A capability's own grants and those of its profiles, sorted. Two that say different things under one name are
/// reported: which of them would win is nothing that an operator should have to know.
pub(super) fn merge(at: &Node<'_>, own: Grants, profiles: &[(&str, &Grants)]) -> Grants {
    let mut all = own;
    for (profile, grants) in profiles {
        all.files.extend(grants.files.iter().cloned());
        all.http.extend(grants.http.iter().cloned());
        all.secrets.extend(grants.secrets.iter().cloned());
        all.tools.extend(grants.tools.iter().cloned());
        all.state |= grants.state;
        for (name, value) in &grants.env {
            match all.env.get(name) {
                Some(known) if known != value => {
                    at.fault_with(format!("environment value {name:?} differs from that of profile {profile:?}"), None);
                }
                Some(_) => {}
                None => {
                    all.env.insert(name.clone(), value.clone());
                }
            }
        }
    }
    all.files.sort();
    all.files.dedup();
    for pair in all.files.windows(2).filter(|pair| pair[0].guest == pair[1].guest) {
        at.fault_with(format!("folder {:?} is granted twice with different meanings", pair[1].guest), None);
    }
    all.http.sort();
    all.http.dedup();
    all.secrets.sort();
    all.secrets.dedup();
    for pair in all.secrets.windows(2).filter(|pair| pair[0].name == pair[1].name) {
        at.fault_with(format!("secret {:?} is granted twice with different meanings", pair[1].name), None);
    }
    all.tools.sort();
    all.tools.dedup();
    all
}

fn read_file(node: &Node<'_>) -> Option<FileGrant> {
    let table = node.table()?;
    let words = [("read", FileAccess::Read), ("read-write", FileAccess::ReadWrite)];
    let access = match table.get("access") {
        Some(access) => access.word(&words)?.value,
        None => FileAccess::Read,
    };
    let overlap = table.get("overlap").and_then(|node| node.boolean()).is_some_and(|flag| flag.value);
    let host = table.need("host").and_then(|node| read_host_path(&node));
    let guest = table.need("guest").and_then(|node| read_guest_path(&node));
    Some(FileGrant { host: host?, guest: guest?, access, overlap })
}

fn read_host_path(node: &Node<'_>) -> Option<String> {
    let text = node.some_text()?.value;
    if text.contains('\0') {
        node.fault("has a NUL");
        return None;
    }
    Some(text)
}

/// Absolute, without `.`, `..`, empty segments or a slash at the end, so that equal folders have equal names.
fn read_guest_path(node: &Node<'_>) -> Option<String> {
    let text = node.some_text()?.value;
    let Some(rest) = text.strip_prefix('/') else {
        node.fault(format!("{text:?} is not an absolute path"));
        return None;
    };
    let good =
        rest.is_empty() || rest.split('/').all(|part| !matches!(part, "" | "." | "..") && !part.contains(['\0', '\\']));
    if !good {
        node.fault(format!("{text:?} has an empty segment, \".\", \"..\", a backslash or a NUL"));
        return None;
    }
    Some(text)
}

fn read_http(node: &Node<'_>) -> Option<HttpGrant> {
    if !node.is_table() {
        let pattern = read_address(node)?;
        return Some(HttpGrant { pattern, methods: Vec::new() });
    }
    let table = node.table()?;
    let pattern = read_address(&table.need("url")?)?;
    let methods = match table.get("methods") {
        None => Vec::new(),
        Some(node) => read_methods(&node)?,
    };
    Some(HttpGrant { pattern, methods })
}

fn read_methods(node: &Node<'_>) -> Option<Vec<String>> {
    let texts = node.texts()?;
    if texts.is_empty() {
        // An empty list has to grant nothing (AUTH-3), and a grant of nothing is a mistake.
        node.fault("is empty, and would grant nothing");
        return None;
    }
    let mut methods = Vec::new();
    for text in texts {
        if text.value.is_empty() || !text.value.bytes().all(|b| b.is_ascii_uppercase() || b == b'-') {
            node.fault(format!("{:?} is not a method in capitals", text.value));
            return None;
        }
        methods.push(text.value);
    }
    methods.sort();
    methods.dedup();
    Some(methods)
}

/// An address pattern: `https://host[:port][/path]`, the host perhaps `*.host`, the path perhaps ending in `*`. Host and
/// scheme are written down as a URL library normalises them, so that equal patterns have equal texts.
fn read_address(node: &Node<'_>) -> Option<String> {
    let text = node.some_text()?.value;
    match normal_address(&text) {
        Ok(pattern) => Some(pattern),
        Err(why) => {
            node.fault(format!("{text:?} is not an address to grant: it {why}"));
            None
        }
    }
}

pub(super) fn normal_address(text: &str) -> Result<String, String> {
    let (scheme, rest) = text.split_once("://").ok_or("has no scheme, such as https://")?;
    let (authority, path) = rest.find('/').map_or((rest, "/*"), |at| rest.split_at(at));
    let (wild, host) = authority.strip_prefix("*.").map_or(("", authority), |host| ("*.", host));
    if host.contains('*') {
        return Err("has a * that does not stand for whole labels at the start of the host".to_owned());
    }
    let (stem, star) = path.strip_suffix('*').map_or((path, ""), |stem| (stem, "*"));
    if stem.contains('*') {
        return Err("has a * in the middle of its path".to_owned());
    }
    let url = url::Url::parse(&format!("{scheme}://{host}{stem}")).map_err(|why| format!("cannot be read ({why})"))?;
    if !matches!(url.scheme(), "https" | "http") {
        return Err(format!("has scheme {:?}, not https or http", url.scheme()));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("has user info".to_owned());
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("has a query or a fragment".to_owned());
    }
    if url.path() != stem {
        return Err(format!("has a path that is read as {:?}", url.path()));
    }
    let is_name = matches!(url.host(), Some(url::Host::Domain(_)));
    if !wild.is_empty() && !is_name {
        return Err("has a * before something that is not a name".to_owned());
    }
    let host = url.host_str().ok_or("has no host")?;
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    Ok(format!("{}://{wild}{host}{port}{stem}{star}", url.scheme()))
}

fn read_env(node: &Node<'_>) -> BTreeMap<String, String> {
    let mut values = node.text_map().unwrap_or_default();
    values.retain(|name, value| {
        let good = !name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0');
        if !good {
            node.fault(format!("{name:?} is not the name of an environment value, or its value has a NUL"));
        }
        good
    });
    values
}

fn read_secret(node: &Node<'_>) -> Option<SecretGrant> {
    let table = node.table()?;
    let name = table.need("name").and_then(|node| node.some_text());
    let from = table.need("from").and_then(|node| read_secret_source(&node));
    let to = table.need("to").and_then(|node| read_address(&node));
    let placement = table.need("as").and_then(|node| read_placement(&node));
    Some(SecretGrant { name: name?.value, from: from?, to: to?, placement: placement? })
}

fn read_secret_source(node: &Node<'_>) -> Option<SecretSource> {
    if !node.is_table() {
        // Not quoted: if it is the value, it must not stand in a message.
        node.fault("is a literal, and a secret has no place in a harness file");
        return None;
    }
    let table: Table<'_> = node.table()?;
    match (table.get("env"), table.get("file"), table.get("command")) {
        (Some(name), None, None) => Some(SecretSource::Env(name.some_text()?.value)),
        (None, Some(path), None) => Some(SecretSource::File(path.some_text()?.value)),
        (None, None, Some(command)) => {
            let words: Vec<String> = command.texts()?.into_iter().map(|word| word.value).collect();
            if words.is_empty() {
                command.fault("names no command");
                return None;
            }
            Some(SecretSource::Command(words))
        }
        _ => {
            node.fault("says not exactly one of \"env\", \"file\" and \"command\"");
            None
        }
    }
}

fn read_placement(node: &Node<'_>) -> Option<String> {
    let text = node.some_text()?.value;
    let named =
        |name: &str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
    let good = match text.split_once(':') {
        None => matches!(text.as_str(), "bearer" | "basic"),
        Some(("header" | "query", name)) => named(name),
        Some(_) => false,
    };
    if !good {
        node.fault(format!("{text:?} is none of \"bearer\", \"basic\", \"header:NAME\" and \"query:NAME\""));
        return None;
    }
    Some(text)
}
