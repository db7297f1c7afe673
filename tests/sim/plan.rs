//! What goes wrong in one run, as data with a text form: faults joined by `+`, such as `w12:crash-synced+k40`.
//!
//! | fault | what happens |
//! |---|---|
//! | `w12:WAY` | the 12th write of the store from the start goes wrong this way |
//! | `k40` | the process that is woken the 40th time (all wakings counted) is killed instead |
//! | `t3` | the process is killed at the third moment (beginning or end) of a tool |
//! | `s2:4:WAY` | the stream of request 2 is lost after 4 events |
//! | `q2:WAY` | request 2 brings no stream |
//! | `g1:WAY` | the first question what became of a response is answered this way |
//! | `o40:takeover`, `o40:expiry` | another process takes the session at waking 40; the old one goes on |
//! | `o40:taken` | the session is taken from its owner and let go |
//! | `j40:SECONDS` | time jumps at waking 40 |
//! | `c40`, `p40` | the process is told to cancel, to stop |
//! | `n2` | before process 3 policy becomes narrower: every call is of class never |
//! | `i40:cancel`, `i40:resend`, `i40:receipt`, `i40:abandon` | somebody leaves a command for the session |
//! | `b2:WAY` | the same when process 2 is gone and nobody owns the session |

use std::fmt;
use std::str::FromStr;

use wharf_store::Stage;

use crate::chance::Chance;

/// One thing that goes wrong, once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    Write { n: usize, way: WriteWay },
    Kill { waking: usize },
    KillInTool { moment: usize },
    Stream { request: usize, events: usize, way: StreamWay },
    Request { request: usize, way: RequestWay },
    Retrieval { n: usize, way: RetrievalWay },
    Owner { waking: usize, way: OwnerWay },
    Jump { waking: usize, seconds: u64 },
    Cancel { waking: usize },
    Stop { waking: usize },
    Inbox { waking: usize, way: InboxWay },
    Between { process: usize, way: InboxWay },
    Narrower { process: usize },
}

