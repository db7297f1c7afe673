//! `wharf doctor`: looks at what a harness needs to run here, and at where its sessions are kept, and changes nothing but that
//! it makes a store which is not there.

use std::time::Duration;

use serde_json::{Value, json};
use wharf::core::harness::KeySource;
use wharf::core::{Error, OrgId};
use wharf::store::{PostgresHealth, PostgresStore};

use crate::args::DoctorArgs;
use crate::exit::Exit;
use crate::open::HarnessFile;
use crate::say::plain;
use crate::store::Place;
use crate::{screen, store};

/// Clocks that differ by more make the times in lists hard to read.
const CLOCKS_MAX: Duration = Duration::from_secs(5);

/// How bad something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Grade {
    Fine,
    Warning,
    Fault,
}

impl Grade {
    fn word(self) -> &'static str {
        match self {
            Self::Fine => "ok",
            Self::Warning => "warning",
            Self::Fault => "fault",
        }
    }
}

struct Finding {
    grade: Grade,
    of: &'static str,
    says: String,
    hint: Option<String>,
}

impl Finding {
    fn new(grade: Grade, of: &'static str, says: impl Into<String>) -> Self {
        Self { grade, of, says: says.into(), hint: None }
    }

    fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    fn fault(of: &'static str, error: &Error) -> Self {
        Self { grade: Grade::Fault, of, says: error.message.clone(), hint: error.hint.clone() }
    }
}

/// Looks.
///
/// # Errors
/// A config error if there is no harness file and no database was named; a harness that cannot be read.
pub(crate) async fn run(args: DoctorArgs) -> anyhow::Result<Exit> {
    let mut findings = Vec::new();
    let place = match HarnessFile::find(&args.harness) {
        Ok(file) => {
            let harness = file.read()?;
            findings.push(Finding::new(Grade::Fine, "harness", format!("{} can be read", file.path.display())));
            for (name, provider) in harness.providers() {
                if let Some(KeySource::Env(variable)) = &provider.api_key
                    && std::env::var_os(variable).is_none()
                {
                    let says = format!("the key of provider {name:?} is not there: {variable} is not set");
                    findings.push(Finding::new(Grade::Warning, "key", says).hint(format!("export {variable}=…")));
                }
            }
            file.place(Some(&harness))
        }
        Err(error) => store::named(&args.harness).map(Place::Database).ok_or(error),
    }?;
    match &place {
        Place::Database(address) => database(address, &mut findings).await,
        Place::Folder(_) => match store::open(&place).await {
            Ok(store) => {
                let count = store.sessions(&OrgId::local(), crate::limits::SESSIONS_MAX).await.map(|all| all.len());
                findings.push(match count {
                    Ok(count) => Finding::new(Grade::Fine, "store", format!("{}: {count} sessions", place.identity())),
                    Err(error) => Finding::fault("store", &error.into()),
                });
            }
            Err(error) => findings.push(Finding::new(Grade::Fault, "store", format!("{error:#}"))),
        },
    }
    if args.json {
        screen::print_json(&json!({ "findings": findings.iter().map(as_json).collect::<Vec<_>>() }))?;
    } else {
        for finding in &findings {
            screen::print(&format!("{:<8} {:<8} {}\n", finding.grade.word(), finding.of, plain(&finding.says)))?;
            if let Some(hint) = &finding.hint {
                screen::hint(&plain(hint));
            }
        }
    }
    Ok(if findings.iter().any(|finding| finding.grade == Grade::Fault) { Exit::Store } else { Exit::Ok })
}

async fn database(address: &str, findings: &mut Vec<Finding>) {
    let options = wharf::store::PostgresOptions::default();
    let looked = async {
        let store = PostgresStore::open(address, options).await?;
        let health = store.health().await?;
        Ok::<_, wharf::store::StoreError>((store.place().to_owned(), health))
    };
    match looked.await {
        Ok((place, health)) => findings.extend(judge(&place, &health)),
        Err(error) => findings.push(Finding::fault("store", &error.into())),
    }
}

fn judge(place: &str, health: &PostgresHealth) -> Vec<Finding> {
    let (used, all) = health.connections;
    let says = format!(
        "{place}: version {}, tables of form {}, {used} of {all} connections",
        health.server_version, health.form
    );
    let mut findings = vec![Finding::new(Grade::Fine, "store", says)];
    if !health.fsync {
        let says = "fsync is off: a crash of the server loses what it reported, and calls may run twice";
        findings.push(Finding::new(Grade::Fault, "store", says).hint("set fsync = on in postgresql.conf"));
    }
    if !health.full_page_writes {
        let says = "full_page_writes is off: a crash of the server may leave torn pages";
        findings.push(
            Finding::new(Grade::Warning, "store", says)
                .hint("set full_page_writes = on, unless the disk never tears a page"),
        );
    }
    if health.synchronous_standbys.is_empty() {
        let says = "no standby is waited for: a failover to one loses the last commits (docs/operating.md)";
        findings.push(Finding::new(Grade::Fine, "store", says));
    }
    if used * 10 > all * 9 {
        let says = format!("{used} of {all} connections are taken");
        findings
            .push(Finding::new(Grade::Warning, "store", says).hint("raise max_connections; each host takes up to 9"));
    }
    if health.clock_differs_by > CLOCKS_MAX {
        let says = format!(
            "its clock differs from this machine's by {} s; leases follow its clock, times in lists follow ours",
            health.clock_differs_by.as_secs()
        );
        findings.push(Finding::new(Grade::Warning, "clock", says));
    }
    findings
}

fn as_json(finding: &Finding) -> Value {
    json!({ "grade": finding.grade.word(), "of": finding.of, "says": finding.says, "hint": finding.hint })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn health() -> PostgresHealth {
        PostgresHealth {
            server_version: "15.1".into(),
            form: 1,
            fsync: true,
            full_page_writes: true,
            synchronous_standbys: "a".into(),
            connections: (10, 100),
            clock_differs_by: Duration::from_secs(1),
        }
    }

    #[test]
    fn each_setting_that_breaks_a_promise_is_a_finding() {
        let grades = |health: PostgresHealth| judge("here", &health).iter().map(|f| f.grade).collect::<Vec<_>>();
        assert_eq!(grades(health()), [Grade::Fine]);
        assert_eq!(grades(PostgresHealth { fsync: false, ..health() }), [Grade::Fine, Grade::Fault]);
        assert_eq!(grades(PostgresHealth { full_page_writes: false, ..health() }), [Grade::Fine, Grade::Warning]);
        assert_eq!(grades(PostgresHealth { synchronous_standbys: String::new(), ..health() }), [Grade::Fine; 2]);
        assert_eq!(grades(PostgresHealth { connections: (91, 100), ..health() }), [Grade::Fine, Grade::Warning]);
        let late = PostgresHealth { clock_differs_by: Duration::from_secs(60), ..health() };
        assert_eq!(grades(late), [Grade::Fine, Grade::Warning]);
    }
}
