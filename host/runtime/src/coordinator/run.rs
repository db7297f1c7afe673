//! Reading a response's events, and the loop of a turn (L14 to L26, L41 to L45).

use std::future::Future;

use futures::StreamExt;
use futures::future::BoxFuture;
use serde_json::Value;
use wharf_core::model::{Completion, FinishedCall, Item, RequestError, Role, StreamEvent};
use wharf_core::record::PauseReason;
use wharf_core::step::{Event, Next};
use wharf_core::{CallState, Checkpoint, Error, ResponseId};
use wharf_provider::EventStream;

use super::{Ask, Coordinator, Observer, Plan, Requester, Rest};

impl Coordinator {
    /// Registers a complete call item: authorises it, journals it, and starts it where it may start (L7 to L14).
    ///
    /// # Errors
    /// The executor's error; provider and config errors of C; store errors.
    pub async fn register(&mut self, finished: FinishedCall) -> Result<(), Error> {
        self.check_usable()?;
        let policy = self.executor.authorize(&finished.call)?;
        let fresh = self.seams.fresh();
        self.act(Event::Called { finished, policy, fresh }).await
    }

    /// Reads a begun response to its completion (L25). Jobs go on meanwhile and after it.
    ///
    /// # Errors
    /// A store error if none was begun (L23); provider errors of L17, L18, L21; store errors. After an error before the
    /// terminal event the response stays in flight: see [`Coordinator::settle_uncertain`].
    pub async fn read_response(
        &mut self,
        stream: EventStream,
        observer: &mut dyn Observer,
    ) -> Result<Completion, Error> {
        self.check_usable()?;
        let in_flight = |this: &Self| this.checkpoint().is_some_and(Checkpoint::response_in_flight);
        if !in_flight(self) {
            return Err(Error::store("an event of a response came, and none was begun"));
        }
        let read = self.read_events(stream, observer).await;
        if read.is_err() && self.check_usable().is_ok() && in_flight(self) {
            // Whatever the reason: nobody reads this stream to its end any more (L21).
            self.act(Event::StreamBroken).await?;
        }
        read
    }

    async fn read_events(&mut self, mut stream: EventStream, observer: &mut dyn Observer) -> Result<Completion, Error> {
        let asked = self.seams.now();
        let mut first_token_ms = None;
        loop {
            let event = match self.drive(stream.next()).await? {
                Some(Ok(event)) => event,
                Some(Err(failure)) => return Err(failure.error),
                None => return Err(Error::provider("the stream ended before its terminal event")),
            };
            match event {
                StreamEvent::Started { id } => self.act(Event::ResponseStarted(id)).await?,
                StreamEvent::Text(text) => {
                    first_token_ms = first_token_ms.or_else(|| {
                        u64::try_from(self.seams.now().saturating_sub(asked).as_millis()).ok() // longer is not measured
                    });
                    observer.text(&text);
                }
                StreamEvent::Reasoning(text) => observer.reasoning(&text),
                StreamEvent::Refusal(text) => observer.refusal(&text),
                StreamEvent::Call(finished) => self.register(finished).await?,
                StreamEvent::SyncCalls(calls) => {
                    for finished in calls {
                        self.register(finished).await?;
                    }
                }
                StreamEvent::Opaque(_) => {} // comes again, in its place, with the completion's items
                StreamEvent::Completed(completion) => {
                    self.act(Event::Completed { completion: completion.clone(), first_token_ms }).await?;
                    observer.completed(&completion);
                    return Ok(completion);
                }
            }
        }
    }

    /// Runs the open turn until it is finished or at rest, with at most `limit` responses (L41). A shutdown brings it to rest
    /// too; what was in flight when its time was over is left to the next opening.
    ///
    /// # Errors
    /// A config error at the limit (L43); the requester's errors (L45); provider and store errors. The journaled state
    /// remains, and another run goes on from it.
    pub async fn run(
        &mut self,
        limit: u64,
        requester: &mut dyn Requester,
        observer: &mut dyn Observer,
    ) -> Result<Rest, Error> {
        let mut made = 0;
        loop {
            self.check_usable()?;
            self.hear_all().await?;
            match self.machine.next()? {
                Next::Finished => return Ok(Rest::Finished),
                Next::Rest(reason) => {
                    self.act(Event::Pause(reason.clone())).await?;
                    return Ok(Rest::Paused(reason));
                }
                Next::WaitForJob => self.drive_until_job().await?,
                Next::Resolve if self.cut_off => return Ok(Rest::Paused(PauseReason::Shutdown)),
                Next::Resolve => return Err(Error::store("a request is uncertain; it has to be settled first")),
                Next::Deliver | Next::Ask if made >= limit => {
                    // Of the whole turn: what is left of a limit says little to whoever set it.
                    let all = self.checkpoint().map_or(0, Checkpoint::completed_responses);
                    let reached = format!("the limit of responses is reached after {all} of them, and work is pending");
                    return Err(Error::config(reached).hint("resume the session with a higher limit"));
                }
                next @ (Next::Deliver | Next::Ask) => {
                    let ask = self.ask(next == Next::Deliver).await?;
                    match self.request(ask, requester, observer).await {
                        Ok(_) => made += 1,
                        Err(_) if self.cut_off && self.check_usable().is_ok() => {
                            return Ok(Rest::Paused(PauseReason::Shutdown));
                        }
                        Err(error) => return Err(error),
                    }
                }
            }
        }
    }

