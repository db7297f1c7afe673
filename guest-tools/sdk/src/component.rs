//! What an author implements, and how the exports of the contract are answered from it.

use std::any::TypeId;

use schemars::JsonSchema;
use serde::{Deserialize, de::DeserializeOwned};

use crate::{Call, Content, Definition, Description, Failure, Invocation, Tool, call::HostHandle, schema};

/// A component that offers tools (world `tool`); export it with [`export_tools!`](crate::export_tools).
pub trait Component {
    /// The config that the operator writes in the harness file; [`NoConfig`] for none. Its JSON Schema is shown to the
    /// host, and unknown keys are refused.
    type Config: DeserializeOwned + JsonSchema + 'static;

    /// The tools that a config gives. Must be pure: the host asks once, with no grants, and keeps the answer.
    ///
    /// # Errors
    /// A failure refuses the config; its message is read by the operator.
    fn tools(config: &Self::Config) -> Result<Vec<Tool<Self::Config>>, Failure>;
}

/// A component that also has text for the model's instructions (world `capability`); export it with
/// [`export_capability!`](crate::export_capability).
pub trait Capability: Component {
    /// What the capability is. Must be pure, as [`Component::tools`].
    ///
    /// # Errors
    /// A failure refuses the config.
    fn describe(config: &Self::Config) -> Result<Description, Failure>;
}

/// The config of a component that takes none.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct NoConfig {}

/// Answers `config-schema`.
pub fn config_schema<C: Component>() -> Option<String> {
    let none = TypeId::of::<C::Config>() == TypeId::of::<NoConfig>();
    (!none).then(|| schema::of_input::<C::Config>().to_string())
}

/// Answers `definitions`.
///
/// # Errors
/// When the config is refused.
pub fn definitions<C: Component>(config: &str) -> Result<Vec<Definition>, Failure> {
    let config = schema::read_config::<C::Config>(config)?;
    Ok(C::tools(&config)?.into_iter().map(Tool::into_definition).collect())
}

/// Answers `describe`.
///
/// # Errors
/// When the config is refused.
pub fn describe<C: Capability>(config: &str) -> Result<Description, Failure> {
    let config = schema::read_config::<C::Config>(config)?;
    // A config that gives no tools is no config, whichever export is asked first.
    C::tools(&config)?;
    C::describe(&config)
}

