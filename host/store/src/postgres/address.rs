//! Where the database is, as an operator writes it, and how a connection to it is made. No password leaves this file but
//! towards the server.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::BuilderVerifierExt;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::failure::chain;
use crate::StoreError;
use crate::limits::{POSTGRES_ANSWER_MAX, POSTGRES_CONNECT_MAX, POSTGRES_KEEPALIVE};

/// What an address begins with.
const SCHEMES: [&str; 2] = ["postgres://", "postgresql://"];

/// A checked address. `Display` and `Debug` show no password.
pub(super) struct Address {
    pub(super) config: Config,
    ca: Option<PathBuf>,
    shown: String,
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.shown)
    }
}

impl Address {
    /// Reads `postgres://USER:PASSWORD@HOST:PORT,HOST:PORT/DATABASE?sslmode=…&sslrootcert=…`, as libpq does. Where it says
    /// nothing of TLS, a server elsewhere has to have it.
    pub(super) fn parse(text: &str) -> Result<Self, StoreError> {
        if !SCHEMES.iter().any(|scheme| text.starts_with(scheme)) {
            return Err(wrong("it has to begin with postgres:// or postgresql://"));
        }
        // Of a password with such a sign in it a part would be taken for a host, a database or an option, and be shown.
        let authority = text.split_once("://").map_or("", |(_, rest)| rest.split(['/', '?', '#']).next().unwrap_or(""));
        if text.matches('@').count() > 1 || text.contains('@') != authority.contains('@') {
            return Err(wrong("write @, /, ? and # in a user's name or password as %40, %2F, %3F and %23"));
        }
        let (head, query) = text.split_once('?').unwrap_or((text, ""));
        let (mut mode, mut ca, mut rest) = (None, None, Vec::new());
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("sslmode", value)) => mode = Some(tls_mode(value)?),
                Some(("sslrootcert", value)) => ca = Some(PathBuf::from(decoded(value)?)),
                _ => rest.push(pair),
            }
        }
        let text = if rest.is_empty() { head.to_owned() } else { format!("{head}?{}", rest.join("&")) };
        // The parser names the part that is wrong, and never its value.
        let mut config: Config = text.parse().map_err(|error| wrong(&chain(&error)))?;
        if config.get_hosts().is_empty() {
            return Err(wrong("it names no host"));
        }
        let is_here = config.get_hosts().iter().all(is_here);
        config.ssl_mode(mode.unwrap_or(if is_here { SslMode::Disable } else { SslMode::Require }));
        // Of several servers the one that takes writes; also after a failover.
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        if config.get_application_name().is_none() {
            config.application_name("wharf");
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(POSTGRES_CONNECT_MAX);
        }
        config.keepalives_idle(POSTGRES_KEEPALIVE).keepalives_interval(POSTGRES_KEEPALIVE).keepalives_retries(2);
        config.tcp_user_timeout(POSTGRES_ANSWER_MAX);
        let shown = shown(&config);
        Ok(Self { config, ca, shown })
    }

    /// How connections are encrypted. The server's certificate is always checked: what is encrypted towards just anybody is
    /// not secret.
    pub(super) fn tls(&self) -> Result<MakeRustlsConnect, StoreError> {
        let provider = Arc::new(ring::default_provider());
        let fails = |error: rustls::Error| wrong(&format!("TLS cannot be set up: {error}"));
        let builder =
            ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().map_err(fails)?;
        let client = match &self.ca {
            _ if self.config.get_ssl_mode() == SslMode::Disable => {
                builder.with_root_certificates(RootCertStore::empty())
            }
            Some(path) => builder.with_root_certificates(roots(path)?),
            None => builder.with_platform_verifier().map_err(fails)?,
        };
        Ok(MakeRustlsConnect::new(client.with_no_client_auth()))
    }
}

fn roots(path: &Path) -> Result<RootCertStore, StoreError> {
    let cannot = |why: String| wrong(&format!("the certificates in {} cannot be read: {why}", path.display()));
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|error| cannot(error.to_string()))? {
        let certificate = certificate.map_err(|error| cannot(error.to_string()))?;
        roots.add(certificate).map_err(|error| cannot(error.to_string()))?;
    }
    if roots.is_empty() { Err(cannot("there is none in it".to_owned())) } else { Ok(roots) }
}

fn tls_mode(value: &str) -> Result<SslMode, StoreError> {
    match value {
        "disable" => Ok(SslMode::Disable),
        "prefer" => Ok(SslMode::Prefer),
        "require" | "verify-ca" | "verify-full" => Ok(SslMode::Require),
        _ => Err(wrong("sslmode is one of disable, prefer, require, verify-full")),
    }
}

