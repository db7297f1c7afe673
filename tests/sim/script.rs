//! What the provider answers and how the calls go, as data with a text form: `CR2:an-o,sk-fW_W` is a provider that keeps
//! responses (`C`; `H` is sent the whole history) and tells what became of them (`R`; `-` does not), two turns, a first
//! response with two calls that is whole, and a second without calls.
//!
//! A call is four letters: async or sync (`a`, `s`); class never, safe or keyed (`n`, `s`, `k`); held for nothing (`-`), for an
//! approval that is given or declined (`p`, `d`) or for an output from outside (`x`); and how it goes: it is done (`o`), done
//! late (`l`), with an output that is kept apart (`b`), fails (`f`), crashes (`c`), hangs (`h`), is refused by policy (`r`) or has broken arguments (`m`). A fifth letter
//! `L` puts it into a class of calls that run one at a time. A response ends whole (`W`), cut (`C`), failed (`F`), cancelled
//! (`X`) or superseded (`S`). Requests beyond the script are answered without calls. After the turns may stand what the harness
//! says: calls run one after the other (`s`), a request whose fate is unknown is sent again (`u`), a turn goes on after a lost
//! answer (`g`); and that the provider names sync calls alike in each response (`i`), and that the
//! user's last input is so long that the journal gets a snapshot (`v`).

use std::fmt;
use std::str::FromStr;

use wharf_core::policy::ReplayClass;

use crate::chance::Chance;

/// See the module's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    pub keeps: bool,
    pub retrieves: bool,
    pub turns: usize,
    pub says: Vec<Says>,
    pub responses: Vec<Response>,
}

/// One answer of the provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    pub calls: Vec<CallPlan>,
    pub ending: Ending,
}

/// One call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallPlan {
    pub is_async: bool,
    pub class: ReplayClass,
    pub hold: HoldPlan,
    pub goes: Goes,
    pub locks: bool,
}

macro_rules! letters {
    ($(#[$doc:meta])* $name:ident { $($variant:ident = $letter:literal),+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name { $($variant),+ }

        impl $name {
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            fn letter(self) -> char {
                match self { $(Self::$variant => $letter),+ }
            }

            fn of(letter: char) -> Result<Self, String> {
                Self::ALL.iter().copied().find(|one| one.letter() == letter).ok_or_else(|| {
                    format!("{letter:?} is none of {:?}", Self::ALL.iter().map(|one| one.letter()).collect::<String>())
                })
            }
        }
    };
}

letters! {
    /// What a call waits for, and what comes.
    HoldPlan { Nothing = '-', Approved = 'p', Declined = 'd', Outside = 'x' }
}
letters! {
    /// How a call goes.
    Goes { Done = 'o', Late = 'l', Big = 'b', Fails = 'f', Crashes = 'c', Hangs = 'h', Refused = 'r', Malformed = 'm' }
}
letters! {
    /// What the harness says, and what else is so in every turn.
    Says { Serial = 's', ResendUnknown = 'u', GoesOn = 'g', SameIds = 'i', LongInput = 'v' }
}
letters! {
    /// How a response ends.
    Ending { Whole = 'W', Cut = 'C', Failed = 'F', Cancelled = 'X', Superseded = 'S' }
}

impl Script {
    /// Any script.
    pub fn random(chance: &mut Chance) -> Self {
        let turns = 1 + usize::from(chance.one_in(2));
        let count = 1 + chance.below(4 * turns);
        let responses = (0..count).map(|_| Response::random(chance)).collect();
        let says = Says::ALL.iter().copied().filter(|_| chance.one_in(6)).collect();
        Self { keeps: chance.one_in(2), retrieves: !chance.one_in(3), turns, says, responses }
    }

    /// What is answered to this request, counted from 1.
    pub fn response(&self, request: usize) -> Response {
        let beyond = Response { calls: Vec::new(), ending: Ending::Whole };
        self.responses.get(request - 1).cloned().unwrap_or(beyond)
    }
}

impl Response {
    fn random(chance: &mut Chance) -> Self {
        let calls = (0..chance.below(4)).map(|_| CallPlan::random(chance)).collect();
        let ending = match chance.below(20) {
            0 => Ending::Cut,
            1 => Ending::Failed,
            2 => Ending::Cancelled,
            3 => Ending::Superseded,
            _ => Ending::Whole,
        };
        Self { calls, ending }
    }
}

impl CallPlan {
    fn random(chance: &mut Chance) -> Self {
        let class = [ReplayClass::Never, ReplayClass::Safe, ReplayClass::Keyed][chance.below(3)];
        let hold = match chance.below(8) {
            0 => HoldPlan::Approved,
            1 => HoldPlan::Declined,
            2 => HoldPlan::Outside,
            _ => HoldPlan::Nothing,
        };
        let goes = match chance.below(16) {
            0 | 1 => Goes::Fails,
            2 => Goes::Crashes,
            3 => Goes::Hangs,
            4 => Goes::Refused,
            5 => Goes::Malformed,
            6..=8 => Goes::Late,
            9 => Goes::Big,
            _ => Goes::Done,
        };
        Self { is_async: !chance.one_in(2), class, hold, goes, locks: chance.one_in(5) }
    }
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keeps = if self.keeps { 'C' } else { 'H' };
        let retrieves = if self.retrieves { 'R' } else { '-' };
        write!(f, "{keeps}{retrieves}{}", self.turns)?;
        self.says.iter().try_for_each(|says| write!(f, "{}", says.letter()))?;
        f.write_str(":")?;
        for (at, response) in self.responses.iter().enumerate() {
            let calls: Vec<String> = response.calls.iter().map(CallPlan::to_string).collect();
            let between = if at > 0 { "_" } else { "" };
            write!(f, "{between}{}{}", calls.join(","), response.ending.letter())?;
        }
        Ok(())
    }
}