/// Answers `invoke`.
///
/// # Errors
/// When the config or the input is refused, the tool is unknown, or the tool fails.
pub(crate) fn invoke<C: Component>(invocation: Invocation, host: HostHandle) -> Result<Vec<Content>, Failure> {
    let config = schema::read_config::<C::Config>(&invocation.config)?;
    let tools = C::tools(&config)?;
    let Some(tool) = tools.iter().find(|tool| tool.name() == invocation.tool) else {
        let names: Vec<&str> = tools.iter().map(Tool::name).collect();
        return Err(Failure::not_found(format!(
            "no tool {:?}; hint: the tools are {}",
            invocation.tool,
            names.join(", ")
        )));
    };
    let input = invocation.input.clone();
    tool.run(&Call::new(config, invocation, host), &input)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Attachment, Claims, FailureKind, InputFormat, testing};

    #[derive(Deserialize, JsonSchema)]
    struct Config {
        /// Put before each greeting.
        prefix: String,
    }

    #[derive(Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    struct Greet {
        name: String,
    }

    struct Greeter;

    impl Component for Greeter {
        type Config = Config;

        fn tools(config: &Config) -> Result<Vec<Tool<Config>>, Failure> {
            if config.prefix.is_empty() {
                return Err(Failure::invalid_input("prefix is empty"));
            }
            Ok(vec![
                Tool::json("greet", "Greets.", |call: &Call<Config>, input: Greet| {
                    call.report("greeting", Some(1), None);
                    Ok(format!("{} {}", call.config.prefix, input.name))
                })
                .title("Greet")
                .category("talk")
                .claims(Claims::READ_ONLY),
                Tool::text("echo", "Echoes.", |call: &Call<Config>, text: &str| {
                    Ok(format!("{}#{}@{:?}:{text}", call.call_id, call.attempt, call.time_left))
                }),
                Tool::text("ask", "Asks.", |call: &Call<Config>, text: &str| call.call_tool("other", text)),
                Tool::text("weigh", "Weighs.", |call: &Call<Config>, _: &str| match call.attachments.first() {
                    Some(attachment) => Ok(call.read_attachment(attachment, 8)?.len().to_string()),
                    None => Err(Failure::invalid_input("nothing attached")),
                }),
            ])
        }
    }

    impl Capability for Greeter {
        fn describe(config: &Config) -> Result<Description, Failure> {
            Ok(Description {
                id: "greeter".to_owned(),
                title: "Greeter".to_owned(),
                description: "Greets people.".to_owned(),
                instructions: format!("Say {:?}.", config.prefix),
            })
        }
    }

    crate::export_capability!(Greeter);

    const CONFIG: &str = r#"{"prefix":"Hello"}"#;

    #[test]
    fn definition_holds_all_that_the_author_said() {
        let definitions = testing::definitions::<Greeter>(CONFIG).expect("the config is good");
        assert_eq!(
            definitions.first(),
            Some(&Definition {
                name: "greet".to_owned(),
                title: Some("Greet".to_owned()),
                category: Some("talk".to_owned()),
                description: "Greets.".to_owned(),
                input: InputFormat::JsonSchema(
                    r#"{"type":"object","additionalProperties":false,"properties":{"name":{"type":"string"}},"required":["name"]}"#
                        .to_owned()
                ),
                output_schema: None,
                claims: Claims::READ_ONLY,
            })
        );
        assert_eq!(definitions.get(1).map(|definition| &definition.input), Some(&InputFormat::Text));
    }

    #[test]
    fn refused_config_refuses_every_export() {
        let refused = Failure::invalid_input("prefix is empty");
        assert_eq!(testing::definitions::<Greeter>(r#"{"prefix":""}"#), Err(refused.clone()));
        assert_eq!(testing::describe::<Greeter>(r#"{"prefix":""}"#), Err(refused.clone()));
        assert_eq!(testing::invoke::<Greeter>("echo", "x", r#"{"prefix":""}"#), Err(refused));
        assert_eq!(
            testing::describe::<Greeter>(CONFIG).map(|about| about.instructions),
            Ok("Say \"Hello\".".to_owned())
        );
    }

    #[test]
    fn json_input_is_read_and_progress_reported() {
        let host = testing::FakeHost::default();
        let answer = testing::invoke_in::<Greeter>(&host, testing::invocation("greet", r#"{"name":"Ada"}"#, CONFIG));
        assert_eq!(answer, Ok(vec![Content::Text("Hello Ada".to_owned())]));
        assert_eq!(host.reports(), vec![("greeting".to_owned(), Some(1), None)]);
    }

    #[test]
    fn raw_text_arrives_as_it_was_written() {
        let answer = testing::invoke::<Greeter>("echo", " {\"a\":\r\n1} ", CONFIG);
        let left = Duration::from_secs(30);
        assert_eq!(answer, Ok(vec![Content::Text(format!("call_1#1@{left:?}: {{\"a\":\r\n1}} "))]));
    }

    #[test]
    fn unknown_tool_is_answered_with_the_known_ones() {
        assert_eq!(
            testing::invoke::<Greeter>("gret", "{}", CONFIG),
            Err(Failure::not_found("no tool \"gret\"; hint: the tools are greet, echo, ask, weigh"))
        );
    }

    #[test]
    fn other_tool_is_called_only_where_granted() {
        let denied = testing::invoke::<Greeter>("ask", "q", CONFIG).map_err(|failure| failure.kind);
        assert_eq!(denied, Err(FailureKind::Denied));
        let answer = vec![Content::Text("a".to_owned())];
        let host = testing::FakeHost::default().with_tool("other", Ok(answer.clone()));
        assert_eq!(testing::invoke_in::<Greeter>(&host, testing::invocation("ask", "q", CONFIG)), Ok(answer));
        assert_eq!(host.calls(), vec![("other".to_owned(), "q".to_owned())]);
    }

    #[test]
    fn attachment_is_read_whole_or_refused() {
        let weigh = |announced: u64, sent: &[u8]| {
            let attachment = Attachment {
                digest: "sha256:1".to_owned(),
                media_type: "x/y".to_owned(),
                name: None,
                length: announced,
            };
            let host = testing::FakeHost::default().with_blob("sha256:1", sent);
            let mut invocation = testing::invocation("weigh", "", CONFIG);
            invocation.attachments.push(attachment);
            testing::invoke_in::<Greeter>(&host, invocation).map_err(|failure| failure.kind)
        };
        assert_eq!(weigh(8, b"12345678"), Ok(vec![Content::Text("8".to_owned())]));
        assert_eq!(weigh(9, b"123456789"), Err(FailureKind::InvalidInput));
        assert_eq!(weigh(8, b"123"), Err(FailureKind::Failed));
        assert_eq!(weigh(3, b"12345678"), Err(FailureKind::Failed));
    }

    #[test]
    fn component_without_config_has_no_schema_and_refuses_keys() {
        struct Plain;
        impl Component for Plain {
            type Config = NoConfig;
            fn tools(_: &NoConfig) -> Result<Vec<Tool<NoConfig>>, Failure> {
                Ok(Vec::new())
            }
        }
        assert_eq!(testing::config_schema::<Plain>(), None);
        assert_eq!(testing::definitions::<Plain>("{}"), Ok(Vec::new()));
        assert_eq!(
            testing::definitions::<Plain>(r#"{"root":"/"}"#),
            Err(Failure::invalid_input("unknown config key \"root\": this component takes no config"))
        );
        assert_eq!(
            testing::config_schema::<Greeter>(),
            Some(r#"{"type":"object","properties":{"prefix":{"type":"string","description":"Put before each greeting."}},"required":["prefix"]}"#.to_owned())
        );
    }
}