macro_rules! ways {
    ($(#[$doc:meta])* $name:ident { $($(#[$each:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name { $($(#[$each])* $variant),+ }

        impl $name {
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            pub fn word(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }

        impl FromStr for $name {
            type Err = String;

            fn from_str(word: &str) -> Result<Self, String> {
                Self::ALL.iter().copied().find(|way| way.word() == word).ok_or_else(|| {
                    let known: Vec<&str> = Self::ALL.iter().map(|way| way.word()).collect();
                    format!("{word:?} is none of {}", known.join(", "))
                })
            }
        }
    };
}

ways! {
    /// How a write of the store goes wrong.
    WriteWay {
        /// The machine stops before anything is written.
        CrashBefore = "crash-before",
        /// It stops when it is written and not synced: the write is lost.
        CrashUnsynced = "crash-unsynced",
        /// It stops when it is synced, and nobody was told.
        CrashSynced = "crash-synced",
        /// It stops in the middle of the write: what of it is there counts for nothing.
        Torn = "torn",
        /// An error before anything is written; the next try works.
        Busy = "busy",
        /// An error after it was written: it is undone; the next try works.
        Undone = "undone",
        /// Nobody can tell whether it is there, and it is not.
        LostRequest = "lost-request",
        /// Nobody can tell whether it is there, and it is.
        LostAnswer = "lost-answer",
        /// An error for good before anything is written: nothing can be written any more by this process.
        Broken = "broken",
        /// The same after it was written and before it was synced.
        BrokenUnsynced = "broken-unsynced",
        /// The same after it was synced: nobody can tell whether it is there.
        BrokenSynced = "broken-synced",
        /// The store goes away before the write and is back in seconds, within the lease; the host lives.
        DownShort = "down-short",
        /// The store goes away after the sync and comes back when the lease is over; the host lives.
        DownLong = "down-long",
    }
}
ways! {
    /// How a stream is lost, and what the provider makes of the response.
    StreamWay { Ends = "ends", Breaks = "breaks", Failed = "failed", Vanished = "vanished" }
}
ways! {
    /// How a request brings no stream.
    RequestWay { NotSent = "not-sent", Refused = "refused", Lost = "lost", Taken = "taken", Late = "late" }
}
ways! {
    /// What a retrieval brings instead of the truth.
    RetrievalWay { Fails = "fails", NotFound = "not-found", Slow = "slow" }
}
ways! {
    /// How another owner comes.
    OwnerWay { TakeOver = "takeover", Expiry = "expiry", Taken = "taken" }
}
ways! {
    /// What somebody leaves in the inbox.
    InboxWay { Cancel = "cancel", Resend = "resend", Receipt = "receipt", Abandon = "abandon" }
}

impl WriteWay {
    /// Where in the write it happens.
    pub fn stage(self) -> Stage {
        match self {
            Self::CrashBefore | Self::Busy | Self::LostRequest | Self::Broken | Self::DownShort => Stage::BeforeWrite,
            Self::CrashUnsynced | Self::Torn | Self::Undone | Self::BrokenUnsynced => Stage::AfterWriteBeforeSync,
            Self::CrashSynced | Self::LostAnswer | Self::BrokenSynced | Self::DownLong => Stage::AfterSyncBeforeAnswer,
        }
    }
}

impl Fault {
    /// The name under which it is counted.
    pub fn name(self) -> String {
        match self {
            Self::Write { way, .. } => format!("write {}", way.word()),
            Self::Kill { .. } => "kill".to_owned(),
            Self::KillInTool { .. } => "kill in a tool".to_owned(),
            Self::Stream { way, .. } => format!("stream {}", way.word()),
            Self::Request { way, .. } => format!("request {}", way.word()),
            Self::Retrieval { way, .. } => format!("retrieval {}", way.word()),
            Self::Owner { way, .. } => format!("owner by {}", way.word()),
            Self::Jump { .. } => "time jumps".to_owned(),
            Self::Cancel { .. } => "cancel".to_owned(),
            Self::Stop { .. } => "stop".to_owned(),
            Self::Inbox { way, .. } => format!("inbox {}", way.word()),
            Self::Narrower { .. } => "narrower policy".to_owned(),
            Self::Between { way, .. } => format!("between owners {}", way.word()),
        }
    }

    /// The names of all ways that there are.
    pub fn all_names() -> Vec<String> {
        let mut all = vec![
            Self::Kill { waking: 0 },
            Self::KillInTool { moment: 0 },
            Self::Jump { waking: 0, seconds: 0 },
            Self::Cancel { waking: 0 },
            Self::Stop { waking: 0 },
            Self::Narrower { process: 0 },
        ];
        all.extend(WriteWay::ALL.iter().map(|&way| Self::Write { n: 0, way }));
        all.extend(StreamWay::ALL.iter().map(|&way| Self::Stream { request: 0, events: 0, way }));
        all.extend(RequestWay::ALL.iter().map(|&way| Self::Request { request: 0, way }));
        all.extend(RetrievalWay::ALL.iter().map(|&way| Self::Retrieval { n: 0, way }));
        all.extend(OwnerWay::ALL.iter().map(|&way| Self::Owner { waking: 0, way }));
        all.extend(InboxWay::ALL.iter().map(|&way| Self::Inbox { waking: 0, way }));
        all.extend(InboxWay::ALL.iter().map(|&way| Self::Between { process: 0, way }));
        all.into_iter().map(Self::name).collect()
    }

    /// Any fault of a run of about so many writes and wakings.
    pub fn random(chance: &mut Chance, writes: usize, wakings: usize) -> Self {
        let waking = 1 + chance.below(wakings);
        match chance.below(22) {
            21 => Self::Narrower { process: 1 + chance.below(3) },
            20 => Self::Between { process: 1 + chance.below(3), way: pick(chance, InboxWay::ALL) },
            0..7 => Self::Write { n: 1 + chance.below(writes), way: pick(chance, WriteWay::ALL) },
            7..9 => Self::Kill { waking },
            9 => Self::KillInTool { moment: 1 + chance.below(8) },
            10..12 => Self::Stream {
                request: 1 + chance.below(6),
                events: chance.below(7),
                way: pick(chance, StreamWay::ALL),
            },
            12 | 13 => Self::Request { request: 1 + chance.below(6), way: pick(chance, RequestWay::ALL) },
            14 => Self::Retrieval { n: 1 + chance.below(2), way: pick(chance, RetrievalWay::ALL) },
            15 | 16 => Self::Owner { waking, way: pick(chance, OwnerWay::ALL) },
            17 => match chance.below(3) {
                0 => Self::Jump { waking, seconds: 1 << chance.below(8) },
                1 => Self::Cancel { waking },
                _ => Self::Stop { waking },
            },
            _ => Self::Inbox { waking, way: pick(chance, InboxWay::ALL) },
        }
    }
}

fn pick<T: Copy>(chance: &mut Chance, from: &[T]) -> T {
    from[chance.below(from.len())]
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Write { n, way } => write!(f, "w{n}:{}", way.word()),
            Self::Kill { waking } => write!(f, "k{waking}"),
            Self::KillInTool { moment } => write!(f, "t{moment}"),
            Self::Stream { request, events, way } => write!(f, "s{request}:{events}:{}", way.word()),
            Self::Request { request, way } => write!(f, "q{request}:{}", way.word()),
            Self::Retrieval { n, way } => write!(f, "g{n}:{}", way.word()),
            Self::Owner { waking, way } => write!(f, "o{waking}:{}", way.word()),
            Self::Jump { waking, seconds } => write!(f, "j{waking}:{seconds}"),
            Self::Cancel { waking } => write!(f, "c{waking}"),
            Self::Stop { waking } => write!(f, "p{waking}"),
            Self::Inbox { waking, way } => write!(f, "i{waking}:{}", way.word()),
            Self::Narrower { process } => write!(f, "n{process}"),
            Self::Between { process, way } => write!(f, "b{process}:{}", way.word()),
        }
    }
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let kind = text.chars().next().ok_or("a fault has a letter")?;
        let mut parts = text[kind.len_utf8()..].split(':');
        let number = |part: Option<&str>| {
            let part = part.ok_or_else(|| format!("{text:?} has too few parts"))?;
            part.parse::<usize>().map_err(|_| format!("{part:?} in {text:?} is no number"))
        };
        let n = number(parts.next())?;
        let mut word = || parts.next().ok_or_else(|| format!("{text:?} has too few parts"));
        Ok(match kind {
            'w' => Self::Write { n, way: word()?.parse()? },
            'k' => Self::Kill { waking: n },
            't' => Self::KillInTool { moment: n },
            's' => Self::Stream { request: n, events: number(word().ok())?, way: word()?.parse()? },
            'q' => Self::Request { request: n, way: word()?.parse()? },
            'g' => Self::Retrieval { n, way: word()?.parse()? },
            'o' => Self::Owner { waking: n, way: word()?.parse()? },
            'j' => Self::Jump { waking: n, seconds: number(word().ok())? as u64 },
            'c' => Self::Cancel { waking: n },
            'p' => Self::Stop { waking: n },
            'i' => Self::Inbox { waking: n, way: word()?.parse()? },
            'n' => Self::Narrower { process: n },
            'b' => Self::Between { process: n, way: word()?.parse()? },
            _ => return Err(format!("{text:?} begins with no kind of fault")),
        })
    }
}
