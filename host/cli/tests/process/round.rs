//! A round: processes one after the other over one session, each struck as the plan says, until the turn has ended.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::watch;
use tokio::task::JoinSet;
use wharf_simulate::{End, Options, Server};

use crate::books::{posts, settled};
use crate::check::{self, Breach, Journal};
use crate::journals::Journals;
use crate::plan::{Blow, Cut, Plan, Point};
use crate::program::{Ended, Process, Room, SESSION};
use crate::script::{Gate, Place, calls_to, script};

/// Processes that a turn may need: four that are struck, and answers of an operator between them.
const LIVES: usize = 12;

/// A point that is neither reached nor passed within this time: the process is stuck.
const PATIENCE: Duration = Duration::from_secs(60);

/// What came of a round.
#[derive(Debug, Default)]
pub(crate) struct Round {
    pub(crate) took: Duration,
    /// How long the first process took.
    pub(crate) first_took: Duration,
    /// The kinds of the points at which something happened to the first process, and to later ones.
    pub(crate) first: Vec<usize>,
    pub(crate) nested: Vec<usize>,
    /// Those that a process came to its end without.
    pub(crate) passed: Vec<usize>,
    pub(crate) processes: usize,
    /// Runs of tools, and those among them that were repeats.
    pub(crate) runs: usize,
    pub(crate) repeats: usize,
    /// What an operator was asked.
    pub(crate) answers: usize,
}

/// What happened to a process.
#[derive(Debug)]
enum After {
    Killed,
    /// The session was taken from it.
    Robbed,
    Ended(Ended),
}

/// What is done next.
enum Next {
    Run { take_over: bool },
    Resume { take_over: bool },
    Answer(Vec<String>),
}

/// Plays a round and checks it.
///
/// # Errors
/// What is wrong, with all that is known.
pub(crate) async fn run(plan: &Plan, journals: &Journals) -> Result<Round, Breach> {
    let (script, gates) = script(plan);
    let server = Arc::new(Server::start(script, Options::default()).await.map_err(|error| error.to_string())?);
    let began = SystemTime::now();
    let room = Room::new(&server.base_url(), journals);
    let gates = Gates::watch(&server, gates);
    let mut play = Play { plan, server, began, room, gates, round: Round::default(), story: Vec::new() };
    let begun = Instant::now();
    match play.until_over().await {
        Ok(()) => {
            play.round.took = begun.elapsed();
            Ok(play.round)
        }
        Err(breach) => {
            let requests: Vec<String> = posts(&play.server).iter().map(ToString::to_string).collect();
            let (story, requests, witness) = (play.story.join("\n"), requests.join("\n"), play.room.witness());
            let folder = play.room.keep();
            let folder = folder.display();
            Err(breach.with(&format!(
                "processes:\n{story}\nrequests:\n{requests}\nwitness: {witness:#?}\nthe room is kept: {folder}"
            )))
        }
    }
}

struct Play<'p> {
    plan: &'p Plan,
    server: Arc<Server>,
    began: SystemTime,
    room: Room,
    gates: Gates,
    round: Round,
    /// What each process was and how it ended, for whoever reads of a failure.
    story: Vec<String>,
}

