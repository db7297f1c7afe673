//! Opening: the tables, the rights, the settings, and addresses that are wrong or whose first server is gone.

use std::path::Path;

use super::*;

fn refused(address: &str) -> String {
    open_with(address, PostgresOptions::default()).err().unwrap().to_string()
}

#[test]
fn hosts_that_start_at_once_make_the_tables_once() {
    let Some(cluster) = Cluster::shared() else { return };
    let address = cluster.database();
    let stores: Vec<PostgresStore> = std::thread::scope(|scope| {
        let opening: Vec<_> = (0..8).map(|_| scope.spawn(|| open(&address))).collect();
        opening.into_iter().map(|opened| opened.join().unwrap()).collect()
    });
    assert_eq!(cluster.sql(cluster.name(&address), "SELECT number FROM wharf.form"), "1");
    let lease = owned(&stores[0], "s");
    assert_eq!(block_on(stores[0].append(&lease, append(0, &["r1"]))), Ok(Seq(1)));
    assert_eq!(ids(&stores[7], "s"), ["r1"]);
}

// covers M1
#[test]
fn tables_of_a_newer_version_are_refused_and_kept() {
    let Some(cluster) = Cluster::shared() else { return };
    let address = cluster.database();
    drop(open(&address));
    cluster.sql(cluster.name(&address), "UPDATE wharf.form SET number = 99");
    let error = open_with(&address, PostgresOptions::default()).err().unwrap();
    assert!(matches!(error, StoreError::Newer { found: 99, known: 1, .. }), "{error}");
    assert_eq!(cluster.sql(cluster.name(&address), "SELECT number FROM wharf.form"), "99");
}

#[test]
fn nothing_is_made_where_nothing_may_be_made() {
    let Some(cluster) = Cluster::shared() else { return };
    let address = cluster.database();
    let error = open_with(&address, PostgresOptions { migrate: false, ..PostgresOptions::default() }).err().unwrap();
    assert!(error.to_string().contains("it has form 0 of the tables and 1 is needed"), "{error}");
    assert_eq!(cluster.sql(cluster.name(&address), "SELECT to_regnamespace('wharf') IS NULL"), "t");
}

#[test]
fn a_role_with_the_least_rights_does_everything_but_make_tables() {
    let Some(cluster) = Cluster::shared() else { return };
    let address = cluster.database();
    let database = cluster.name(&address);
    drop(open(&address));
    let role = format!("host_{database}");
    cluster.sql(database, &format!("CREATE ROLE {role} LOGIN"));
    let roles = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/postgres/roles.sql");
    cluster.sql_file(database, &roles, &[("role", &role)]);
    let address = address.replace("user=wharf", &format!("user={role}"));
    let store = open(&address);
    let lease = owned(&store, "s");
    let blob = (wharf_core::BlobDigest::new("sha256:1"), b"output".to_vec());
    let whole = Append { blobs: vec![blob], snapshot: Some("{}".into()), ..append(0, &["r1"]) };
    assert_eq!(block_on(store.append(&lease, whole)), Ok(Seq(1)));
    let lease = Lease { head: Seq(1), ..lease };
    assert_eq!(block_on(store.sweep(&lease, &Default::default())).unwrap().blobs, 1);
    block_on(store.delete(&lease, wharf_store::DeletionMark { who: "ann".into(), at_ms: 1 })).unwrap();
    let may = |what: &str| cluster.sql(database, &format!("SELECT has_schema_privilege('{role}', 'wharf', '{what}')"));
    assert_eq!((may("USAGE").as_str(), may("CREATE").as_str()), ("t", "f"));
    // Deletion needs to empty a session's row, never to take rows of sessions away.
    let deletes = cluster.sql(database, &format!("SELECT has_table_privilege('{role}', 'wharf.journal', 'DELETE')"));
    assert_eq!(deletes, "f");
}

#[test]
fn a_role_without_rights_is_told_what_it_needs() {
    let Some(cluster) = Cluster::shared() else { return };
    let address = cluster.database();
    let database = cluster.name(&address);
    drop(open(&address));
    cluster.sql(database, &format!("CREATE ROLE nobody_{database} LOGIN"));
    let error = refused(&address.replace("user=wharf", &format!("user=nobody_{database}")));
    assert!(error.contains("permission denied") && error.contains("roles.sql"), "{error}");
}

// covers M4
#[test]
fn commits_are_synced_whatever_the_database_is_set_to() {
    let Some(cluster) = Cluster::shared() else { return };
    let address = cluster.database();
    let database = cluster.name(&address);
    cluster.sql(database, &format!("ALTER DATABASE {database} SET synchronous_commit = off"));
    let store = open(&address);
    let lease = owned(&store, "s");
    // A function of the schema tells what it ran with.
    cluster.sql(
        database,
        "CREATE TABLE seen (setting text); GRANT ALL ON seen TO PUBLIC;
         CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS
           $$ BEGIN INSERT INTO seen VALUES (current_setting('synchronous_commit')); RETURN NEW; END $$;
         CREATE TRIGGER see BEFORE INSERT ON wharf.record FOR EACH ROW EXECUTE FUNCTION see()",
    );
    assert_eq!(block_on(store.append(&lease, append(0, &["r1"]))), Ok(Seq(1)));
    assert_eq!(cluster.sql(database, "SELECT setting FROM seen"), "on");
    assert_eq!(cluster.sql(database, "SHOW synchronous_commit"), "off", "which is what it would have been");
}

#[test]
fn a_database_of_another_encoding_is_refused_with_what_to_do() {
    let Some(cluster) = Cluster::shared() else { return };
    cluster.sql("postgres", "CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'");
    let error = refused(&cluster.address("latin"));
    assert!(error.contains("its encoding is LATIN1") && error.contains("ENCODING 'UTF8'"), "{error}");
}

#[test]
fn of_several_servers_one_that_is_there_and_takes_writes_is_used() {
    let Some(cluster) = Cluster::shared() else { return };
    let address = cluster.database();
    let (database, port) = (cluster.name(&address), cluster.port());
    let of = |hosts: &str| format!("postgres://wharf@{hosts}/{database}");
    let store = open(&of(&format!("127.0.0.1:1,127.0.0.1:{port}")));
    assert_eq!(store.place(), format!("PostgreSQL database {database:?} at 127.0.0.1:1, 127.0.0.1:{port}"));
    owned(&store, "s");
    drop(store);
    // As a standby does, it says that it takes no writes.
    cluster.sql(database, &format!("ALTER DATABASE {database} SET default_transaction_read_only = on"));
    let error = open_with(&of(&format!("127.0.0.1:{port}")), PostgresOptions::default()).err().unwrap();
    assert!(matches!(error, StoreError::Io { transient: true, .. }), "{error}");
}

#[test]
fn no_error_shows_the_password() {
    let Some(cluster) = Cluster::shared() else { return };
    let port = cluster.port();
    for address in [
        format!("postgres://ann:sk-secret@127.0.0.1:{port}/postgres"),
        format!("postgres://wharf:sk-secret@127.0.0.1:{port}/nowhere"),
        "postgres://ann:sk-secret@127.0.0.1:1/postgres".to_owned(),
        format!("postgres://wharf:sk-secret@127.0.0.1:{port}/postgres?sslmode=require"),
    ] {
        let error = refused(&address);
        assert!(error.contains("127.0.0.1") && !error.contains("sk-secret"), "{error}");
    }
}