/// True for a socket of this machine and for its own addresses.
fn is_here(host: &Host) -> bool {
    match host {
        Host::Tcp(name) => {
            name == "localhost" || name.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback())
        }
        #[cfg(unix)]
        Host::Unix(_) => true,
    }
}

fn shown(config: &Config) -> String {
    let ports = config.get_ports();
    let hosts = config.get_hosts().iter().enumerate().map(|(at, host)| {
        let port = ports.get(at).or(ports.first()).copied().unwrap_or(5432);
        match host {
            Host::Tcp(name) => format!("{name}:{port}"),
            #[cfg(unix)]
            Host::Unix(path) => path.display().to_string(),
        }
    });
    let database = config.get_dbname().or(config.get_user()).unwrap_or_default();
    format!("PostgreSQL database {database:?} at {}", hosts.collect::<Vec<_>>().join(", "))
}

fn decoded(text: &str) -> Result<String, StoreError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digits =
                    [rest.next(), rest.next()].map(|digit| digit.and_then(|digit| (digit as char).to_digit(16)));
                let [Some(high), Some(low)] = digits else {
                    return Err(wrong("a % is not followed by two hex digits"));
                };
                u8::try_from(high * 16 + low).unwrap_or(b'?')
            }
            other => other,
        });
    }
    String::from_utf8(bytes).map_err(|_| wrong("a path in it is no text"))
}

/// An address that cannot be used. It is not shown: it may hold a password.
pub(super) fn wrong(why: &str) -> StoreError {
    StoreError::Io {
        what: "reading the address of the PostgreSQL store".to_owned(),
        why: why.to_owned(),
        transient: false,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn an_address_shows_where_and_never_a_password() {
        let address = Address::parse("postgres://ann:sk%2Dsecret@db1:5433,db2/wharf?sslmode=require").unwrap();
        assert_eq!(address.to_string(), "PostgreSQL database \"wharf\" at db1:5433, db2:5432");
        let address = Address::parse("postgresql:///wharf?host=/run/postgresql&user=ann&password=sk-secret").unwrap();
        assert_eq!(address.to_string(), "PostgreSQL database \"wharf\" at /run/postgresql");
    }

    #[test]
    fn a_server_elsewhere_has_to_have_tls_unless_the_operator_says_otherwise() {
        let mode = |text: &str| Address::parse(text).unwrap().config.get_ssl_mode();
        assert_eq!(mode("postgres://db.example/wharf"), SslMode::Require);
        assert_eq!(mode("postgres://127.0.0.1,db.example/wharf"), SslMode::Require);
        for here in
            ["postgres://localhost/w", "postgres://127.0.0.1/w", "postgres://[::1]/w", "postgres:///w?host=/run"]
        {
            assert_eq!(mode(here), SslMode::Disable, "{here}");
        }
        assert_eq!(mode("postgres://db.example/wharf?sslmode=disable"), SslMode::Disable);
        assert_eq!(mode("postgres://localhost/wharf?sslmode=verify-full"), SslMode::Require);
        assert_eq!(mode("postgres://localhost/wharf?sslmode=prefer"), SslMode::Prefer);
    }

    #[test]
    fn a_wrong_address_says_what_is_wrong_and_not_what_it_is() {
        for (text, why) in [
            ("mysql://ann:sk-secret@h/w", "it has to begin with postgres://"),
            ("postgres://ann:sk-secret@h:port/w", "port"),
            ("postgres://ann:sk-secret@h/w?sslmode=maybe", "sslmode is one of"),
            ("postgres://ann:sk-secret@h/w?colour=red", "colour"),
            ("postgres://ann:sk-secret@h/w?sslrootcert=%zz", "two hex digits"),
            ("postgres://", "it names no host"),
            ("postgres://ann:x@sk-secret@h/w", "as %40"),
            ("postgres://ann:12/sk-secret@h/w", "as %40"),
            ("postgres://ann:x?sk-secret@h/w", "as %40"),
            ("postgres://ann:x#sk-secret@h/w", "as %40"),
        ] {
            let error = Address::parse(text).err().unwrap().to_string();
            assert!(error.contains(why) && !error.contains("sk-secret"), "{text}: {error}");
        }
        let error =
            Address::parse("postgres://h/w?sslrootcert=/nowhere/ca.pem").unwrap().tls().err().unwrap().to_string();
        assert!(error.contains("the certificates in /nowhere/ca.pem cannot be read"), "{error}");
    }
}
