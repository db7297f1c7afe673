//! The provider's books: what it received, what it answered, and what an operator reads in them.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde_json::Value;
use wharf_simulate::{End, RequestEntry, Server};

use crate::plan::Broken;
use crate::script::{calls_of, text_of};

/// One request for a response.
pub(crate) struct Post {
    entry: RequestEntry,
}

impl Post {
    /// When it came, counted from the start of the server.
    pub(crate) fn at(&self) -> Duration {
        self.entry.at
    }

    /// The response that it began; none for one that was refused.
    pub(crate) fn response(&self) -> Option<&str> {
        self.entry.response_id.as_deref()
    }

    /// The response that it goes on from.
    pub(crate) fn previous(&self) -> Option<&str> {
        self.entry.json()?.get("previous_response_id")?.as_str()
    }

    /// Ids of the calls that its answer makes.
    pub(crate) fn calls(&self) -> Vec<String> {
        self.step().map(calls_of).unwrap_or_default()
    }

    /// The text of its answer.
    pub(crate) fn text(&self) -> Option<String> {
        self.step().map(text_of)
    }

    fn step(&self) -> Option<&str> {
        self.entry.step.as_ref()?.name.as_deref()
    }

    /// Whether its input has this text.
    pub(crate) fn contains(&self, text: &str) -> bool {
        self.entry.json().is_some_and(|body| body["input"].to_string().contains(text))
    }

    /// The outputs that it brings.
    pub(crate) fn outputs(&self) -> Vec<(String, String)> {
        let Some(input) = self.entry.json().and_then(|body| body["input"].as_array()) else { return Vec::new() };
        let output = |item: &Value| {
            let call = item["call_id"].as_str().filter(|_| item.get("output").is_some())?;
            let output = item["output"].as_str().map_or_else(|| item["output"].to_string(), str::to_owned);
            Some((call.to_owned(), output))
        };
        input.iter().filter_map(output).collect()
    }

    /// Whether the provider has the answer.
    pub(crate) fn is_kept(&self, broken: Broken) -> bool {
        self.response().is_some()
            && (broken == Broken::Kept || matches!(self.entry.end, End::Streamed { .. } | End::Whole { .. }))
    }
}

impl fmt::Display for Post {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RequestEntry { order, at, end, .. } = &self.entry;
        let (step, previous, response) = (self.step(), self.previous(), self.response());
        write!(
            f,
            "{order} at {at:?}: on {previous:?} with {:?}, step {step:?} as {response:?}, {end:?}",
            self.outputs()
        )
    }
}

/// The requests for responses so far, in order.
pub(crate) fn posts(server: &Server) -> Vec<Post> {
    let all =
        server.requests().into_iter().filter(|entry| entry.method == "POST" && entry.path.ends_with("/responses"));
    all.map(|entry| Post { entry }).collect()
}

/// Waits until nothing is open any more of what dead processes asked for.
pub(crate) async fn settled(server: &Server) -> Result<(), String> {
    for order in 1..=server.requests().len() {
        server.wait_for_end(order as u64).await.map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// The requests that led to this response, the last one first.
pub(crate) fn chain<'p>(posts: &'p [Post], last: &str) -> Result<Vec<&'p Post>, String> {
    let by_response: BTreeMap<&str, &Post> = posts.iter().filter_map(|post| Some((post.response()?, post))).collect();
    let (mut chain, mut at) = (Vec::new(), Some(last));
    while let Some(id) = at {
        let post = by_response.get(id).ok_or_else(|| format!("response {id:?} is not in the provider's books"))?;
        chain.push(*post);
        at = post.previous();
    }
    Ok(chain)
}
