//! Components in the text format: the contract's shell around a few lines of core WebAssembly.

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use wharf_core::grants::{FileAccess, FileGrant, Grants, Limits};
use wharf_core::tool::Content;
use wharf_sandbox::{
    CallOutcome, CallReport, Capability, Invocation, LoadError, LoadRequest, Roots, Sandbox, SandboxOptions,
};

/// A component. The bodies are core WebAssembly; `invoke` has `$input` and `$input_len` and leaves a result on the stack,
/// made by `$ok_text`, `$ok_json` or `$fail`.
pub(crate) struct Guest {
    pub(crate) imports: String,
    /// What `host` gives to the core module: name there, imported instance, function of it.
    pub(crate) host: Vec<(&'static str, &'static str, &'static str)>,
    /// What the core module imports from `host`, and its own functions.
    pub(crate) core: String,
    pub(crate) invoke: String,
    pub(crate) config_schema: Option<String>,
    pub(crate) definitions: Vec<Def>,
    /// Replaces the answer of `definitions`.
    pub(crate) definitions_body: Option<String>,
    pub(crate) contract: String,
    /// Exports `invoke` as an `async func`: WASI 0.3 lets only such functions wait.
    pub(crate) async_invoke: bool,
}

/// One definition as the component gives it.
#[derive(Clone)]
pub(crate) struct Def {
    pub(crate) name: String,
    pub(crate) title: Option<String>,
    pub(crate) category: Option<String>,
    pub(crate) description: String,
    pub(crate) input: In,
    pub(crate) output_schema: Option<String>,
    /// read-only 1, idempotent 2, destructive 4, open-world 8.
    pub(crate) claims: u8,
}

#[derive(Clone)]
pub(crate) enum In {
    Json(String),
    Text,
    Grammar(u8, String),
}

impl Def {
    pub(crate) fn text(name: &str) -> Self {
        Self {
            name: name.into(),
            title: None,
            category: None,
            description: "a tool".into(),
            input: In::Text,
            output_schema: None,
            claims: 0,
        }
    }
}

impl Guest {
    /// A component whose only tool runs this.
    pub(crate) fn new(invoke: &str) -> Self {
        Self {
            imports: String::new(),
            host: Vec::new(),
            core: String::new(),
            invoke: invoke.into(),
            config_schema: None,
            definitions: vec![Def::text("tool")],
            definitions_body: None,
            contract: wharf_sandbox::CONTRACT.into(),
            async_invoke: false,
        }
    }

    /// Gives back its input.
    pub(crate) fn echo() -> Self {
        Self::new("(call $ok_text (local.get $input) (local.get $input_len))")
    }

