//! Makes a driver's requests from a harness and a session's history.

use std::sync::{Arc, Mutex, PoisonError};

use futures::future::BoxFuture;
use wharf_core::history::History;
use wharf_core::model::{Options, Request, RequestError, Retrieved, ToolOffer};
use wharf_core::{Error, ResponseId};
use wharf_provider::{Driver, EventStream};

use crate::coordinator::{Ask, Plan, Requester, Retriever};

/// The history of a session, kept current by the coordinator's records.
pub(crate) type SharedHistory = Arc<Mutex<History>>;

pub(crate) struct DriverRequester {
    pub(crate) driver: Arc<dyn Driver>,
    pub(crate) model: String,
    pub(crate) instructions: String,
    pub(crate) tools: Vec<ToolOffer>,
    pub(crate) options: Options,
    pub(crate) history: SharedHistory,
    pub(crate) stream: bool,
}

impl DriverRequester {
    fn request(&self, ask: &Ask) -> Request {
        let support = self.driver.support(&self.model);
        let previous = ask.latest.clone().filter(|_| support.continuation);
        let mut messages = match (&previous, &ask.delivery) {
            (Some(_), Some(_)) => Vec::new(),
            (Some(_), None) => ask.input.clone(),
            (None, _) => self.history.lock().unwrap_or_else(PoisonError::into_inner).items().to_vec(),
        };
        messages.extend(ask.notice.clone());
        let tools = self.tools.iter().map(|tool| ToolOffer {
            async_allowed: tool.async_allowed && support.async_calls,
            ..tool.clone()
        });
        Request {
            model: self.model.clone(),
            instructions: self.instructions.clone(),
            tools: tools.collect(),
            messages,
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
    fn plan(&mut self, ask: &Ask) -> Result<Plan, Error> {
        let request = self.request(ask);
        self.driver.check(&request)?;
        Ok(Plan { whole_history: request.previous.is_none(), continues: request.previous })
    }

    fn send(&mut self, ask: Ask) -> BoxFuture<'static, Result<EventStream, RequestError>> {
        self.driver.open(self.request(&ask))
    }
}

/// Retrieval through a driver.
pub(crate) struct DriverRetriever(pub(crate) Arc<dyn Driver>);

impl Retriever for DriverRetriever {
    fn retrieve(&self, id: &ResponseId) -> BoxFuture<'static, Result<Retrieved, RequestError>> {
        self.0.retrieve(id)
    }
}
