//! What the model says in a round: an answer that calls three tools, one or two more that call two, and then text. Each
//! answer has spare copies with call ids of their own, since one that was lost is asked for again.

use wharf_simulate::script::{CallItem, Extent, Item, Omitted, Retrieved};
use wharf_simulate::{Answer, Expect, Script, Step};

use crate::plan::{Broken, Plan, Point};

/// The kinds of answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StepKind {
    /// To the question: a safe and a `never` call that run meanwhile, and a keyed one that is waited for.
    Ask,
    /// To the first outputs: a `never` call that is waited for and a safe one that runs meanwhile.
    More,
    /// Text.
    Done,
}

/// A place in an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// It has an id.
    Begun,
    Text,
    /// After its first call.
    Call,
    /// In a call's arguments.
    InCall,
    /// After its last call, before its end.
    Calls,
    /// Sent whole.
    LastByte,
}

/// The tools of the witness, named in the log as here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tool {
    /// `never`
    Pay,
    /// `safe`
    Look,
    /// `keyed`
    Book,
}

/// Spare copies of the first answer; at most this many processes can lose one.
const ASKS: usize = 10;

/// Texts at the end: one, and one for each output that comes late or is asked for again.
const TEXTS: usize = 24;

impl Tool {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Pay => "pay",
            Self::Look => "look",
            Self::Book => "book",
        }
    }
}

impl StepKind {
    fn letter(self) -> char {
        match self {
            Self::Ask => 'a',
            Self::More => 'm',
            Self::Done => 'd',
        }
    }

    /// Name of a copy; call ids end with it.
    fn copy(self, n: usize) -> String {
        format!("{}{n}", self.letter())
    }

    /// Whether a step of this name is a copy of it.
    pub(crate) fn is(self, name: &str) -> bool {
        name.starts_with(self.letter())
    }

    fn tools(self) -> &'static [(Tool, bool)] {
        match self {
            Self::Ask => &[(Tool::Look, true), (Tool::Pay, true), (Tool::Book, false)],
            Self::More => &[(Tool::Pay, false), (Tool::Look, true)],
            Self::Done => &[],
        }
    }

    fn copies(self, plan: &Plan) -> usize {
        match self {
            Self::Ask => ASKS,
            Self::More => plan.more,
            Self::Done => TEXTS,
        }
    }
}

/// Ids of the calls that the step of this name makes.
pub(crate) fn calls_of(step_name: &str) -> Vec<String> {
    let kind = [StepKind::Ask, StepKind::More, StepKind::Done].into_iter().find(|kind| kind.is(step_name));
    kind.map(|kind| kind.tools().iter().map(|(tool, _)| call_id(*tool, step_name)).collect()).unwrap_or_default()
}

fn call_id(tool: Tool, step_name: &str) -> String {
    format!("call_{}_{step_name}", tool.name())
}

/// Ids of all calls of a tool in a round.
pub(crate) fn calls_to(tool: Tool, plan: &Plan) -> Vec<String> {
    let steps =
        [StepKind::Ask, StepKind::More].into_iter().flat_map(|kind| (0..kind.copies(plan)).map(move |n| kind.copy(n)));
    let calls = steps.flat_map(|step| calls_of(&step));
    let start = call_id(tool, "");
    calls.filter(|id| id.starts_with(&start)).collect()
}

/// A gate and the point that it is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Gate {
    pub(crate) name: String,
    pub(crate) point: Point,
}

/// The script of a round, and its gates: at every point of the plan, in every copy.
pub(crate) fn script(plan: &Plan) -> (Script, Vec<Gate>) {
    let mut gates = Vec::new();
    let mut script = Script::new("crash").first_match();
    for kind in [StepKind::Ask, StepKind::More, StepKind::Done] {
        for n in 0..kind.copies(plan) {
            script = script.step(step(kind, n, plan, &mut gates));
        }
    }
    (script, gates)
}

fn step(kind: StepKind, n: usize, plan: &Plan, gates: &mut Vec<Gate>) -> Step {
    let name = kind.copy(n);
    let points: Vec<Point> = plan.cuts.iter().map(|cut| cut.point).collect();
    let mut gate = |answer: Answer, point: Point| {
        if !points.contains(&point) {
            return answer;
        }
        let gate = Gate { name: format!("{name} {point:?}"), point };
        let answer = answer.wait_for(gate.name.clone());
        gates.push(gate);
        answer
    };
    let mut answer = Answer::new().if_broken(match plan.broken {
        Broken::Kept => Retrieved::Completed,
        Broken::Gone => Retrieved::NotFound,
    });
    if !plan.retrieval {
        answer = answer.retrieve([Retrieved::NotFound]);
    }
    if points.contains(&Point::Request(kind)) {
        // Then nothing comes before the gate.
        answer = answer.omit(Omitted::Created).omit(Omitted::InProgress);
    }
    answer = gate(answer, Point::Request(kind));
    answer = gate(answer, Point::Stream(kind, Place::Begun));
    answer = gate(answer.text(text_of(&name)), Point::Stream(kind, Place::Text));
    for (at, (tool, is_async)) in kind.tools().iter().enumerate() {
        let call = CallItem::new(call_id(*tool, &name), tool.name(), "{}");
        answer = answer.item(Item::FunctionCall(if *is_async { call.asynchronous() } else { call }));
        if at == 0 {
            answer = gate(answer, Point::Stream(kind, Place::Call));
            // The process of the first copy ends here, so that nobody sees the call that is never finished.
            if kind == StepKind::Ask && n == 0 && points.first() == Some(&Point::Stream(kind, Place::InCall)) {
                let half = CallItem::new("call_half", Tool::Pay.name(), "{ ").extent(Extent::Partial).asynchronous();
                answer = gate(answer.item(Item::FunctionCall(half)), Point::Stream(kind, Place::InCall));
            }
        }
    }
    answer = gate(answer, Point::Stream(kind, Place::Calls));
    let expect = if kind == StepKind::Ask { Expect::new().no_previous() } else { Expect::new() };
    answer.expect(expect).named(name)
}

/// What the step of this name says.
pub(crate) fn text_of(step_name: &str) -> String {
    format!("This is {step_name}. ")
}
