//! What checking against a schema may cost, from the schema's own shape. A schema is a component's text: a reference
//! that leads to itself would never end, and references that fan out make a page of text take exponential time. Both are
//! seen before the first check.
//!
//! The schema is one of draft 2020-12 without `$id` or `$schema` anywhere, so each reference leads from the root.
//!
//! A step is one visit of a subschema, or one look at a value or name that it lists (`enum`, `required` …). Keywords that look at the same value (`$ref`, `allOf`, `anyOf` …) add up; keywords
//! that go one level into it multiply over the levels. The count is an upper bound along one path through a value.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::{SchemaFault, below};
use crate::limits;

/// Most edges that the analysis follows; anchors of one name may lead from each reference to each of them.
const EDGES_MAX: usize = 200_000;

/// The steps along one path through a value, for each depth of the value from 0 on: as far as they stay within
/// [`limits::SCHEMA_STEPS_MAX`] steps and [`limits::SCHEMA_NESTING_MAX`] open subschemas, and at most to
/// [`limits::JSON_DEPTH_MAX`]. Never empty.
///
/// # Errors
/// If a reference leaves the schema, leads to itself, or not even a flat value can be checked.
pub(super) fn steps_by_depth(schema: &Value) -> Result<Vec<u64>, SchemaFault> {
    let graph = Graph::of(schema)?;
    let order = graph.in_place_order()?;
    let mut below: Option<Vec<Cost>> = None;
    let mut steps = Vec::new();
    for _ in 0..=limits::JSON_DEPTH_MAX {
        let mut costs = vec![Cost::default(); graph.nodes.len()];
        for &at in &order {
            costs[at] = graph.nodes[at].cost(&costs, below.as_deref());
        }
        let whole = costs.first().copied().unwrap_or_default();
        if whole.steps > limits::SCHEMA_STEPS_MAX || whole.nesting > limits::SCHEMA_NESTING_MAX {
            break;
        }
        steps.push(whole.steps);
        below = Some(costs);
    }
    if steps.is_empty() { Err(SchemaFault::TooCostly) } else { Ok(steps) }
}

/// What one check with a subschema takes.
#[derive(Debug, Clone, Copy, Default)]
struct Cost {
    /// Visits of subschemas.
    steps: u64,
    /// Subschemas that are open at once: the checker's stack.
    nesting: u64,
}

impl Node {
    /// The cost, given that of the subschemas that look at the same value, and that of those one level into it.
    fn cost(&self, same: &[Cost], below: Option<&[Cost]>) -> Cost {
        let mut steps = self.in_place.iter().map(|to| same[*to].steps).fold(self.listed, u64::saturating_add);
        // Knowing what was not evaluated takes a second look at all that looked at the same value.
        if self.looks_twice {
            steps = steps.saturating_mul(2);
        }
        let mut nesting = self.in_place.iter().map(|to| same[*to].nesting).max().unwrap_or(0);
        if let Some(below) = below {
            let one = self.one_of_children.iter().map(|to| below[*to].steps).max().unwrap_or(0);
            let all = self.all_children.iter().map(|to| below[*to].steps).fold(one, u64::saturating_add);
            steps = steps.saturating_add(all);
            let deeper = self.one_of_children.iter().chain(&self.all_children).map(|to| below[*to].nesting);
            nesting = nesting.max(deeper.max().unwrap_or(0));
        }
        Cost { steps: steps.saturating_add(1), nesting: nesting.saturating_add(1) }
    }
}

#[derive(Default)]
struct Node {
    pointer: String,
    /// Subschemas that look at the same value.
    in_place: Vec<usize>,
    /// Subschemas of which at most one looks at any one member or item.
    one_of_children: Vec<usize>,
    /// Subschemas that may all look at one member or item.
    all_children: Vec<usize>,
    looks_twice: bool,
    /// Values and names that are looked at beside subschemas.
    listed: u64,
}

struct Graph<'s> {
    root: &'s Value,
    nodes: Vec<Node>,
    values: Vec<&'s Value>,
    index: HashMap<*const Value, usize>,
    anchors: HashMap<&'s str, Vec<&'s Value>>,
    edges: usize,
}

impl<'s> Graph<'s> {
    fn of(root: &'s Value) -> Result<Self, SchemaFault> {
        let mut graph = Self {
            root,
            nodes: Vec::new(),
            values: Vec::new(),
            index: HashMap::new(),
            anchors: anchors(root),
            edges: 0,
        };
        graph.node(root, String::new());
        let mut at = 0;
        while at < graph.nodes.len() {
            if let Value::Object(keywords) = graph.values[at] {
                graph.read(at, keywords)?;
            }
            at += 1;
        }
        Ok(graph)
    }

    fn node(&mut self, value: &'s Value, pointer: String) -> usize {
        if let Some(at) = self.index.get(&std::ptr::from_ref(value)) {
            return *at;
        }
        self.index.insert(std::ptr::from_ref(value), self.nodes.len());
        self.values.push(value);
        self.nodes.push(Node { pointer, ..Node::default() });
        self.nodes.len() - 1
    }