    /// Makes one request and reads its response.
    ///
    /// # Errors
    /// As [`Coordinator::run`].
    async fn request(
        &mut self,
        ask: Ask,
        requester: &mut dyn Requester,
        observer: &mut dyn Observer,
    ) -> Result<Completion, Error> {
        let prepared = requester.prepare(&ask);
        let prepared = self.drive(prepared).await?;
        let plan = match prepared.and_then(|()| requester.plan(&ask)) {
            Ok(plan) => plan,
            Err(error) => {
                self.settle_uncertain().await?; // the delivery that was prepared is not sent (G14)
                return Err(error);
            }
        };
        let message_id = self.seams.fresh();
        self.begin_transcript_message(&message_id, plan).await?;
        let sent = requester.send(ask);
        let stream = match self.drive(sent).await? {
            Ok(stream) => stream,
            Err(failure) => {
                let error = failure.error.clone();
                self.act(Event::RequestFailed(failure)).await?;
                return Err(error);
            }
        };
        let completion = self.read_response(stream, observer).await?;
        self.finish_pending_message(Some(&completion)).await?;
        Ok(completion)
    }

    /// Stages the summary of the response that was just accepted and commits the transcript message that it is, if there is
    /// one (L38, L39, G18). Without what the response held, the summary has its id alone.
    pub(super) async fn finish_pending_message(&mut self, completion: Option<&Completion>) -> Result<(), Error> {
        let Some(turn) = self.session().open_turn() else { return Ok(()) };
        let checkpoint = &turn.checkpoint;
        let pending = checkpoint.transcript_message_id().filter(|_| !checkpoint.response_in_flight());
        let Some(message_id) = pending.map(str::to_owned) else { return Ok(()) };
        let summary = match completion {
            Some(completion) => self.summary(completion),
            None => serde_json::json!({ "response_id": checkpoint.latest_response_id().map(ResponseId::as_str) }),
        };
        let staged = checkpoint.host_responses().len() as u64 == checkpoint.completed_responses();
        if !staged {
            self.stage_summary(summary).await?;
        }
        self.commit_transcript(&message_id).await
    }

    fn summary(&self, completion: &Completion) -> Value {
        let usage = completion.usage.clone().unwrap_or_default();
        let first_token_ms = self.session().open_turn().and_then(|turn| turn.last_response.as_ref()?.first_token_ms);
        let calls = completion.items.iter().filter(|item| {
            matches!(item.get("type").and_then(Value::as_str), Some("function_call" | "custom_tool_call"))
        });
        serde_json::json!({
            "response_id": completion.id.as_ref().map(|id| id.as_str()),
            "model": completion.model,
            "finish_reason": completion.finish_reason,
            "tool_calls": calls.count(),
            "first_token_ms": first_token_ms,
            "usage": {
                "fresh_input": usage.fresh_input, "cache_read": usage.cache_read, "cache_write": usage.cache_write,
                "visible_output": usage.visible_output, "reasoning": usage.reasoning, "total": usage.total,
            },
        })
    }

    /// What the next request is made with; a delivery is prepared and saved first.
    async fn ask(&mut self, deliver: bool) -> Result<Ask, Error> {
        if deliver {
            self.act(Event::Prepare).await?;
        }
        let Some(turn) = self.session().open_turn() else { return Err(Error::config("no turn is open")) };
        let delivery = turn.checkpoint.delivery().cloned();
        let notice = match &delivery {
            Some(_) => None,
            None => turn.lost_notice().map(|text| Item::Message { role: Role::User, text }),
        };
        let async_open = turn.checkpoint.live_calls().any(|p| {
            let delivered_now = delivery.as_ref().is_some_and(|d| d.call_ids.contains(&p.call.id));
            // The provider does not know orphans.
            p.call.is_async
                && !turn.checkpoint.is_orphan(&p.call.id)
                && (delivered_now || !matches!(p.state, CallState::Ready { .. } | CallState::Delivered))
        });
        // Once an answer of the turn is accepted, what it is about is part of what is stored; said again it would be asked
        // again.
        let first = turn.checkpoint.completed_responses() == 0;
        let input = if first { turn.closing.iter().chain(&turn.input).cloned().collect() } else { Vec::new() };
        let latest = self.session().latest_response_id().cloned();
        let latest_maker = self.session().latest_maker().map(str::to_owned);
        Ok(Ask { delivery, latest, latest_maker, input, notice, async_open })
    }
}

/// A [`Requester`] from a closure. Its requests continue the latest response where there is one, and count as whole history
/// where there is none.
pub fn request_fn<F, R>(send: F) -> impl Requester
where
    F: FnMut(Ask) -> R + Send,
    R: Future<Output = Result<EventStream, RequestError>> + Send + 'static,
{
    FnRequester(send)
}

struct FnRequester<F>(F);

impl<F, R> Requester for FnRequester<F>
where
    F: FnMut(Ask) -> R + Send,
    R: Future<Output = Result<EventStream, RequestError>> + Send + 'static,
{
    fn plan(&mut self, ask: &Ask) -> Result<Plan, Error> {
        Ok(Plan { continues: ask.latest.clone(), whole_history: ask.latest.is_none(), maker: None })
    }

    fn send(&mut self, ask: Ask) -> BoxFuture<'static, Result<EventStream, RequestError>> {
        Box::pin((self.0)(ask))
    }
}
