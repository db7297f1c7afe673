//! The checking model: what must hold whatever fails, judged from outside alone. It uses nothing of the core but value types.
//!
//! The conversation that a request amounts to is what is judged: a provider that keeps responses is sent only what is new, one
//! that keeps none is sent everything again, and in both an output may stand in it once.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use wharf_core::policy::ReplayClass;

use crate::outside::{Event, Line, Outside, Owner, mark, names};

/// What was found wrong, in words; empty if all is well.
pub fn check(world: &Outside) -> Vec<String> {
    let check = Check { world, breaches: RefCell::default() };
    check.effects();
    check.durable_first();
    check.owners();
    check.requests();
    check.ends();
    check.breaches.into_inner()
}

struct Check<'a> {
    world: &'a Outside,
    breaches: RefCell<Vec<String>>,
}

impl Check<'_> {
    fn say(&self, breach: String) {
        self.breaches.borrow_mut().push(breach);
    }

    fn events(&self) -> impl Iterator<Item = (usize, &Event)> {
        self.world.events.iter().enumerate()
    }

    fn starts(&self, call: &str) -> Vec<(usize, Option<&String>)> {
        self.events()
            .filter_map(|(at, event)| match event {
                Event::Started { call: started, key, .. } if started == call => Some((at, key.as_ref())),
                _ => None,
            })
            .collect()
    }

    /// Promise 2, and what policy, an approval and a settled result say of a start.
    fn effects(&self) {
        let narrowed = self.world.events.iter().position(|event| *event == Event::Narrowed);
        let mut keys: BTreeMap<String, String> = BTreeMap::new();
        for (call, rules) in &self.world.rules {
            let starts = self.starts(call);
            if rules.class == ReplayClass::Never && starts.len() > 1 {
                self.say(format!("never: {call} was started {} times", starts.len()));
            }
            let spans =
                |narrowed: &usize| starts.iter().any(|s| s.0 < *narrowed) && starts.iter().any(|s| s.0 > *narrowed);
            if narrowed.as_ref().is_some_and(spans) {
                self.say(format!("never: {call} was started again although policy forbids it by now"));
            }
            if rules.refused && !starts.is_empty() {
                self.say(format!("refused: {call} was started"));
            }
            if rules.class == ReplayClass::Keyed {
                let used: BTreeSet<Option<&String>> = starts.iter().map(|(_, key)| *key).collect();
                if used.len() > 1 || (narrowed.is_none() && used.contains(&None)) {
                    self.say(format!("key: {call} ran with {used:?}"));
                }
                for key in used.into_iter().flatten() {
                    if let Some(other) = keys.insert(key.clone(), call.clone()) {
                        self.say(format!("key: {call} shares {key} with {other}"));
                    }
                }
            }
            let decided = self.events().find_map(|(at, event)| match event {
                Event::Decided { call: held, output: None } if held == call => Some(at),
                _ => None,
            });
            let settled = self.recorded("call.settled", call, None);
            for (at, _) in starts {
                if rules.held && decided.is_none_or(|decided| at < decided) {
                    self.say(format!("held: {call} was started before it was approved"));
                }
                if settled.is_some_and(|settled| settled < at) {
                    self.say(format!("result: {call} was started after it had its result"));
                }
            }
        }
    }

    /// Where a record of this kind that names the call became durable; by this owner, if one is given.
    fn recorded(&self, wanted: &str, call: &str, by: Option<Owner>) -> Option<usize> {
        self.events().find_map(|(at, event)| match event {
            Event::Durable { owner, kind, text } if kind == wanted && by.is_none_or(|by| by == *owner) => {
                names(text, call).then_some(at)
            }
            _ => None,
        })
    }

    /// Promise 1.
    fn durable_first(&self) {
        let (mut begun, mut sent) = (0, 0);
        let mut starts: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
        for event in &self.world.events {
            match event {
                Event::Durable { kind, .. } if kind == "response.begun" => begun += 1,
                Event::Durable { kind, text, .. } if kind == "call.started" => {
                    if let Some(call) = self.world.rules.keys().find(|call| names(text, call)) {
                        starts.entry(call).or_default().0 += 1;
                    }
                }
                Event::Sent { request, .. } => {
                    sent += 1;
                    if sent > begun {
                        self.say(format!("durable: request {request} was sent before a record of it"));
                    }
                }
                Event::Started { call, .. } => {
                    let (durable, done) = starts.entry(call).or_default();
                    *done += 1;
                    if *done > *durable {
                        self.say(format!("durable: {call} was started before a record of it"));
                    }
                }
                _ => {}
            }
        }
    }

    /// Promise 4: who was replaced sends nothing, and who is gone does nothing.
    fn owners(&self) {
        let (mut newest, mut gone) = (0, BTreeSet::new());
        for event in &self.world.events {
            match event {
                Event::Opened(owner) => newest = *owner,
                Event::Gone(owner) => drop(gone.insert(*owner)),
                Event::Sent { owner, request, .. } if *owner != newest || gone.contains(owner) => {
                    self.say(format!("owner: {owner} sent request {request} although {newest} had the session"));
                }
                Event::Durable { owner, kind, .. } if *owner != newest => {
                    self.say(format!("owner: {owner} appended {kind} although {newest} had the session"));
                }
                Event::Started { owner, call, .. } | Event::Ended { owner, call, .. } if gone.contains(owner) => {
                    self.say(format!("owner: {owner} ran {call} when it was gone"));
                }
                _ => {}
            }
        }
    }

    /// In every conversation that was ever sent: one output at most, after its call, and never one for a call of an answer
    /// that is not part of it (orphans).
    fn requests(&self) {
        for event in &self.world.events {
            let Event::Sent { request, lines, .. } = event else { continue };
            let (mut calls, mut outputs) = (BTreeSet::new(), BTreeSet::new());
            for line in lines {
                match line {
                    Line::Call(call) if !calls.insert(call) => {
                        self.say(format!("history: {call} stands twice in request {request}"));
                    }
                    Line::Output(call, _) if !calls.contains(call) => {
                        self.say(format!("orphan: request {request} has an output for the unknown {call}"));
                    }
                    Line::Output(call, _) if !outputs.insert(call) => {
                        self.say(format!("output twice: request {request} has two outputs of {call}"));
                    }
                    _ => {}
                }
            }
        }
    }

    /// The conversation up to and with an answer.
    fn conversation(&self, answer: &str) -> Option<Vec<Line>> {
        let (request, calls, accepted) = self.world.events.iter().find_map(|event| match event {
            Event::Made { request, response, calls, accepted } if response == answer => {
                Some((*request, calls, *accepted))
            }
            _ => None,
        })?;
        let lines = self.world.events.iter().find_map(|event| match event {
            Event::Sent { request: sent, lines, .. } if *sent == request => Some(lines),
            _ => None,
        })?;
        let made = std::iter::once(Line::Answer(answer.to_owned())).chain(calls.iter().cloned().map(Line::Call));
        accepted.then(|| lines.iter().cloned().chain(made).collect())
    }

    /// Promises 5, 6 and 11: every turn ends, and at the end everything is answered once.
    fn ends(&self) {
        if let Some(Event::Stuck(why)) = self.world.events.iter().find(|event| matches!(event, Event::Stuck(_))) {
            return self.say(format!("stuck: {why}"));
        }
        let shown = self.world.events.iter().rev().find_map(|event| match event {
            Event::Shown { turn, status, answer } => Some((*turn, status.clone(), answer.clone())),
            _ => None,
        });
        let Some((turns, status, answer)) = shown else { return self.say("stuck: no turn ended".to_owned()) };
        let done = status == "completed";
        let Some(answer) = answer else {
            if done {
                self.say("shown: a turn was completed without an answer".to_owned());
            }
            return;
        };
        let Some(lines) = self.conversation(&answer) else {
            return self.say(format!("shown: {answer} was never accepted at the provider"));
        };
        self.rewritten(&lines);
        for turn in 1..=turns {
            let said = lines.iter().filter(|line| **line == Line::User(format!("input {turn}"))).count();
            let abandoned = self.world.events.iter().any(|event| {
                matches!(event, Event::Shown { turn: ended, status, .. } if *ended == turn && status != "completed")
            });
            if said > 1 || (said == 0 && !abandoned) {
                self.say(format!("input: what the user said in turn {turn} stands {said} times in the conversation"));
            }
        }
        for (call, rules) in &self.world.rules {
            let outputs: Vec<&String> = lines
                .iter()
                .filter_map(|line| match line {
                    Line::Output(of, output) if of == call => Some(output),
                    _ => None,
                })
                .collect();
            let told =
                lines.iter().filter(|line| matches!(line, Line::Host(text) if text.contains(&mark(call)))).count();
            let started = !self.starts(call).is_empty();
            // The host cannot know more than its records: a start that is durable may have had its effect.
            let tells = self.recorded("call.started", call, None).is_some();
            if lines.contains(&Line::Call(call.clone())) {
                match outputs.first() {
                    None if done => self.say(format!("output lost: {call} of an accepted answer has none")),
                    None => {}
                    Some(output) => self.result(call, output),
                }
                if told > 0 {
                    self.say(format!("told: {call} of an accepted answer was told as lost"));
                }
            } else {
                if started && !rules.is_async {
                    self.say(format!("sync: {call} was started although its answer was never accepted"));
                }
                if (done && told != usize::from(tells)) || told > 1 {
                    self.say(format!("told: the orphan {call} (started: {started}) was told {told} times"));
                }
            }
        }
    }

    /// Nothing that a model was shown in an accepted answer's conversation is shown otherwise later.
    fn rewritten(&self, last: &[Line]) {
        let answers: Vec<&String> =
            last.iter().filter_map(|line| if let Line::Answer(id) = line { Some(id) } else { None }).collect();
        for id in answers {
            match self.conversation(id) {
                Some(lines) if last.starts_with(&lines) => {}
                Some(_) => self.say(format!("history: what stood before {id} was rewritten later")),
                None => self.say(format!("history: {id} is part of the conversation and was not accepted")),
            }
        }
    }

    /// True if another one opened the session while this one had it.
    fn replaced(&self, owner: Owner) -> bool {
        let has = self.world.events.iter().skip_while(|event| **event != Event::Opened(owner)).skip(1);
        has.take_while(|event| **event != Event::Gone(owner)).any(|event| matches!(event, Event::Opened(_)))
    }

    /// Promise 5, for a call whose output was delivered: it is the result of a run. Without that it is an error, and either
    /// nobody ran it to its end, or every owner that did lost its life, store or lease before the result was durable.
    fn result(&self, call: &str, output: &str) {
        let is_error = output.contains("\"error\"");
        let mut excused = true;
        for event in &self.world.events {
            match event {
                Event::Decided { call: held, output: Some(given) } if held == call && given == output => return,
                Event::Ended { owner, call: ended, output: result } if ended == call => {
                    if result.as_ref().map_or(is_error, |result| result == output) {
                        return;
                    }
                    let lost = self.world.events.contains(&Event::Disturbed(*owner)) || self.replaced(*owner);
                    excused &= lost && self.recorded("call.settled", call, Some(*owner)).is_none();
                }
                _ => {}
            }
        }
        if !excused {
            self.say(format!("result lost: {call} had a result and {output:?} was delivered"));
        } else if !is_error {
            self.say(format!("result made up: {output:?} was delivered for {call}"));
        }
    }
}
