//! What happens to the processes of a round. It is drawn from a seed and a number alone, so a round can be played again.

use std::time::Duration;

use crate::script::{Place, StepKind, Tool};

/// Where a process is when it happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Point {
    /// The provider has such a request and has sent nothing.
    Request(StepKind),
    /// The provider has sent its answer up to here.
    Stream(StepKind, Place),
    /// A run of this tool has left its line in the witness, and goes on.
    Witness(Tool),
    /// A step of the n-th write of a kind to the store.
    Write(&'static str, u64, &'static str),
    /// After this time.
    Any(Duration),
}

/// What happens to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blow {
    /// SIGKILL.
    Kill,
    /// SIGTERM; what it waits for comes to an end then.
    Terminate,
    /// SIGTERM; what it waits for goes on until its time is over.
    Exhaust,
    /// Another process goes on with `--take-over` while this one lives.
    TakeOver,
    /// `wharf session takeover`, and then another process.
    Takeover,
}

/// Something that happens to one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cut {
    pub(crate) point: Point,
    pub(crate) blow: Blow,
    /// Between reaching the point and the blow: none, or enough for the process to deal with what came last.
    pub(crate) pause: Duration,
}

/// What becomes of an answer whose reader went away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Broken {
    /// The provider finished and kept it.
    Kept,
    /// It never was.
    Gone,
}

/// A round.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Plan {
    /// What happens to the first process, to the second, and so on; those after the last are left in peace.
    pub(crate) cuts: Vec<Cut>,
    pub(crate) broken: Broken,
    /// Whether the provider gives an answer out again; if not, it knows of none, whatever it goes on from.
    pub(crate) retrieval: bool,
    /// Answers that call tools after the first one.
    pub(crate) more: usize,
    /// Whether an operator who may choose gives the turn up.
    pub(crate) gives_up: bool,
}

/// Steps of a write, as the program is told of them.
const BEFORE_WRITE: &str = "before-write";
const BEFORE_SYNC: &str = "before-sync";
const BEFORE_ANSWER: &str = "before-answer";

/// Kinds of point, each with the name that the figures have for it.
pub(crate) const KINDS: usize = 21;

/// Rounds in which each kind but the last comes first once, and any moment four times more.
pub(crate) const CYCLE: usize = KINDS + 3;

/// The kind whose point no other names.
const ANY_MOMENT: usize = 13;

/// The kind that takes 20 s: it comes once in four cycles.
const EXHAUST: usize = 20;

/// The names.
pub(crate) const NAMES: [&str; KINDS] = [
    "request received",
    "stream: begun",
    "stream: after text",
    "stream: after a call",
    "stream: in a call",
    "stream: all calls",
    "stream: last byte",
    "tool ran: never",
    "tool ran: safe",
    "tool ran: keyed",
    "journal: not written",
    "journal: not synced",
    "journal: not answered",
    "any moment",
    "SIGTERM in a stream",
    "SIGTERM in a tool",
    "taken over in a stream",
    "taken over in a tool",
    "takeover command in a stream",
    "takeover command in a tool",
    "SIGTERM, and the tool goes on",
];

impl Cut {
    /// Its place in [`NAMES`].
    pub(crate) fn kind(&self) -> usize {
        let in_tool = usize::from(matches!(self.point, Point::Witness(_)));
        match (self.blow, self.point) {
            (Blow::Exhaust, _) => EXHAUST,
            (Blow::Terminate, _) => 14 + in_tool,
            (Blow::TakeOver, _) => 16 + in_tool,
            (Blow::Takeover, _) => 18 + in_tool,
            (Blow::Kill, Point::Request(_)) => 0,
            (Blow::Kill, Point::Stream(_, place)) => match place {
                Place::Begun => 1,
                Place::Text => 2,
                Place::Call => 3,
                Place::InCall => 4,
                Place::Calls => 5,
                Place::LastByte => 6,
            },
            (Blow::Kill, Point::Witness(Tool::Pay)) => 7,
            (Blow::Kill, Point::Witness(Tool::Look)) => 8,
            (Blow::Kill, Point::Witness(Tool::Book)) => 9,
            (Blow::Kill, Point::Write(_, _, BEFORE_WRITE)) => 10,
            (Blow::Kill, Point::Write(_, _, BEFORE_SYNC)) => 11,
            (Blow::Kill, Point::Write(..)) => 12,
            (Blow::Kill, Point::Any(_)) => ANY_MOMENT,
        }
    }

