//! Every key of a harness file in one table: what is known, what is an example of it, what it means. The reader takes
//! "unknown key", "did you mean" and the examples in hints from here, so a key that is not here cannot be read.

/// One key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    /// Its name; `NAME` stands for any name.
    pub name: &'static str,
    /// A line that is right.
    pub example: &'static str,
    /// What it does.
    pub doc: &'static str,
}

/// The keys of one table of the file.
#[derive(Debug, Clone, Copy)]
pub struct Section {
    /// The table, with `NAME` for any name and without positions in lists.
    pub path: &'static str,
    /// Groups of keys; several tables share some.
    pub groups: &'static [&'static [Key]],
}

impl Section {
    /// All keys.
    pub fn keys(&self) -> impl Iterator<Item = &'static Key> {
        self.groups.iter().flat_map(|group| group.iter())
    }
}

const fn key(name: &'static str, example: &'static str, doc: &'static str) -> Key {
    Key { name, example, doc }
}

const RULE: &[Key] = &[
    key(
        "approve",
        r#"approve = "always""#,
        "whether a call waits for a person: \"never\", \"always\", or unless its input is harmless (`unless`, `unless_text`); input that cannot be judged needs approval",
    ),
    key(
        "replay",
        r#"replay = "safe""#,
        "what may happen to a call whose outcome is unknown: \"never\" again, \"safe\" to run again, \"keyed\" (again with the same idempotency key), \"when-pure\" (safe if the capability can have no effect outside the call, else never)",
    ),
    key(
        "async",
        "async = true",
        "whether the model may go on while a call runs; where nothing says so, only tools that are safe to replay may",
    ),
    key("class", r#"class = "files""#, "calls of one class run one at a time; a class is global to the harness"),
    key(
        "format",
        r#"format = "text""#,
        "offers the tool in another form than it asks for: \"function\", \"text\" or a grammar",
    ),
    key(
        "refuse",
        r#"refuse = "use read_file instead""#,
        "refuses each call with this reason; false takes a wider refusal back",
    ),
];

const TOOL_LIMITS: &[Key] = &[
    key("time", r#"time = "10s""#, "wall clock of one call, host calls included"),
    key("memory", r#"memory = "64MiB""#, "all memories and tables of a call's instance together"),
    key("output", r#"output = "64KiB""#, "largest output; more is cut head and tail"),
];

const CAPABILITY_LIMITS: &[Key] =
    &[key("calls_at_once", "calls_at_once = 4", "calls of a capability that run at once")];

const GRANTS: &[Key] = &[
    key(
        "fs",
        r#"fs = [{ host = "./docs", guest = "/docs", access = "read" }]"#,
        "folders; relative ones are relative to the harness file",
    ),
    key("http", r#"http = ["https://api.example.com/v1/*"]"#, "addresses: scheme, host or *.host, port, path prefix"),
    key("env", r#"env = { LANG = "C.UTF-8" }"#, "environment values; there are no others"),
    key(
        "secrets",
        r#"secrets = [{ name = "token", from = { env = "API_TOKEN" }, to = "https://api.example.com", as = "bearer" }]"#,
        "secrets that the host puts into requests to one address",
    ),
    key("tools", r#"tools = ["read_file"]"#, "tools of the harness that the capability may call"),
    key("state", "state = true", "a folder of its own for state"),
];

/// Every table of a harness file.
pub const SECTIONS: &[Section] = &[
    Section {
        path: "",
        groups: &[&[
            key("harness", "[harness]\nname = \"docs-helper\"", "the agent itself"),
            key("options", "[options]\nmax_output_tokens = 1000", "options of the model, in no provider's spelling"),
            key("providers", "[providers.openai]\ndriver = \"openai-responses\"", "where models are"),
            key(
                "models",
                "[models.\"openai/gpt-6-astra\"]\nasync = \"auto\"",
                "what a model can do, where its profile is wrong",
            ),
            key("sessions", "[sessions]\nkeep = \"90d\"", "where sessions are kept, and for how long"),
            key("capabilities", "[capabilities.files]\ncomponent = \"files.wasm\"", "sources of tools"),
            key("profiles", "[profiles.careful]\napprove = \"always\"", "policy that several capabilities share"),
            key(
                "defaults",
                "[defaults]\napprove = \"always\"",
                "policy of all tools where nothing nearer says otherwise",
            ),
        ]],
    },
    Section {
        path: "harness",
        groups: &[&[
            key("name", r#"name = "docs-helper""#, "the harness's name"),
            key(
                "instructions",
                r#"instructions = "Answer from the files in /docs.""#,
                "sent to the model with every request",
            ),
            key(
                "model",
                r#"model = "openai/gpt-6-astra""#,
                "provider and model; the provider is what stands before the first slash",
            ),
            key("max_responses", "max_responses = 32", "most responses of one turn"),
            key("parallel", "parallel = true", "whether calls may run side by side"),
            key("jobs_at_once", "jobs_at_once = 8", "most calls that run at once, over all capabilities"),
            key(
                "on_unknown",
                r#"on_unknown = "stop""#,
                "what happens to a continuation whose fate nobody knows: \"stop\" until an operator decides, or \"resend\"",
            ),
            key(
                "after_lost_response",
                r#"after_lost_response = "pause""#,
                "what follows when calls with effects ran for an answer that was lost: \"pause\" for an operator, or \"continue\"",
            ),
            key(
                "resend_lost",
                "resend_lost = 1",
                "how often a lost request that continues nothing stored is sent again",
            ),
            key(
                "unknown_tool_limit",
                "unknown_tool_limit = 5",
                "calls of tools that do not exist before the turn stops",
            ),
        ]],
    },
    Section {
        path: "options",
        groups: &[&[
            key("temperature", "temperature = 0.2", "sampling temperature"),
            key("max_output_tokens", "max_output_tokens = 1000", "most tokens of one response"),
            key("effort", r#"effort = "low""#, "reasoning effort, in the provider's word"),
            key("verbosity", r#"verbosity = "low""#, "verbosity of text, in the provider's word"),
            key("speed", r#"speed = "priority""#, "service tier, in the provider's word"),
            key("metadata", r#"metadata = { team = "docs" }"#, "sent along as it is"),
            key("prompt_cache_key", r#"prompt_cache_key = "docs-helper""#, "cache key of the stable prefix"),
            key("volatile_suffix", "volatile_suffix = 1", "trailing messages that stay outside the cached prefix"),
            key("extra", r#"extra = { top_k = 5 }"#, "members of the driver's request body that have no neutral name"),
            key(
                "headers",
                r#"headers = { "x-team" = "docs" }"#,
                "headers of each request; they cannot replace authorisation",
            ),
        ]],
    },
    Section {
        path: "providers.NAME",
        groups: &[&[
            key("driver", r#"driver = "openai-responses""#, "the protocol"),
            key(
                "base_url",
                r#"base_url = "https://api.openai.com/v1""#,
                "the address; each driver has its own default",
            ),
            key(
                "api_key",
                r#"api_key = { env = "OPENAI_API_KEY" }"#,
                "where the key is: an environment variable or a file",
            ),
            key("headers", r#"headers = { "x-team" = "docs" }"#, "headers of each request"),
            key("insecure_http", "insecure_http = true", "allows plain HTTP to another host than this one"),
        ]],
    },
    Section {
        path: "providers.NAME.api_key",
        groups: &[&[
            key("env", r#"api_key = { env = "OPENAI_API_KEY" }"#, "an environment variable of the host"),
            key("file", r#"api_key = { file = "key.txt" }"#, "a file; relative ones are relative to the harness file"),
        ]],
    },
    Section {
        path: "models.NAME",
        groups: &[&[
            key(
                "async",
                r#"async = "auto""#,
                "whether the model takes async tools: \"auto\" (its profile says), \"on\" or \"off\"",
            ),
            key("images", "images = true", "whether the model takes images in outputs of calls"),
        ]],
    },
    Section {
        path: "sessions",
        groups: &[&[
            key(
                "keep",
                r#"keep = "90d""#,
                "`wharf session gc` deletes sessions without an open turn whose last record is older; without it they are kept for ever",
            ),
            key(
                "store",
                r#"store = { env = "WHARF_STORE" }"#,
                "a PostgreSQL database that several machines share, by its address or by where that is: postgres://USER@HOST/DATABASE; without it sessions are kept in .wharf beside this file",
            ),
        ]],
    },
    Section {
        path: "sessions.store",
        groups: &[&[
            key("env", r#"store = { env = "WHARF_STORE" }"#, "an environment variable of the host"),
            key("file", r#"store = { file = "store.txt" }"#, "a file; relative ones are relative to the harness file"),
        ]],
    },
    Section {
        path: "capabilities.NAME",
        groups: &[
            &[
                key("component", r#"component = "files.wasm""#, "a component: path, or a name in the lock file"),
                key("native", r#"native = "files""#, "a capability that the embedding program registered, by id"),
                key(
                    "config",
                    r#"config = { root = "/docs" }"#,
                    "what the capability is told; checked against its own schema",
                ),
                key("enabled", "enabled = false", "false leaves it out"),
                key("profile", r#"profile = "careful""#, "one policy profile or a list of them"),
                key("grants", "[capabilities.files.grants]\nfs = []", "what it may reach"),
                key("limits", "[capabilities.files.limits]\ntime = \"10s\"", "how much a call may use"),
                key(
                    "tools",
                    "[capabilities.files.tools.read_file]\nreplay = \"safe\"",
                    "rules by tool name or pattern",
                ),
            ],
            RULE,
        ],
    },
    Section { path: "capabilities.NAME.grants", groups: &[GRANTS] },
    Section { path: "capabilities.NAME.limits", groups: &[TOOL_LIMITS, CAPABILITY_LIMITS] },
    Section {
        path: "capabilities.NAME.tools.NAME",
        groups: &[RULE, &[key("limits", r#"limits = { time = "10s" }"#, "how much a call of this tool may use")]],
    },
    Section { path: "capabilities.NAME.tools.NAME.limits", groups: &[TOOL_LIMITS] },
    Section {
        path: "profiles.NAME",
        groups: &[
            RULE,
            &[
                key(
                    "grants",
                    "[profiles.careful.grants]\nfs = []",
                    "what its capabilities may reach, beside their own grants",
                ),
                key("limits", "[profiles.careful.limits]\ntime = \"10s\"", "how much a call may use"),
            ],
        ],
    },
    Section { path: "profiles.NAME.grants", groups: &[GRANTS] },
    Section { path: "profiles.NAME.limits", groups: &[TOOL_LIMITS, CAPABILITY_LIMITS] },
    Section {
        path: "defaults",
        groups: &[RULE, &[key("limits", "[defaults.limits]\ntime = \"10s\"", "how much a call may use")]],
    },
    Section { path: "defaults.limits", groups: &[TOOL_LIMITS, CAPABILITY_LIMITS] },
    Section {
        path: "*.approve",
        groups: &[&[
            key(
                "unless",
                r#"approve = { unless = { properties = { dry_run = { const = true } }, required = ["dry_run"] } }"#,
                "JSON Schema of harmless input",
            ),
            key(
                "unless_text",
                r#"approve = { unless_text = "^SELECT " }"#,
                "pattern of harmless raw text, found anywhere in it",
            ),
        ]],
    },
    Section {
        path: "*.format",
        groups: &[&[
            key(
                "grammar",
                r#"format = { grammar = "regex", definition = "[a-z]+" }"#,
                "the grammar's language: \"lark\" or \"regex\"",
            ),
            key("definition", r#"format = { grammar = "regex", definition = "[a-z]+" }"#, "the grammar"),
        ]],
    },
    Section {
        path: "*.grants.fs",
        groups: &[&[
            key("host", r#"host = "./docs""#, "the folder here; relative ones are relative to the harness file"),
            key("guest", r#"guest = "/docs""#, "the absolute path under which the component sees it"),
            key("access", r#"access = "read""#, "\"read\" (the default) or \"read-write\""),
            key(
                "overlap",
                "overlap = true",
                "says that a writable folder which contains another grant's folder is meant",
            ),
        ]],
    },
    Section {
        path: "*.grants.http",
        groups: &[&[
            key("url", r#"url = "https://api.example.com/v1/*""#, "scheme, host or *.host, port, path prefix"),
            key("methods", r#"methods = ["GET"]"#, "the only methods"),
        ]],
    },
    Section {
        path: "*.grants.secrets",
        groups: &[&[
            key("name", r#"name = "token""#, "the name by which a component can ask whether it exists"),
            key("from", r#"from = { env = "API_TOKEN" }"#, "where its value is"),
            key("to", r#"to = "https://api.example.com""#, "the only address that it is sent to"),
            key("as", r#"as = "bearer""#, "how: \"bearer\", \"basic\", \"header:NAME\" or \"query:NAME\""),
        ]],
    },
    Section {
        path: "*.grants.secrets.from",
        groups: &[&[
            key("env", r#"from = { env = "API_TOKEN" }"#, "an environment variable of the host"),
            key("file", r#"from = { file = "token.txt" }"#, "a file; relative ones are relative to the harness file"),
            key("command", r#"from = { command = ["pass", "show", "api"] }"#, "a command's standard output"),
        ]],
    },
];

/// The keys of the table at a path of names as `NAME`s.
pub(super) fn section(path: &str) -> Option<&'static Section> {
    SECTIONS.iter().find(|section| match section.path.strip_prefix('*') {
        Some(suffix) => path.ends_with(suffix),
        None => section.path == path,
    })
}

/// The key at a path of names as `NAME`s.
pub(super) fn find(path: &str) -> Option<&'static Key> {
    let (table, name) = path.rsplit_once('.').unwrap_or(("", path));
    section(table)?.keys().find(|key| key.name == name)
}
