//! The call value as an OpenAPI schema (A20), for front doors that publish the same form. One table below describes every
//! member once; a test holds it against what [`crate::Call::to_json`] writes.

use serde_json::{Map, Value, json};

struct Member {
    name: &'static str,
    description: &'static str,
    example: Example,
    required: bool,
}

enum Example {
    Text(&'static str),
    No,
}

impl Member {
    fn to_json(&self, kind: &str) -> Value {
        if self.name == "type" {
            return json!({ "type": "string", "const": kind, "description": self.description, "examples": [kind] });
        }
        match self.example {
            Example::Text(text) => json!({ "type": "string", "description": self.description, "examples": [text] }),
            Example::No => {
                json!({ "type": "boolean", "default": false, "description": self.description, "examples": [false] })
            }
        }
    }
}

const fn text(name: &'static str, description: &'static str, example: &'static str) -> Member {
    Member { name, description, example: Example::Text(example), required: true }
}

const TYPE: Member = text("type", "Which of the two variants the call is.", "");
const CALL_ID: Member = text("call_id", "Names the call; its output goes back under the same id.", "call_8aQ1");
const NAME: Member = text("name", "The tool, as the model wrote it.", "read_file");
const ASYNC: Member = Member {
    name: "async",
    description: "Whether the model goes on while the call runs. Always written; absent reads as false.",
    example: Example::No,
    required: false,
};

const FUNCTION: &[Member] = &[
    TYPE,
    CALL_ID,
    NAME,
    text(
        "arguments",
        "Argument text as the model wrote it, byte for byte. Meant to be JSON; blank reads as an empty object.",
        r#"{"path":"README.md"}"#,
    ),
    ASYNC,
];

const CUSTOM: &[Member] = &[
    TYPE,
    CALL_ID,
    NAME,
    text(
        "input",
        "Raw input as the model wrote it, byte for byte, line breaks included. Never read as JSON.",
        ".items[] | .name\n",
    ),
    ASYNC,
];

const VARIANTS: [(&str, &str, &str, &[Member]); 2] = [
    ("FunctionCall", "function_call", "A call of a function tool, with JSON arguments.", FUNCTION),
    ("CustomToolCall", "custom_tool_call", "A call of a custom tool, with raw text.", CUSTOM),
];

/// `components.schemas` of an OpenAPI 3.1 document: `Call` and its two variants.
pub fn schemas() -> Value {
    let mut schemas = Map::new();
    let mut examples = Vec::new();
    let mut mapping = Map::new();
    for (title, kind, description, members) in VARIANTS {
        let properties: Map<String, Value> =
            members.iter().map(|member| (member.name.to_owned(), member.to_json(kind))).collect();
        let example: Map<String, Value> =
            properties.iter().map(|(name, schema)| (name.clone(), schema["examples"][0].clone())).collect();
        let required: Vec<&str> = members.iter().filter(|member| member.required).map(|member| member.name).collect();
        let reference = format!("#/components/schemas/{title}");
        examples.push(Value::Object(example.clone()));
        mapping.insert(kind.to_owned(), reference.into());
        schemas.insert(
            title.to_owned(),
            json!({
                "type": "object", "description": description, "properties": properties, "required": required,
                "examples": [example],
            }),
        );
    }
    let one_of: Vec<Value> = mapping.values().map(|reference| json!({ "$ref": reference })).collect();
    schemas.insert(
        "Call".to_owned(),
        json!({
            "description": "One use of a tool that the model asked for.",
            "oneOf": one_of,
            "discriminator": { "propertyName": "type", "mapping": mapping },
            "examples": examples,
        }),
    );
    Value::Object(schemas)
}

/// A whole OpenAPI 3.1 document that has these schemas and no paths.
pub fn document() -> Value {
    json!({
        "openapi": "3.1.0",
        "info": { "title": "Wharf calls", "version": env!("CARGO_PKG_VERSION") },
        "paths": {},
        "components": { "schemas": schemas() },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Call;

    #[test]
    fn the_document_describes_every_member_of_a_call_with_an_example() {
        // covers A20
        let document = document();
        let schemas = document.pointer("/components/schemas").expect("it has schemas");
        assert!(schemas["Call"]["description"].as_str().is_some_and(|text| !text.is_empty()));
        assert!(schemas["Call"]["examples"].as_array().is_some_and(|examples| examples.len() == 2));
        for (title, call) in
            [("FunctionCall", Call::function("c", "t", "{}")), ("CustomToolCall", Call::custom("c", "t", "x"))]
        {
            let written = call.to_json();
            let written: Vec<&String> = written.as_object().expect("a call is an object").keys().collect();
            let described = schemas[title]["properties"].as_object().expect("it has members");
            assert_eq!(described.keys().collect::<Vec<_>>(), written, "{title}");
            for (name, member) in described {
                assert!(member["description"].as_str().is_some_and(|text| !text.is_empty()), "{title}.{name}");
                assert!(member["examples"].as_array().is_some_and(|list| !list.is_empty()), "{title}.{name}");
            }
            let example = &schemas[title]["examples"][0];
            let read = Call::from_json(example).expect("the example is a call");
            assert_eq!(&read.to_json(), example);
            read.validate().expect("the example is a valid call");
        }
    }

    #[test]
    fn the_schema_takes_what_decoding_takes_and_refuses_what_it_refuses() {
        // covers A6, A20
        let mut schema = json!({ "$ref": "#/components/schemas/Call" });
        schema["components"] = json!({ "schemas": schemas() });
        let schema = crate::schema::Schema::compile(&schema).expect("it is a schema");
        for (value, good) in [
            (Call::function("c", "t", "").asynchronous().to_json(), true),
            (Call::custom("c", "t", "").to_json(), true),
            (
                json!({ "type": "custom_tool_call", "call_id": "c", "name": "t", "input": "x", "status": "completed" }),
                true,
            ),
            (json!({ "type": "custom_tool_call", "call_id": "c", "name": "t", "arguments": "x" }), false),
            (json!({ "type": "function_call", "name": "t", "arguments": "x" }), false),
            (json!({ "type": "other", "call_id": "c", "name": "t", "arguments": "x" }), false),
        ] {
            assert_eq!(schema.check(&value).is_ok(), good, "{value}");
            assert_eq!(Call::from_json(&value).is_ok(), good, "{value}");
        }
    }
}
