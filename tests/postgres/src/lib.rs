//! A PostgreSQL server for tests, made from the installed programs in a temporary folder: reached through a socket there, and
//! through a port of 127.0.0.1 where a test asks for one. It syncs to the disk as a real one does. It is stopped when it is
//! dropped.
//!
//! PostgreSQL refuses to run as root, so under root its programs run as `nobody`.

mod proxy;

use std::fs;
use std::io;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tempfile::TempDir;

pub use proxy::Proxy;

/// Where Debian has the programs of each version; elsewhere `PATH` has them.
const DEBIAN: &str = "/usr/lib/postgresql";

/// The user who owns the server's databases.
const USER: &str = "wharf";

/// Set where everything has to be there that a full test needs: then a missing program fails.
const SKIP_NOTHING: &str = "WHARF_SKIP_NOTHING";

/// A running server.
pub struct Cluster {
    programs: PathBuf,
    folder: TempDir,
    port: u16,
    databases: AtomicU32,
}

impl Cluster {
    /// The one of this process that tests share, which leave it running and each have a database of their own. It is
    /// stopped when the last of them lets it go. `None` as [`Cluster::start`].
    pub fn shared() -> Option<Arc<Self>> {
        static SHARED: Mutex<Weak<Cluster>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cluster) = shared.upgrade() {
            return Some(cluster);
        }
        let cluster = Arc::new(Self::start()?);
        *shared = Arc::downgrade(&cluster);
        Some(cluster)
    }

    /// Starts one. `None`, with a word on standard error, where PostgreSQL is not installed.
    ///
    /// # Panics
    ///
    /// If it does not start, or if it is not installed and nothing may be skipped.
    #[allow(clippy::print_stderr, reason = "a test that is skipped says so")]
    pub fn start() -> Option<Self> {
        let Some(programs) = programs() else {
            assert!(std::env::var_os(SKIP_NOTHING).is_none(), "PostgreSQL's server programs are not installed");
            eprintln!("skipped: PostgreSQL's server programs are not installed (Debian: apt-get install postgresql)");
            return None;
        };
        let folder = tempfile::Builder::new().prefix("wharf-pg").tempdir().expect("a temporary folder");
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).expect("its rights");
        // Free now; nobody else on this machine is expected to take it within a moment.
        let port =
            TcpListener::bind(("127.0.0.1", 0)).and_then(|socket| socket.local_addr()).expect("a free port").port();
        let cluster = Self { programs, folder, port, databases: AtomicU32::new(0) };
        let data = cluster.data();
        cluster.run("initdb", &["-D", &data, "-U", USER, "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync"]);
        cluster.restart();
        Some(cluster)
    }

    /// The folder of the server's socket.
    pub fn socket(&self) -> &Path {
        self.folder.path()
    }

    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The address of a fresh, empty database, through the socket.
    pub fn database(&self) -> String {
        let name = format!("test{}", self.databases.fetch_add(1, Ordering::SeqCst));
        self.sql("postgres", &format!("CREATE DATABASE {name}"));
        self.address(&name)
    }

    /// The name of a fresh, empty database; none if the server is not there now.
    pub fn try_database(&self) -> Option<String> {
        let name = format!("test{}", self.databases.fetch_add(1, Ordering::SeqCst));
        self.try_sql("postgres", &format!("CREATE DATABASE {name}"))?;
        Some(name)
    }

    /// The address of a database, through the socket.
    pub fn address(&self, database: &str) -> String {
        let socket = self.socket().display();
        format!("postgres:///{database}?host={socket}&port={}&user={USER}", self.port)
    }

    /// The name of the database in an address of ours.
    pub fn name<'a>(&self, address: &'a str) -> &'a str {
        address.trim_start_matches("postgres:///").split('?').next().unwrap_or_default()
    }

    /// What SQL answers, without decoration.
    ///
    /// # Panics
    ///
    /// If it fails.
    pub fn sql(&self, database: &str, sql: &str) -> String {
        let args = self.psql(database, sql);
        self.run("psql", &args.iter().map(String::as_str).collect::<Vec<_>>()).trim().to_owned()
    }

    /// The same; none if it fails.
    pub fn try_sql(&self, database: &str, sql: &str) -> Option<String> {
        let args = self.psql(database, sql);
        let output = self.try_run("psql", &args.iter().map(String::as_str).collect::<Vec<_>>()).ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    fn psql(&self, database: &str, sql: &str) -> Vec<String> {
        let (socket, port) = (self.socket().display().to_string(), self.port.to_string());
        let args = ["-h", &socket, "-p", &port, "-U", USER, "-d", database, "-v", "ON_ERROR_STOP=1", "-qAtc", sql];
        args.map(str::to_owned).to_vec()
    }

    /// What another of its programs prints, run against a database, as `pgbench`.
    ///
    /// # Panics
    ///
    /// If it fails.
    pub fn program(&self, program: &str, database: &str, args: &[&str]) -> String {
        let (socket, port) = (self.socket().display().to_string(), self.port.to_string());
        let mut all = vec!["-h", &socket, "-p", &port, "-U", USER];
        all.extend(args);
        all.push(database);
        self.run(program, &all)
    }

    /// The same for a file.
    ///
    /// # Panics
    ///
    /// If it fails.
    pub fn sql_file(&self, database: &str, file: &Path, variables: &[(&str, &str)]) {
        let (socket, port, file) =
            (self.socket().display().to_string(), self.port.to_string(), file.display().to_string());
        let mut args =
            vec!["-h", &socket, "-p", &port, "-U", USER, "-d", database, "-v", "ON_ERROR_STOP=1", "-q", "-f", &file];
        let variables: Vec<String> = variables.iter().map(|(name, value)| format!("{name}={value}")).collect();
        for variable in &variables {
            args.extend(["-v", variable]);
        }
        self.run("psql", &args);
    }

    /// Stops it as a crash would, without a checkpoint.
    pub fn crash(&self) {
        self.run("pg_ctl", &["-D", &self.data(), "-m", "immediate", "-w", "stop"]);
    }

    /// Starts it, or starts it again after [`Cluster::crash`].
    pub fn restart(&self) {
        let (socket, port) = (self.socket().display().to_string(), self.port);
        let options = format!("-c listen_addresses=127.0.0.1 -p {port} -k {socket} -c max_connections=200");
        let log = self.folder.path().join("log").display().to_string();
        self.run("pg_ctl", &["-D", &self.data(), "-w", "-t", "60", "-o", &options, "-l", &log, "start"]);
    }

    /// Ends every connection to a database but the one that does it.
    pub fn cut(&self, database: &str) {
        self.sql(
            "postgres",
            &format!("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = '{database}'"),
        );
    }

    fn data(&self) -> String {
        self.folder.path().join("data").display().to_string()
    }

    /// Runs one of the programs and answers what it printed.
    fn run(&self, program: &str, args: &[&str]) -> String {
        let output = self.try_run(program, args).unwrap_or_else(|error| panic!("{program}: {error}"));
        let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{program} {args:?}: {said}{}", self.log());
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn try_run(&self, program: &str, args: &[&str]) -> io::Result<Output> {
        let path = self.programs.join(program);
        let mut command = if is_root() {
            let mut command = Command::new("setpriv");
            command.args(["--reuid=nobody", "--regid=nogroup", "--clear-groups"]).arg(path);
            command
        } else {
            Command::new(path)
        };
        // Nothing of the caller's environment decides which server is meant.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("PG") {
                command.env_remove(name);
            }
        }
        command.env("LC_ALL", "C").current_dir(self.folder.path()).args(args).output()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // It may be stopped already.
        let _ = self.try_run("pg_ctl", &["-D", &self.data(), "-m", "immediate", "-w", "stop"]);
    }
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
}

/// The folder of the newest server's programs.
fn programs() -> Option<PathBuf> {
    let versions = fs::read_dir(DEBIAN).into_iter().flatten().flatten();
    let mut found: Vec<(u32, PathBuf)> = versions
        .filter_map(|version| Some((version.file_name().to_str()?.parse().ok()?, version.path().join("bin"))))
        .filter(|(version, bin)| *version >= 15 && bin.join("initdb").is_file())
        .collect();
    found.sort();
    let on_path = || {
        let path = std::env::var_os("PATH")?;
        std::env::split_paths(&path).find(|folder| folder.join("initdb").is_file())
    };
    found.pop().map(|(_, bin)| bin).or_else(on_path)
}