    fn read(&mut self, at: usize, keywords: &'s Map<String, Value>) -> Result<(), SchemaFault> {
        let pointer = self.nodes[at].pointer.clone();
        for (keyword, value) in keywords {
            let here = below(&pointer, keyword);
            match (keyword.as_str(), value) {
                ("$ref" | "$dynamicRef" | "$recursiveRef", Value::String(target)) => {
                    for to in self.targets(&here, target)? {
                        self.edge(to, here.clone(), |graph| &mut graph.nodes[at].in_place)?;
                    }
                }
                ("not" | "if" | "then" | "else", value) => {
                    self.edge(value, here, |graph| &mut graph.nodes[at].in_place)?
                }
                ("allOf" | "anyOf" | "oneOf", Value::Array(all)) => {
                    for (n, value) in all.iter().enumerate() {
                        self.edge(value, below(&here, &n.to_string()), |graph| &mut graph.nodes[at].in_place)?;
                    }
                }
                ("dependentSchemas" | "dependencies", Value::Object(all)) => {
                    for (name, value) in all.iter().filter(|(_, value)| !value.is_array()) {
                        self.edge(value, below(&here, name), |graph| &mut graph.nodes[at].in_place)?;
                    }
                }
                ("enum" | "const" | "required" | "dependentRequired", value) => {
                    self.nodes[at].listed = self.nodes[at].listed.saturating_add(values_in(value));
                }
                ("properties", Value::Object(all)) => {
                    self.nodes[at].listed = self.nodes[at].listed.saturating_add(count(all.len()));
                    for (name, value) in all {
                        self.edge(value, below(&here, name), |graph| &mut graph.nodes[at].one_of_children)?;
                    }
                }
                ("patternProperties", Value::Object(all)) => {
                    for (name, value) in all {
                        self.edge(value, below(&here, name), |graph| &mut graph.nodes[at].all_children)?;
                    }
                }
                ("prefixItems" | "items", Value::Array(all)) => {
                    for (n, value) in all.iter().enumerate() {
                        self.edge(value, below(&here, &n.to_string()), |graph| &mut graph.nodes[at].one_of_children)?;
                    }
                }
                (
                    "items"
                    | "contains"
                    | "additionalProperties"
                    | "additionalItems"
                    | "propertyNames"
                    | "unevaluatedItems"
                    | "unevaluatedProperties",
                    value,
                ) => {
                    self.nodes[at].looks_twice |= keyword.starts_with("unevaluated");
                    self.edge(value, here, |graph| &mut graph.nodes[at].all_children)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn edge(
        &mut self,
        to: &'s Value,
        pointer: String,
        list: impl FnOnce(&mut Self) -> &mut Vec<usize>,
    ) -> Result<(), SchemaFault> {
        self.edges += 1;
        if self.edges > EDGES_MAX {
            return Err(SchemaFault::TooCostly);
        }
        let to = self.node(to, pointer);
        list(self).push(to);
        Ok(())
    }

    /// Where a reference may lead. One to a dynamic anchor may lead to any of that name.
    fn targets(&self, pointer: &str, target: &str) -> Result<Vec<&'s Value>, SchemaFault> {
        let external = || SchemaFault::External { target: target.to_owned() };
        let fragment = target.strip_prefix('#').ok_or_else(external)?;
        if fragment.is_empty() {
            return Ok(vec![self.root]);
        }
        // Only a pointer is decoded, as in the checker; an anchor's name has nothing to decode.
        let found: Vec<&Value> = if fragment.starts_with('/') {
            self.root.pointer(&percent_decoded(fragment).ok_or_else(external)?).into_iter().collect()
        } else {
            self.anchors.get(fragment).cloned().unwrap_or_default()
        };
        if found.is_empty() {
            return Err(SchemaFault::Invalid {
                pointer: pointer.to_owned(),
                why: format!("{target:?} refers to nothing in the schema"),
            });
        }
        Ok(found)
    }

    /// The nodes so that each comes after those that it looks through in place.
    fn in_place_order(&self) -> Result<Vec<usize>, SchemaFault> {
        #[derive(Clone, Copy, PartialEq)]
        enum Mark {
            New,
            Open,
            Done,
        }
        let mut marks = vec![Mark::New; self.nodes.len()];
        let mut order = Vec::with_capacity(self.nodes.len());
        for start in 0..self.nodes.len() {
            let mut path = vec![(start, 0usize)];
            while let Some((at, next)) = path.pop() {
                if next == 0 {
                    if marks[at] == Mark::Done {
                        continue;
                    }
                    marks[at] = Mark::Open;
                }
                match self.nodes[at].in_place.get(next) {
                    Some(&to) => {
                        path.push((at, next + 1));
                        match marks[to] {
                            Mark::New => path.push((to, 0)),
                            Mark::Open => {
                                return Err(SchemaFault::Circular { pointer: self.nodes[to].pointer.clone() });
                            }
                            Mark::Done => {}
                        }
                    }
                    None => {
                        marks[at] = Mark::Done;
                        order.push(at);
                    }
                }
            }
        }
        Ok(order)
    }
}

/// Every object that names an anchor, wherever it stands.
fn anchors(root: &Value) -> HashMap<&str, Vec<&Value>> {
    let mut found: HashMap<&str, Vec<&Value>> = HashMap::new();
    let mut open = vec![root];
    while let Some(value) = open.pop() {
        match value {
            Value::Object(members) => {
                for name in ["$anchor", "$dynamicAnchor"].iter().filter_map(|keyword| members.get(*keyword)?.as_str()) {
                    found.entry(name).or_default().push(value);
                }
                open.extend(members.values());
            }
            Value::Array(items) => open.extend(items),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    found
}

/// How many values are in a value, itself among them.
pub(super) fn values_in(value: &Value) -> u64 {
    let mut seen = 0u64;
    let mut open = vec![value];
    while let Some(value) = open.pop() {
        seen += 1;
        match value {
            Value::Object(members) => open.extend(members.values()),
            Value::Array(items) => open.extend(items),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    seen
}

fn count(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
            let value = digit(rest.next())? * 16 + digit(rest.next())?;
            bytes.push(u8::try_from(value).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}