impl Play<'_> {
    async fn until_over(&mut self) -> Result<(), Breach> {
        let mut next = Next::Run { take_over: false };
        for life in 0..LIVES {
            let words = next.into_words();
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let begun = Instant::now();
            let after = self.live(&words, life).await?;
            if life == 0 {
                self.round.first_took = begun.elapsed();
            }
            self.story.push(format!("{}: {after:?}", words.join(" ")));
            self.round.processes += 1;
            settled(&self.server).await?;
            let journal = self.journal().await?;
            check::durable_before(&self.room.witness(), journal.as_ref())?;
            next = match (after, journal) {
                (After::Killed, None) => Next::Run { take_over: true },
                (After::Killed, Some(journal)) if !journal.has_turn() => Next::Run { take_over: true },
                (_, Some(journal)) if journal.has_turn() && !journal.is_open() => return self.over(&journal).await,
                (After::Killed, Some(_)) => Next::Resume { take_over: true },
                (After::Robbed, _) => Next::Resume { take_over: false },
                (After::Ended(ended), journal) if ended.lacked_its_database() => {
                    let begun = journal.is_some_and(|journal| journal.has_turn());
                    if begun { Next::Resume { take_over: true } } else { Next::Run { take_over: true } }
                }
                (After::Ended(ended), Some(journal)) => self.goes_on(&ended, &journal)?,
                (After::Ended(ended), None) => return Err(format!("there is no session after {ended:#?}").into()),
            };
        }
        Err(Breach::stuck(format!("the turn does not end in {LIVES} processes")))
    }

    /// What somebody does who reads how a process ended.
    fn goes_on(&mut self, ended: &Ended, journal: &Journal) -> Result<Next, Breach> {
        let said = ended.json()?;
        // Who ended could not let the session go, and the answer waits for the next one who has it.
        if said["outcome"] == "waiting" {
            return Ok(Next::Resume { take_over: true });
        }
        let hint = said["error"]["hint"].as_str().unwrap_or_default();
        match (ended.code, said["paused"]["reason"].as_str()) {
            (Some(0), Some("shutdown")) => Ok(Next::Resume { take_over: false }),
            (Some(7), Some("lost_response")) => {
                self.round.answers += 1;
                Ok(Next::Answer(vec![if self.plan.gives_up { "--abandon" } else { "--resend" }.to_owned()]))
            }
            (Some(4), None) if said["error"]["message"].as_str().is_some_and(is_unreadable) => {
                Ok(Next::Answer(vec!["--resend".to_owned()]))
            }
            (Some(4), None) if hint.contains("wharf session reconcile") => {
                self.round.answers += 1;
                Ok(Next::Answer(self.operator(journal)?))
            }
            _ => Err(format!("a process ended in no way that is known: {ended:#?}").into()),
        }
    }

    /// What an operator answers who looks into the provider's books for the request that the journal has in flight.
    fn operator(&self, journal: &Journal) -> Result<Vec<String>, Breach> {
        let begun = journal.last_begun()?;
        let posts = posts(&self.server);
        let found = posts.iter().rev().find(|post| self.began + post.at() >= begun);
        let receipt = found.filter(|post| post.is_kept(self.plan.broken));
        Ok(match receipt.and_then(|post| post.response()) {
            Some(id) => vec!["--receipt".to_owned(), id.to_owned()],
            None => vec!["--resend".to_owned()],
        })
    }

    async fn journal(&self) -> Result<Option<Journal>, Breach> {
        let shown = self.room.look(&["session", "show", SESSION, "--json"]).await?;
        match shown.code {
            Some(0) => Ok(Some(Journal::new(shown.json()?))),
            Some(2) => Ok(None),
            _ => Err(format!("the journal cannot be read: {shown:#?}").into()),
        }
    }

    async fn over(&mut self, journal: &Journal) -> Result<(), Breach> {
        let exported = self.room.look(&["session", "export", SESSION]).await?;
        if exported.code != Some(0) || !exported.json().is_ok_and(|checkpoint| checkpoint.is_object()) {
            return Err(format!("the checkpoint cannot be exported: {exported:#?}").into());
        }
        let verified = self.room.look(&["session", "verify", SESSION, "--all", "--json"]).await?;
        if verified.code != Some(0) || verified.json()?["sound"] != true {
            return Err(format!("the journal breaks what it promises: {verified:#?}").into());
        }
        let witness = self.room.witness();
        self.round.runs = witness.len();
        self.round.repeats = witness.iter().filter(|ran| ran.attempt > 1).count();
        let stops = self.plan.cuts.iter().any(|cut| cut.blow == Blow::Exhaust);
        check::whole(journal, &witness, &posts(&self.server), &self.server.violations(), stops)
    }

    /// Runs a process until it ends or the plan ends it.
    async fn live(&mut self, words: &[&str], life: usize) -> Result<After, Breach> {
        let Some(cut) = self.plan.cuts.get(life).copied() else {
            return Ok(After::Ended(self.room.run(words).await?));
        };
        let (before, requests) = (self.room.witness(), self.server.requests().len());
        self.gates.arm(cut.point);
        if let Point::Witness(tool) = cut.point {
            self.room.hold(&calls_to(tool, self.plan));
        }
        let mut process = self.room.start(words, Some(cut.point));
        let said = process.err();
        let reached = async {
            match cut.point {
                Point::Stream(kind, Place::LastByte) => {
                    sent_whole(&self.server, requests, |name| kind.is(name)).await;
                }
                Point::Request(_) | Point::Stream(..) => self.gates.hit().await,
                Point::Witness(tool) => self.room.ran(&calls_to(tool, self.plan), &before).await,
                Point::Write(..) => stopped(said).await,
                Point::Any(time) => tokio::time::sleep(time).await,
            }
        };
        let hit = tokio::select! {
            biased;
            () = reached => true,
            () = process.exits() => false,
            () = tokio::time::sleep(PATIENCE) => {
                return Err(Breach::stuck(format!("{cut:?} is neither reached nor passed")));
            }
        };
        let after = if hit {
            tokio::time::sleep(cut.pause).await;
            self.strike(cut, process).await?
        } else {
            self.let_go();
            After::Ended(process.ends().await?)
        };
        let is_struck = hit && !matches!((&after, cut.blow), (After::Ended(_), Blow::Kill));
        let points = match (is_struck, life) {
            (false, _) => &mut self.round.passed,
            (true, 0) => &mut self.round.first,
            (true, _) => &mut self.round.nested,
        };
        points.push(cut.kind());
        Ok(after)
    }

    async fn strike(&mut self, cut: Cut, mut process: Process) -> Result<After, Breach> {
        match cut.blow {
            Blow::Kill => {
                process.kill();
                let ended = process.ends().await?;
                self.let_go();
                // It may have come to its end at the same moment.
                Ok(if ended.code.is_none() { After::Killed } else { After::Ended(ended) })
            }
            Blow::Terminate | Blow::Exhaust => {
                process.terminate().await;
                if cut.blow == Blow::Terminate {
                    self.let_go();
                }
                let ended = process.ends().await?;
                self.let_go();
                if ended.code != Some(0) {
                    return Err(format!("SIGTERM did not end it with 0: {ended:#?}").into());
                }
                Ok(After::Ended(ended))
            }
            Blow::TakeOver => {
                let second = self.room.start(&["session", "resume", SESSION, "--take-over", "--json"], None);
                // Long enough for the second one to have the session, most times.
                tokio::time::sleep(cut.pause * 10).await;
                self.let_go();
                let first = process.ends().await?;
                let second = second.ends().await?;
                let is_robbed = first.code == Some(4) && first.err.contains("error: fenced: ");
                if !is_robbed && first.code != Some(0) {
                    return Err(format!("a process that was robbed of its session ended so: {first:#?}").into());
                }
                self.story.push(format!("(robbed: {first:?})"));
                Ok(After::Ended(second))
            }
            Blow::Takeover => {
                let taken = self.room.look(&["session", "takeover", SESSION]).await?;
                if taken.code != Some(0) {
                    return Err(format!("the session was not taken over: {taken:#?}").into());
                }
                self.let_go();
                let ended = process.ends().await?;
                if ended.code != Some(4) || !ended.err.contains("error: fenced: ") {
                    return Err(format!("a process that was robbed of its session ended so: {ended:#?}").into());
                }
                self.story.push(format!("(robbed: {ended:?})"));
                Ok(After::Robbed)
            }
        }
    }

    fn let_go(&mut self) {
        self.gates.disarm();
        self.room.let_go();
    }
}

