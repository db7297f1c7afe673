//! The forms of the schema: what is there, and how an older one becomes the newest. A form, once released, never changes.

use deadpool_postgres::Client;

use super::failure::{Failure, of_statement};
use crate::StoreError;

/// What makes each form of the one before it.
const FORMS: [&str; 1] = [include_str!("form1.sql")];

/// The newest form.
const KNOWN: u64 = FORMS.len() as u64;

/// Held while forms are made, so that of many hosts which start at once one does it. Any number that nobody else takes.
const LOCK: i64 = 0x7768_6172_6600;

/// Sees that the database has the newest form, and makes it if that is wanted and needed. With that form there it needs no
/// right but to read.
///
/// # Errors
/// [`StoreError::Newer`] if a newer version made it; [`StoreError::Io`] if it is older and nothing may be made.
pub(super) async fn prepare(client: &mut Client, place: &str, migrate: bool) -> Result<(), Failure> {
    let what = "looking at the schema";
    let fails = |error: tokio_postgres::Error| of_statement(place, what, &error);
    let row = client
        .query_one("SELECT current_setting('server_encoding'), current_setting('server_version_num')::int", &[])
        .await
        .map_err(fails)?;
    let (encoding, version): (String, i32) = (row.get(0), row.get(1));
    let refuse =
        |why: String| Failure::from(StoreError::Io { what: format!("{what} of {place}"), why, transient: false });
    if encoding != "UTF8" {
        return Err(refuse(format!("its encoding is {encoding}; make a database with ENCODING 'UTF8'")));
    }
    if version < 150_000 {
        return Err(refuse(format!("it is PostgreSQL {}; 15 or newer is needed", version / 10_000)));
    }
    let found = form(client).await.map_err(fails)?;
    check(found, place)?;
    if found == KNOWN {
        return Ok(());
    }
    if !migrate {
        return Err(refuse(format!(
            "it has form {found} of the tables and {KNOWN} is needed; let a host make it that may"
        )));
    }
    let all = client.transaction().await.map_err(fails)?;
    all.execute("SELECT pg_advisory_xact_lock($1)", &[&LOCK]).await.map_err(fails)?;
    // Somebody else may have made it meanwhile.
    let found = form(all.client()).await.map_err(fails)?;
    check(found, place)?;
    for (number, sql) in (1_u64..).zip(FORMS).skip(usize::try_from(found).unwrap_or(usize::MAX)) {
        tracing::info!(form = number, store = place, "making a form of the tables");
        all.batch_execute(sql).await.map_err(|error| of_statement(place, "making the tables", &error))?;
    }
    all.commit().await.map_err(|error| of_statement(place, "making the tables", &error))
}

fn check(found: u64, place: &str) -> Result<(), Failure> {
    match found > KNOWN {
        true => Err(StoreError::Newer { place: place.to_owned(), found, known: KNOWN }.into()),
        false => Ok(()),
    }
}

/// The form that is there; 0 for none. The catalogue is read as a table: a look-up by name would remember, within one
/// transaction, that a moment ago there was none.
async fn form(client: &tokio_postgres::Client) -> Result<u64, tokio_postgres::Error> {
    let is_there =
        "SELECT EXISTS (SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
                    WHERE n.nspname = 'wharf' AND c.relname = 'form')";
    if client.query_one(is_there, &[]).await?.get(0) {
        let number: i32 = client.query_one("SELECT max(number) FROM wharf.form", &[]).await?.get(0);
        return Ok(u64::try_from(number).unwrap_or(0));
    }
    Ok(0)
}
