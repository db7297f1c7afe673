//! Makes a driver's requests from a harness and a session's history.

use std::sync::Arc;

use futures::future::BoxFuture;
use wharf_core::history::History;
use wharf_core::model::{Fate, Options, Request, RequestError, Retrieved, ToolOffer};
use wharf_core::{Error, ResponseId, Seq};
use wharf_provider::{Driver, EventStream};
use wharf_store::{JournalKey, Store};

use crate::agent::Agent;
use crate::coordinator::{Ask, Plan, Requester, Retriever};
use crate::journal;

/// The history of a session, read from its records when a request has to carry it: where every request goes on from a
/// stored response, none is ever read.
pub(crate) struct HistoryReader {
    store: Arc<dyn Store>,
    key: JournalKey,
    history: History,
    /// How far it is read.
    through: Seq,
}

impl HistoryReader {
    /// Of this journal; nothing is read yet.
    pub(crate) fn new(store: Arc<dyn Store>, key: JournalKey) -> Self {
        Self { store, key, history: History::new(), through: Seq(0) }
    }

    async fn catch_up(&mut self) -> Result<(), Error> {
        let Self { store, key, history, through } = self;
        let after = *through;
        journal::records_after(&**store, key, after, |seq, record| {
            history.apply(&record);
            *through = seq;
        })
        .await
    }
}

pub(crate) struct DriverRequester {
    pub(crate) driver: Arc<dyn Driver>,
    pub(crate) model: String,
    pub(crate) instructions: String,
    pub(crate) tools: Vec<ToolOffer>,
    pub(crate) options: Options,
    pub(crate) history: HistoryReader,
    pub(crate) stream: bool,
    /// The request that was planned, until it is sent: it may carry a whole history.
    pub(crate) planned: Option<Request>,
}

impl DriverRequester {
    fn maker(&self) -> String {
        format!("{}/{}", self.driver.name(), self.model)
    }

    /// Whether the latest response is this provider's: another one knows nothing of it.
    fn made_latest(&self, ask: &Ask) -> bool {
        ask.latest_maker.as_deref().is_some_and(|maker| provider_of(maker) == self.driver.name())
    }

    /// The stored response that the request goes on from; without one it carries the whole history.
    fn previous(&self, ask: &Ask) -> Option<ResponseId> {
        let continues = self.driver.support(&self.model).continuation;
        ask.latest.clone().filter(|_| continues && self.made_latest(ask))
    }

    fn request(&self, ask: &Ask) -> Request {
        let support = self.driver.support(&self.model);
        let previous = self.previous(ask);
        let mut messages = match (&previous, &ask.delivery) {
            (Some(_), Some(_)) => Vec::new(),
            (Some(_), None) => ask.input.clone(),
            (None, _) => self.history.history.items().to_vec(),
        };
        messages.extend(ask.notice.clone());
        let tools = self
            .tools
            .iter()
            .map(|tool| ToolOffer { async_allowed: tool.async_allowed && support.async_calls, ..tool.clone() });
        Request {
            model: self.model.clone(),
            instructions: self.instructions.clone(),
            tools: tools.collect(),
            messages,
            replay: previous.is_none(),
            previous,
            delivery: ask.delivery.clone(),
            options: self.options.clone(),
            stream: self.stream,
            async_open: ask.async_open,
            ..Request::default()
        }
    }
}

impl Requester for DriverRequester {
    fn prepare<'a>(&'a mut self, ask: &'a Ask) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move { if self.previous(ask).is_none() { self.history.catch_up().await } else { Ok(()) } })
    }

    fn plan(&mut self, ask: &Ask) -> Result<Plan, Error> {
        let request = self.request(ask);
        self.driver.check(&request)?;
        if ask.async_open && !self.driver.support(&self.model).async_calls {
            let error = format!("model {:?} takes no results of async calls, and such calls are open", self.maker());
            return Err(Error::config(error).hint("go on with a model that runs tools beside its answer, or end the turn: wharf session reconcile SESSION --abandon"));
        }
        let plan = Plan {
            whole_history: request.previous.is_none(),
            continues: request.previous.clone(),
            maker: Some(self.maker()),
        };
        self.planned = Some(request);
        Ok(plan)
    }

    fn send(&mut self, ask: Ask) -> BoxFuture<'static, Result<EventStream, RequestError>> {
        let request = self.planned.take().unwrap_or_else(|| self.request(&ask));
        self.driver.open(request)
    }
}

fn provider_of(maker: &str) -> &str {
    maker.split_once('/').map_or(maker, |(provider, _)| provider)
}

/// Retrieval through the driver of whoever made the response.
pub(crate) struct DriverRetriever {
    agent: Agent,
    /// Who is asked now, and for responses of which the journal does not say who made them.
    now: (Arc<dyn Driver>, String),
}

impl DriverRetriever {
    /// For an agent that now asks this model of this driver.
    pub(crate) fn new(agent: Agent, driver: Arc<dyn Driver>, model: &str) -> Self {
        Self { agent, now: (driver, model.to_owned()) }
    }

    /// The driver to ask; none if its provider is not there any more, or answers no such question.
    fn driver(&self, maker: Option<&str>) -> Option<Arc<dyn Driver>> {
        let (driver, model) = match maker.and_then(|maker| maker.split_once('/')) {
            None => self.now.clone(),
            Some((provider, model)) if provider == self.now.0.name() => (self.now.0.clone(), model.to_owned()),
            Some((provider, model)) => (self.agent.driver_named(provider)?, model.to_owned()),
        };
        driver.support(&model).retrieval.then_some(driver)
    }
}

impl Retriever for DriverRetriever {
    fn reaches(&self, maker: Option<&str>) -> bool {
        self.driver(maker).is_some()
    }

    fn retrieve(&self, maker: Option<&str>, id: &ResponseId) -> BoxFuture<'static, Result<Retrieved, RequestError>> {
        match self.driver(maker) {
            Some(driver) => driver.retrieve(id),
            None => {
                let gone = Error::config(format!("nobody can be asked for response {:?}", id.as_str()));
                Box::pin(async move { Err(RequestError::new(Fate::NotSent, gone)) })
            }
        }
    }
}