impl Next {
    fn into_words(self) -> Vec<String> {
        let (mut words, take_over) = match self {
            Self::Run { take_over } => (vec!["run".to_owned(), "-s".to_owned()], take_over),
            Self::Resume { take_over } => (vec!["session".to_owned(), "resume".to_owned()], take_over),
            Self::Answer(answer) => {
                let mut words = vec!["session".to_owned(), "reconcile".to_owned()];
                words.extend(answer);
                (words, false)
            }
        };
        let is_run = words[0] == "run";
        words.extend([SESSION.to_owned(), "--json".to_owned()]);
        if take_over {
            words.push("--take-over".to_owned());
        }
        if is_run {
            words.push("start".to_owned());
        }
        words
    }
}

/// An answer that the provider does not give out is no receipt.
fn is_unreadable(message: &str) -> bool {
    message.ends_with(", so it cannot be taken as the receipt")
}

/// Waits until an answer of a step like this has been sent whole, after the first `known` requests.
async fn sent_whole(server: &Server, known: usize, is_it: impl Fn(&str) -> bool) {
    for order in known as u64 + 1.. {
        let entry = loop {
            // The wait is bounded by whoever waits for us.
            if let Ok(entry) = server.wait_for_end(order).await {
                break entry;
            }
        };
        let name = entry.step.and_then(|step| step.name);
        if name.is_some_and(|name| is_it(&name)) && matches!(entry.end, End::Streamed { .. }) {
            return;
        }
    }
}

/// Waits until a process says that it stands at its point; for ever, if it never does.
async fn stopped(mut said: watch::Receiver<String>) {
    if said.wait_for(|text| text.contains("stopped at ")).await.is_err() {
        std::future::pending().await
    }
}

/// The gates of a round's script. One that is armed holds its stream; every other lets it pass.
struct Gates {
    server: Arc<Server>,
    state: Arc<Mutex<State>>,
    hit: watch::Receiver<bool>,
    say: watch::Sender<bool>,
    _tasks: JoinSet<()>,
}

#[derive(Default)]
struct State {
    armed: Option<Point>,
    /// Names of gates at which a stream is held.
    held: Vec<String>,
}

impl Gates {
    fn watch(server: &Arc<Server>, gates: Vec<Gate>) -> Self {
        let state = Arc::new(Mutex::new(State::default()));
        let (say, hit) = watch::channel(false);
        let mut tasks = JoinSet::new();
        for gate in gates {
            let (server, state, say) = (server.clone(), state.clone(), say.clone());
            tasks.spawn(async move {
                // The handle's wait is bounded; most gates are never reached.
                while server.wait_for_gate(&gate.name).await.is_err() {}
                let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
                if state.armed == Some(gate.point) {
                    state.held.push(gate.name);
                    say.send_replace(true);
                } else {
                    server.release(&gate.name);
                }
            });
        }
        Self { server: server.clone(), state, hit, say, _tasks: tasks }
    }

    fn arm(&self, point: Point) {
        self.say.send_replace(false);
        self.state.lock().unwrap_or_else(PoisonError::into_inner).armed = Some(point);
    }

    fn disarm(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.armed = None;
        for gate in state.held.drain(..) {
            self.server.release(&gate);
        }
    }

    /// Waits until a stream is held.
    async fn hit(&self) {
        // The sender is ours.
        self.hit.clone().wait_for(|hit| *hit).await.ok();
    }
}
