//! Damage to JSON, chosen by numbers.

use proptest::prelude::*;
use serde_json::{Value, json};

/// Which value is changed, and into what.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    at: prop::sample::Index,
    into: u8,
}

impl Arbitrary for Change {
    type Parameters = ();
    type Strategy = BoxedStrategy<Self>;

    fn arbitrary_with((): ()) -> Self::Strategy {
        (any::<prop::sample::Index>(), any::<u8>()).prop_map(|(at, into)| Self { at, into }).boxed()
    }
}

/// Changes one value in the JSON, or takes a member or an element away; answers the members that lead there, and `None` where
/// there is nothing to change.
pub(crate) fn change(json: &mut Value, how: &Change) -> Option<Vec<String>> {
    let mut paths = Vec::new();
    walk(json, &mut Vec::new(), &mut paths);
    let path = paths.get(how.at.index(paths.len().max(1)))?.clone();
    let (last, to) = path.split_last()?;
    let holder = to.iter().try_fold(json, |value, step| match value {
        Value::Object(members) => members.get_mut(step),
        Value::Array(items) => items.get_mut(step.parse::<usize>().ok()?),
        _ => None,
    })?;
    let with = [json!(null), json!(true), json!(-1), json!(7), json!(""), json!("other"), json!([]), json!({})];
    let with = with.get(usize::from(how.into) % (with.len() + 1)).cloned();
    match (holder, with) {
        (Value::Object(members), Some(with)) => drop(members.insert(last.clone(), with)),
        (Value::Object(members), None) => drop(members.shift_remove(last)),
        (Value::Array(items), Some(with)) => items[last.parse::<usize>().ok()?] = with,
        (Value::Array(items), None) => drop(items.remove(last.parse::<usize>().ok()?)),
        _ => return None,
    }
    Some(path)
}

fn walk(json: &Value, path: &mut Vec<String>, paths: &mut Vec<Vec<String>>) {
    let inside: Vec<(String, &Value)> = match json {
        Value::Object(members) => members.iter().map(|(name, value)| (name.clone(), value)).collect(),
        Value::Array(items) => items.iter().enumerate().map(|(at, value)| (at.to_string(), value)).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return,
    };
    for (step, value) in inside {
        path.push(step);
        paths.push(path.clone());
        walk(value, path, paths);
        path.pop();
    }
}