    fn draw(kind: usize, is_first: bool, calm: Duration, dice: &mut Dice) -> Self {
        let step = *dice.of(&[StepKind::Ask, StepKind::Ask, StepKind::More, StepKind::Done]);
        let calling = *dice.of(&[StepKind::Ask, StepKind::More]);
        let tool = *dice.of(&[Tool::Pay, Tool::Look, Tool::Book]);
        let place = *dice.of(&[Place::Begun, Place::Text, Place::Calls]);
        // A process that nothing happens to appends about 30 times; one that goes on has less to do.
        let append = 1 + dice.below(if is_first { 32 } else { 16 });
        let (write, n) = if dice.below(16) == 0 { ("acquire", 1) } else { ("append", append) };
        let (point, blow) = match kind {
            0 => (Point::Request(step), Blow::Kill),
            1 => (Point::Stream(step, Place::Begun), Blow::Kill),
            2 => (Point::Stream(step, Place::Text), Blow::Kill),
            3 => (Point::Stream(calling, Place::Call), Blow::Kill),
            4 => (Point::Stream(StepKind::Ask, Place::InCall), Blow::Kill),
            5 => (Point::Stream(calling, Place::Calls), Blow::Kill),
            6 => (Point::Stream(step, Place::LastByte), Blow::Kill),
            7 => (Point::Witness(Tool::Pay), Blow::Kill),
            8 => (Point::Witness(Tool::Look), Blow::Kill),
            9 => (Point::Witness(Tool::Book), Blow::Kill),
            10 => (Point::Write(write, n, BEFORE_WRITE), Blow::Kill),
            11 => (Point::Write(write, n, BEFORE_SYNC), Blow::Kill),
            12 => (Point::Write(write, n, BEFORE_ANSWER), Blow::Kill),
            ANY_MOMENT => (Point::Any(calm * u32::try_from(dice.below(150)).unwrap_or(0) / 100), Blow::Kill),
            14 => (Point::Stream(step, place), Blow::Terminate),
            15 => (Point::Witness(tool), Blow::Terminate),
            16 => (Point::Stream(step, place), Blow::TakeOver),
            17 => (Point::Witness(tool), Blow::TakeOver),
            18 => (Point::Stream(step, place), Blow::Takeover),
            19 => (Point::Witness(tool), Blow::Takeover),
            _ => (Point::Witness(tool), Blow::Exhaust),
        };
        let pause = if dice.below(2) == 0 { 0 } else { dice.below(40) };
        Self { point, blow, pause: Duration::from_millis(pause) }
    }
}

impl Plan {
    /// A round that nothing happens to.
    pub(crate) fn calm() -> Self {
        Self { cuts: Vec::new(), broken: Broken::Kept, retrieval: true, more: 1, gives_up: false }
    }

    /// Round `n` of a seed: the kinds of point take turns. `calm` is how long a process takes that nothing happens to.
    pub(crate) fn of(seed: u64, n: u64, calm: Duration) -> Self {
        let mut dice = Dice::new(seed, n);
        let slot = usize::try_from(n).unwrap_or(0) % (4 * CYCLE);
        let kind = match slot % CYCLE {
            _ if slot == 4 * CYCLE - 1 => EXHAUST,
            kind if kind < EXHAUST => kind,
            _ => ANY_MOMENT,
        };
        let mut cuts = vec![Cut::draw(kind, true, calm, &mut dice)];
        while cuts.len() < 4 && dice.below(2) == 0 {
            // In the middle of a call: only the very first answer can be so, since its call is never finished.
            let kind = [0, 1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12, 13, 13, 14, 15, 16, 17, 18, 19][dice.index(20)];
            cuts.push(Cut::draw(kind, false, calm, &mut dice));
        }
        Self {
            cuts,
            broken: *dice.of(&[Broken::Kept, Broken::Gone]),
            retrieval: dice.below(4) > 0,
            more: 1 + dice.index(2),
            gives_up: dice.below(12) == 0,
        }
    }
}

/// Numbers that follow from a seed (SplitMix64, by Steele, Lea and Flood).
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64, n: u64) -> Self {
        let mut dice = Self(seed);
        dice.0 = dice.next() ^ n;
        dice
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn index(&mut self, n: usize) -> usize {
        usize::try_from(self.below(n as u64)).unwrap_or(0)
    }

    fn of<'t, T>(&mut self, all: &'t [T]) -> &'t T {
        &all[self.index(all.len())]
    }
}