    pub(crate) fn imports(
        mut self,
        imports: &str,
        host: &[(&'static str, &'static str, &'static str)],
        core: &str,
    ) -> Self {
        self.imports.push_str(imports);
        self.host.extend(host);
        self.core.push_str(core);
        self
    }

    pub(crate) fn core(mut self, core: &str) -> Self {
        self.core.push_str(core);
        self
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let text = self.text();
        wat::parse_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
    }

    fn text(&self) -> String {
        let mut image = Image::default();
        let schema = image.option_string(self.config_schema.as_deref());
        let schema_at = image.place(&schema);
        let definitions: Vec<Vec<u8>> = self.definitions.iter().map(|def| image.definition(def)).collect();
        let definitions_at = image.place(&definitions.concat());
        let mut answer = vec![0_u8; 8];
        answer.extend(definitions_at.to_le_bytes());
        answer.extend(u32::try_from(self.definitions.len()).unwrap().to_le_bytes());
        let answer_at = image.place(&answer);
        let definitions_body = self.definitions_body.clone().unwrap_or_else(|| format!("(i32.const {answer_at})"));
        let data: String = image.bytes.iter().map(|byte| format!("\\{byte:02x}")).collect();
        let lower = |(name, instance, function): &(&str, &str, &str)| {
            format!(
                r#"(core func ${name} (canon lower (func {instance} "{function}") (memory $memory) (realloc $realloc)))"#
            )
        };
        let lowered: String = self.host.iter().map(lower).collect();
        let host: String = self.host.iter().map(|(name, ..)| format!(r#"(export "{name}" (func ${name}))"#)).collect();
        let async_invoke = if self.async_invoke { "async" } else { "" };
        let (imports, core, invoke, contract) = (&self.imports, &self.core, &self.invoke, &self.contract);
        format!(
            r#"(component
  {imports}
  (core module $mem
    (memory (export "memory") 16)
    (global $next (mut i32) (i32.const 0x90000))
    (func (export "realloc") (param $old i32) (param i32) (param $align i32) (param $size i32) (result i32)
      (local $at i32)
      (local.set $at (i32.and (i32.add (global.get $next) (i32.const 7)) (i32.const -8)))
      (global.set $next (i32.add (local.get $at) (local.get $size)))
      (block $enough (loop $more
        (br_if $enough (i32.le_u (global.get $next) (i32.mul (memory.size) (i32.const 65536))))
        (if (i32.eq (memory.grow (i32.const 16)) (i32.const -1)) (then unreachable))
        (br $more)))
      (local.get $at))
    (data (i32.const {IMAGE}) "{data}"))
  (core instance $mem (instantiate $mem))
  (alias core export $mem "memory" (core memory $memory))
  (alias core export $mem "realloc" (core func $realloc))
  {lowered}
  (core instance $host
    {host})
  (core module $main
    (import "mem" "memory" (memory 1))
    {core}
    (global $ret i32 (i32.const 0x80000))
    (func $ok (param $kind i32) (param $at i32) (param $len i32) (result i32)
      (i32.store8 (i32.const 0x80000) (i32.const 0))
      (i32.store (i32.const 0x80008) (i32.const 0x80100))
      (i32.store (i32.const 0x8000c) (i32.const 1))
      (i32.store8 (i32.const 0x80100) (local.get $kind))
      (i32.store (i32.const 0x80104) (local.get $at))
      (i32.store (i32.const 0x80108) (local.get $len))
      (global.get $ret))
    (func $ok_text (param i32 i32) (result i32) (call $ok (i32.const 0) (local.get 0) (local.get 1)))
    (func $ok_json (param i32 i32) (result i32) (call $ok (i32.const 1) (local.get 0) (local.get 1)))
    (func $fail (param $kind i32) (param $at i32) (param $len i32) (result i32)
      (i32.store8 (i32.const 0x80000) (i32.const 1))
      (i32.store8 (i32.const 0x80008) (local.get $kind))
      (i32.store (i32.const 0x8000c) (local.get $at))
      (i32.store (i32.const 0x80010) (local.get $len))
      (i32.store8 (i32.const 0x80018) (i32.const 0))
      (i32.store8 (i32.const 0x80028) (i32.const 0))
      (global.get $ret))
    ;; a number as two decimal digits
    (func $ok_number (param $n i32) (result i32)
      (i32.store8 (i32.const 0x80200) (i32.add (i32.const 48) (i32.div_u (local.get $n) (i32.const 10))))
      (i32.store8 (i32.const 0x80201) (i32.add (i32.const 48) (i32.rem_u (local.get $n) (i32.const 10))))
      (call $ok_text (i32.const 0x80200) (i32.const 2)))
    (func (export "config-schema") (result i32) (i32.const {schema_at}))
    (func $definitions (export "definitions") (param $config i32) (param $config_len i32) (result i32) {definitions_body})
    (func $invoke (export "invoke")
      (param $tool i32) (param $tool_len i32) (param $input i32) (param $input_len i32)
      (param $config i32) (param $config_len i32) (param $id i32) (param $id_len i32)
      (param $key i32) (param $key_len i32) (param $attempt i32) (param $left i64)
      (param $blobs i32) (param $blobs_len i32) (result i32)
      {invoke}))
  (core instance $main (instantiate $main (with "mem" (instance $mem)) (with "host" (instance $host))))

  (type $claims_ (flags "read-only" "idempotent" "destructive" "open-world"))
  (export $claims "claims" (type $claims_))
  (type $syntax_ (enum "lark" "regex"))
  (export $syntax "grammar-syntax" (type $syntax_))
  (type $grammar_ (record (field "syntax" $syntax) (field "definition" string)))
  (export $grammar "grammar" (type $grammar_))
  (type $format_ (variant (case "json-schema" string) (case "text") (case "grammar" $grammar)))
  (export $format "input-format" (type $format_))
  (type $definition_ (record (field "name" string) (field "title" (option string)) (field "category" (option string))
    (field "description" string) (field "input" $format) (field "output-schema" (option string)) (field "claims" $claims)))
  (export $definition "definition" (type $definition_))
  (type $attachment_ (record (field "digest" string) (field "media-type" string) (field "name" (option string)) (field "length" u64)))
  (export $attachment "attachment" (type $attachment_))
  (type $invocation_ (record (field "tool" string) (field "input" string) (field "config" string) (field "call-id" string)
    (field "idempotency-key" string) (field "attempt" u32) (field "time-left-ms" u64) (field "attachments" (list $attachment))))
  (export $invocation "invocation" (type $invocation_))
  (type $blob_ (record (field "media-type" string) (field "name" (option string)) (field "bytes" (list u8))))
  (export $blob "blob" (type $blob_))
  (type $content_ (variant (case "text" string) (case "json" string) (case "blob" $blob)))
  (export $content "content" (type $content_))
  (type $kind_ (enum "invalid-input" "not-found" "denied" "unavailable" "timed-out" "cancelled" "conflict" "failed"))
  (export $kind "failure-kind" (type $kind_))
  (type $failure_ (record (field "kind" $kind) (field "message" string) (field "retry-after-ms" (option u64)) (field "details" (option string))))
  (export $failure "failure" (type $failure_))

  (func $config-schema (result (option string))
    (canon lift (core func $main "config-schema") (memory $memory)))
  (func $definitions (param "config" string) (result (result (list $definition) (error $failure)))
    (canon lift (core func $main "definitions") (memory $memory) (realloc $realloc)))
  (func $invoke {async_invoke} (param "invocation" $invocation) (result (result (list $content) (error $failure)))
    (canon lift (core func $main "invoke") (memory $memory) (realloc $realloc)))
  (instance $tools
    (export "config-schema" (func $config-schema))
    (export "definitions" (func $definitions))
    (export "invoke" (func $invoke)))
  (export "wharf:tool/tools@{contract}" (instance $tools)))"#
        )
    }
}

const IMAGE: u32 = 0x10000;

/// Constant data of the component's memory, in the canonical layout.
#[derive(Default)]
struct Image {
    bytes: Vec<u8>,
}

impl Image {
    fn place(&mut self, bytes: &[u8]) -> u32 {
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
        let at = IMAGE + u32::try_from(self.bytes.len()).unwrap();
        self.bytes.extend(bytes);
        assert!(self.bytes.len() < 0x70000);
        at
    }

    fn string(&mut self, text: &str) -> Vec<u8> {
        let at = self.place(text.as_bytes());
        [at.to_le_bytes(), u32::try_from(text.len()).unwrap().to_le_bytes()].concat()
    }

    fn option_string(&mut self, text: Option<&str>) -> Vec<u8> {
        match text {
            Some(text) => [vec![1, 0, 0, 0], self.string(text)].concat(),
            None => vec![0; 12],
        }
    }

    fn definition(&mut self, def: &Def) -> Vec<u8> {
        let mut record = self.string(&def.name);
        record.extend(self.option_string(def.title.as_deref()));
        record.extend(self.option_string(def.category.as_deref()));
        record.extend(self.string(&def.description));
        record.extend(match &def.input {
            In::Json(schema) => [vec![0, 0, 0, 0], self.string(schema), vec![0; 4]].concat(),
            In::Text => [vec![1, 0, 0, 0], vec![0; 12]].concat(),
            In::Grammar(syntax, text) => [vec![2, 0, 0, 0, *syntax, 0, 0, 0], self.string(text)].concat(),
        });
        record.extend(self.option_string(def.output_schema.as_deref()));
        record.extend([def.claims, 0, 0, 0]);
        assert_eq!(record.len(), 72);
        record
    }
}

/// One sandbox for all tests that need none of their own.
pub(crate) fn sandbox() -> Sandbox {
    static SANDBOX: OnceLock<Sandbox> = OnceLock::new();
    SANDBOX.get_or_init(|| Sandbox::new(SandboxOptions::default()).unwrap()).clone()
}

/// What is given with a component; the defaults grant nothing.
#[derive(Default, Clone)]
pub(crate) struct Given {
    pub(crate) grants: Grants,
    pub(crate) limits: Limits,
    pub(crate) roots: Roots,
}

pub(crate) async fn load_in(sandbox: &Sandbox, bytes: Vec<u8>, given: Given) -> Result<Capability, LoadError> {
    let Given { grants, limits, roots } = given;
    sandbox.load(LoadRequest { name: "guest".into(), bytes: bytes.into(), grants, limits, roots }).await
}

pub(crate) async fn load(guest: &Guest, given: Given) -> Result<Capability, LoadError> {
    load_in(&sandbox(), guest.bytes(), given).await
}

pub(crate) fn call(tool: &str, input: &str) -> Invocation {
    Invocation {
        tool: tool.into(),
        input: input.into(),
        config: "{}".into(),
        call_id: "call-1".into(),
        idempotency_key: "key-1".into(),
        attempt: 1,
        limits: None,
        time_limit: None,
        attachments: Vec::new(),
    }
}

pub(crate) async fn run(capability: &Capability, input: &str) -> CallReport {
    capability.invoke(call("tool", input), Arc::new(())).await
}

/// The one text that a call gave.
pub(crate) async fn text(capability: &Capability, input: &str) -> String {
    text_of(&run(capability, input).await.outcome).to_owned()
}

/// The one text of a success.
pub(crate) fn text_of(outcome: &CallOutcome) -> &str {
    match outcome {
        CallOutcome::Success(contents) => match contents.as_slice() {
            [Content::Text(text)] => text,
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

/// A folder that the guest sees as `/data`.
pub(crate) fn grant(host: &Path, access: FileAccess) -> FileGrant {
    FileGrant { host: host.to_str().unwrap().into(), guest: "/data".into(), access, overlap: false }
}

/// File grants, and where they lead.
pub(crate) fn given(files: Vec<FileGrant>, roots: Roots) -> Given {
    Given { grants: Grants { files, ..Grants::default() }, roots, ..Given::default() }
}

pub(crate) fn limits_of(time_ms: u64) -> Limits {
    Limits { time: Duration::from_millis(time_ms), ..Limits::default() }
}
