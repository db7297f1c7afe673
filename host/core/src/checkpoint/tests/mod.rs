//! Conformance groups B to K, one file each. A test decides and folds as the host does, and compares whole documents.

mod b_document;
mod c_register;
mod d_start;
mod e_settle;
mod f_completed;
mod g_recover;
mod h_cancel;
mod i_prepare;
mod j_acknowledge;
mod k_complete;

use serde_json::{Value, json};

use super::{Checkpoint, Registration};
use crate::call::Call;
use crate::error::{Error, ErrorKind};
use crate::ids::{CallId, ResponseId};
use crate::model::Delivery;
use crate::policy::{RefusalReason, ReplayClass};
use crate::record::{Begun, Record, Settlement};

/// A sync function call of the tool `tool`.
fn call(id: &str) -> Call {
    Call::function(id, "tool", "{}")
}

fn id(text: &str) -> CallId {
    CallId::new(text)
}

fn kind<T: std::fmt::Debug>(result: Result<T, Error>) -> ErrorKind {
    result.expect_err("this has to fail").kind
}

/// Each verb decides and folds; what the statements call its answer is its result.
impl Checkpoint {
    fn fold(&mut self, record: &Record) {
        self.apply(record).expect("what was decided can be folded");
    }

    fn add(&mut self, call: Call, replay: ReplayClass) -> Result<bool, Error> {
        let decided = self.register(&Registration::new(call, replay))?;
        decided.iter().for_each(|record| self.fold(record));
        Ok(decided.is_some())
    }

    fn add_rejected(&mut self, call: &Call, message: &str) -> Result<bool, Error> {
        let decided = self.reject(call, None, RefusalReason::MalformedArguments, message)?;
        decided.iter().for_each(|record| self.fold(record));
        Ok(decided.is_some())
    }

    fn run(&mut self, call: &str) -> Result<(), Error> {
        let record = self.start(&id(call), 1, None)?;
        self.fold(&record);
        Ok(())
    }

    fn give(&mut self, call: &str, output: &str) -> Result<bool, Error> {
        let decided = self.settle(&id(call), output, Settlement::Done)?;
        decided.iter().for_each(|record| self.fold(record));
        Ok(decided.is_some())
    }

    fn complete(&mut self, response: &str) -> Result<(), Error> {
        let decided = self.response_completed(&ResponseId::new(response))?;
        decided.iter().for_each(|record| self.fold(record));
        Ok(())
    }

    fn prepare(&mut self) -> Result<Option<Delivery>, Error> {
        let decided = self.prepare_delivery(Vec::new())?;
        decided.iter().for_each(|record| self.fold(record));
        Ok(decided.and_then(|_| self.delivery.clone()))
    }

    fn receipt(&mut self, response: &str) -> Result<(), Error> {
        let decided = self.acknowledge(&ResponseId::new(response))?;
        decided.iter().for_each(|record| self.fold(record));
        Ok(())
    }

    fn cancel_all(&mut self) {
        for record in self.cancel() {
            self.fold(&record);
        }
    }

    fn mend(&mut self) -> Result<(), Error> {
        for record in self.recover()? {
            self.fold(&record);
        }
        Ok(())
    }

    fn begin(&mut self) {
        self.fold(&Record::ResponseBegun(Begun::default()));
    }

    fn make_orphans(&mut self, ids: &[&str]) {
        self.fold(&Record::CallsOrphaned { ids: ids.iter().map(|text| id(text)).collect() });
    }

    fn states(&self) -> Value {
        self.calls()
            .map(|p| (p.call.id.as_str().to_owned(), self.to_json()["calls"][p.call.id.as_str()]["state"].clone()))
            .collect()
    }

    /// Fails with this kind, and nothing changed: neither the value nor the exported document.
    #[track_caller]
    fn refuses<T: std::fmt::Debug>(
        &mut self,
        expected: ErrorKind,
        verb: impl FnOnce(&mut Self) -> Result<T, Error>,
    ) -> Error {
        let (before, document) = (self.clone(), self.to_json());
        let error = verb(self).expect_err("this has to fail");
        assert_eq!(error.kind, expected, "{error}");
        assert_eq!(*self, before);
        assert_eq!(self.to_json(), document);
        error
    }

    /// Answers this, and nothing changed.
    #[track_caller]
    fn leaves_alone<T: std::fmt::Debug + PartialEq>(
        &mut self,
        answer: T,
        verb: impl FnOnce(&mut Self) -> Result<T, Error>,
    ) {
        let (before, document) = (self.clone(), self.to_json());
        assert_eq!(verb(self).expect("this has to work"), answer);
        assert_eq!(*self, before);
        assert_eq!(self.to_json(), document);
    }
}

/// One call in each state: `queued`, `running`, `ready` (output `out`) and `delivered`, in this order; the latest response
/// is `resp_2`.
fn each_state() -> Checkpoint {
    let mut c = Checkpoint::default();
    for id in ["queued", "running", "ready", "delivered"] {
        c.add(call(id), ReplayClass::Never).unwrap();
    }
    c.complete("resp_1").unwrap();
    c.run("delivered").unwrap();
    c.give("delivered", "gone").unwrap();
    c.prepare().unwrap();
    c.receipt("resp_2").unwrap();
    c.run("running").unwrap();
    c.run("ready").unwrap();
    c.give("ready", "out").unwrap();
    c
}

fn ready(output: &str) -> Value {
    json!({ "Ready": { "output": output } })
}
