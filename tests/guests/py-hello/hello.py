"""A tool in Python: one function tool that greets, one custom tool that gives back its raw text, one that fails.

What a component raises is the contract's `failure` record, wrapped in `Err`.
"""

import json

from componentize_py_types import Err
from wit_world import exports
from wit_world.imports.types import (
    Claims,
    Content_Json,
    Content_Text,
    Definition,
    Failure,
    FailureKind,
    InputFormat_JsonSchema,
    InputFormat_Text,
)

CLAIMS = Claims.READ_ONLY | Claims.IDEMPOTENT


def definition(name, description, format):
    return Definition(name, None, None, description, format, None, CLAIMS)


class Tools(exports.Tools):
    def config_schema(self):
        properties = {"greeting": {"type": "string"}}
        return json.dumps({"type": "object", "properties": properties, "additionalProperties": False})

    def definitions(self, config):
        schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
        return [
            definition("greet", "Greets.", InputFormat_JsonSchema(json.dumps(schema))),
            definition("echo", "Gives back its text.", InputFormat_Text()),
            definition("fail", "Fails.", InputFormat_Text()),
        ]

    def invoke(self, invocation):
        if invocation.tool == "greet":
            greeting = json.loads(invocation.config).get("greeting", "Hello")
            name = json.loads(invocation.input)["name"]
            return [Content_Json(json.dumps({"text": f"{greeting}, {name}!", "attempt": invocation.attempt}))]
        if invocation.tool == "echo":
            return [Content_Text(invocation.input)]
        raise Err(Failure(FailureKind.NOT_FOUND, f"no {invocation.input}", None, '{"from":"python"}'))
