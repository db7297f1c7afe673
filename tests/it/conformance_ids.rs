//! Every statement of the conformance list that is built has a test that cites it. What is read: comments that begin with
//! `covers` and an id, and names of tests with a part such as `_l12_`. Citing is not testing: this finds what nobody even
//! claims to test.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use wharf_tests::repository;
use wharf_tests::source::{files, text};

/// A group's letter and a number, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Id(char, u16);

impl Id {
    /// Exactly a capital letter and a number without leading zeros.
    fn parse(word: &str) -> Option<Self> {
        let group = word.chars().next().filter(char::is_ascii_uppercase)?;
        let number = &word[1..];
        let plain = number.chars().all(|char| char.is_ascii_digit()) && !number.starts_with('0');
        plain.then(|| number.parse().ok()).flatten().map(|number| Self(group, number))
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.0, self.1)
    }
}

/// Parts of test names that mean something else: versions of WASI, HTTP and of unique ids.
const NOT_IDS: [&str; 5] = ["p2", "p3", "h2", "v4", "v7"];

#[test]
fn every_required_statement_is_cited_by_a_test() {
    let (_, required) = list();
    let cited = cited().0;
    let mut missing: BTreeMap<char, Vec<String>> = BTreeMap::new();
    for id in required.iter().filter(|id| !cited.contains_key(id)) {
        missing.entry(id.0).or_default().push(id.to_string());
    }
    let lines: Vec<String> = missing.values().map(|ids| ids.join(", ")).collect();
    assert!(
        lines.is_empty(),
        "no test cites these statements (`// covers …` above or in it):\n  {}",
        lines.join("\n  ")
    );
}

#[test]
fn every_cited_statement_exists() {
    let (all, _) = list();
    let (cited, malformed) = cited();
    let mut wrong = malformed;
    for (id, places) in cited.iter().filter(|(id, _)| !all.contains(id)) {
        wrong.extend(places.iter().map(|place| format!("{place} cites {id}, which is not in the list")));
    }
    assert!(wrong.is_empty(), "\n  {}", wrong.join("\n  "));
}

#[test]
fn citations_are_read_from_comments_and_from_names_of_tests() {
    let tag = "// covers";
    let sample = format!(
        "{tag} A1, B12\n#[test]\nfn plain() {{}}\n    {tag} Z16\n#[tokio::test(flavor = \"x\")]\nasync fn stops_l12_and_l13() {{}}\n\
         fn helper_c3() {{}}\n#[test]\n#[ignore]\nfn with_wasi_p2() {{}}\n{tag} A1,\n// B2\n// covers what it can\n{tag} A1 and A2\n{tag} A01\n"
    );
    let mut citations = Citations::default();
    citations.read("f.rs", &sample);
    let found: Vec<String> = citations.found.keys().map(Id::to_string).collect();
    assert_eq!(found, ["A1", "B12", "L12", "L13", "Z16"]);
    let wrong =
        ["f.rs:11", "f.rs:14", "f.rs:15"].map(|place| format!("{place} is not `// covers` and ids parted by commas"));
    assert_eq!(citations.malformed, wrong);
}

/// All statements, and those that have to be cited.
fn list() -> (BTreeSet<Id>, BTreeSet<Id>) {
    let (mut all, mut required) = (BTreeSet::new(), BTreeSet::new());
    for line in include_str!("conformance_ids.txt").lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.split_whitespace();
        let group = words.next().unwrap().parse().unwrap();
        let ids: Vec<Id> = (1..=words.next().unwrap().parse().unwrap()).map(|number| Id(group, number)).collect();
        all.extend(ids.iter().copied());
        for word in words {
            match word {
                "all" => required.extend(ids.iter().copied()),
                "-" => {}
                number => required.extend([Id(group, number.parse().unwrap())]),
            }
        }
    }
    assert!(required.is_subset(&all));
    (all, required)
}

/// Cited statements with their places, and lines that cite in no known form.
fn cited() -> (BTreeMap<Id, Vec<String>>, Vec<String>) {
    let mut citations = Citations::default();
    for folder in ["host", "tests", "guest-tools", "examples"] {
        for path in files(&repository().join(folder), ".rs") {
            let shown = path.strip_prefix(repository()).unwrap().display().to_string();
            citations.read(&shown, &text(&path));
        }
    }
    (citations.found, citations.malformed)
}

#[derive(Default)]
struct Citations {
    found: BTreeMap<Id, Vec<String>>,
    malformed: Vec<String>,
}

impl Citations {
    fn read(&mut self, file: &str, text: &str) {
        let mut after_test = false;
        for (n, line) in text.lines().enumerate() {
            let place = format!("{file}:{}", n + 1);
            if let Some((_, words)) = line.split_once("// covers ") {
                self.comment(place, words.trim());
                continue;
            }
            let code = line.trim();
            if code.starts_with("#[test]") || code.starts_with("#[tokio::test") {
                after_test = true;
            } else if let Some((_, rest)) = code.split_once("fn ").filter(|_| after_test) {
                after_test = false;
                let name = rest.split('(').next().unwrap_or(rest);
                let parts =
                    name.split('_').filter(|part| !NOT_IDS.contains(part) && part.starts_with(char::is_lowercase));
                for id in parts.filter_map(|part| Id::parse(&part.to_uppercase())) {
                    self.found.entry(id).or_default().push(place.clone());
                }
            }
        }
    }

    /// A sentence that begins with the word `covers` is no citation; one that begins with an id has to be a whole one.
    fn comment(&mut self, place: String, words: &str) {
        let looks_like_an_id = |word: &str| {
            let mut chars = word.chars();
            chars.next().is_some_and(|char| char.is_ascii_uppercase())
                && chars.next().is_some_and(|char| char.is_ascii_digit())
        };
        let ids: Vec<Option<Id>> = words.split(", ").map(Id::parse).collect();
        if ids.iter().all(Option::is_some) {
            for id in ids.into_iter().flatten() {
                self.found.entry(id).or_default().push(place.clone());
            }
        } else if looks_like_an_id(words) {
            self.malformed.push(format!("{place} is not `// covers` and ids parted by commas"));
        }
    }
}