impl fmt::Display for CallPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let way = if self.is_async { 'a' } else { 's' };
        let class = match self.class {
            ReplayClass::Never => 'n',
            ReplayClass::Safe => 's',
            ReplayClass::Keyed => 'k',
        };
        write!(f, "{way}{class}{}{}{}", self.hold.letter(), self.goes.letter(), if self.locks { "L" } else { "" })
    }
}

impl FromStr for Script {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (head, responses) = text.split_once(':').ok_or("a script has a colon")?;
        let mut head = head.chars();
        let keeps = match head.next() {
            Some('C') => true,
            Some('H') => false,
            other => return Err(format!("a script begins with C or H, not {other:?}")),
        };
        let retrieves = match head.next() {
            Some('R') => true,
            Some('-') => false,
            other => return Err(format!("R or - comes second, not {other:?}")),
        };
        let (turns, says) = head.as_str().split_at_checked(1).ok_or("a number of turns comes third")?;
        let turns = turns.parse().map_err(|_| format!("{turns:?} is no number of turns"))?;
        let says = says.chars().map(Says::of).collect::<Result<_, _>>()?;
        let responses = responses.split('_').map(Response::parse).collect::<Result<_, _>>()?;
        Ok(Self { keeps, retrieves, turns, says, responses })
    }
}

impl Response {
    fn parse(text: &str) -> Result<Self, String> {
        let ending = text.chars().next_back().ok_or("a response has an ending")?;
        let calls = text[..text.len() - ending.len_utf8()].split(',').filter(|call| !call.is_empty());
        Ok(Self { calls: calls.map(CallPlan::parse).collect::<Result<_, _>>()?, ending: Ending::of(ending)? })
    }
}

impl CallPlan {
    fn parse(text: &str) -> Result<Self, String> {
        let letters: Vec<char> = text.chars().collect();
        let (way, class, hold, goes, locks) = match letters[..] {
            [way, class, hold, goes] => (way, class, hold, goes, false),
            [way, class, hold, goes, 'L'] => (way, class, hold, goes, true),
            _ => return Err(format!("{text:?} is no call")),
        };
        let is_async = match way {
            'a' => true,
            's' => false,
            _ => return Err(format!("{way:?} is neither a nor s")),
        };
        let class = match class {
            'n' => ReplayClass::Never,
            's' => ReplayClass::Safe,
            'k' => ReplayClass::Keyed,
            _ => return Err(format!("{class:?} is no class")),
        };
        Ok(Self { is_async, class, hold: HoldPlan::of(hold)?, goes: Goes::of(goes)?, locks })
    }
}
