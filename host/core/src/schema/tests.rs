//! A schema is a component's text: what it can cost is known before it is used, and nothing outside it is fetched.

use serde_json::{Value, json};

use super::*;

fn schema(value: &Value) -> Schema {
    match Schema::compile(value) {
        Ok(schema) => schema,
        Err(fault) => panic!("the schema {fault}: {value}"),
    }
}

#[test]
fn a_misfit_names_the_place_in_the_input() {
    // covers L47
    let schema = schema(&json!({
        "type": "object",
        "properties": { "edits": { "type": "array", "items": { "type": "object", "properties": { "a/b": { "type": "string" } } } } },
        "required": ["edits"],
        "additionalProperties": false,
    }));
    assert_eq!(schema.check(&json!({ "edits": [{ "a/b": "x" }] })), Ok(()));
    let misfit = |value: &Value| schema.check(value).map_err(|misfit| misfit.to_string());
    assert_eq!(
        misfit(&json!({ "edits": [{}, { "a/b": 7 }] })),
        Err(r#"at /edits/1/a~1b: the value is not of type "string""#.into())
    );
    assert_eq!(misfit(&json!({})), Err(r#""edits" is a required property"#.into()));
    assert_eq!(misfit(&json!([])), Err(r#"the value is not of type "object""#.into()));
    assert!(misfit(&json!({ "edits": [], "more": 1 })).is_err_and(|why| why.contains("'more' was unexpected")));
}

#[test]
fn nothing_outside_the_schema_is_fetched() {
    for target in
        ["file:///etc/passwd", "http://127.0.0.1:1/x.json", "https://example.com/a#/b", "other.json", "//host/x"]
    {
        for schema in
            [json!({ "$ref": target }), json!({ "properties": { "a": { "items": { "$dynamicRef": target } } } })]
        {
            assert_eq!(
                Schema::compile(&schema).map(|_| ()),
                Err(SchemaFault::External { target: target.to_owned() }),
                "{schema}"
            );
        }
    }
    // Where no check looks, the compiler still must not follow.
    let hidden = json!({ "$defs": { "x": { "$ref": "file:///etc/passwd" } } });
    let fault = Schema::compile(&hidden).map(|_| ()).expect_err("it points outside");
    assert!(matches!(fault, SchemaFault::Invalid { .. }), "{fault}");
    let meta = json!({ "$schema": "https://example.com/own-dialect" });
    assert!(Schema::compile(&meta).is_err());
}

#[test]
fn references_inside_work_and_recursion_goes_as_deep_as_input_may() {
    let tree = schema(&json!({
        "$ref": "#/$defs/node",
        "$defs": {
            "node": { "type": "object", "properties": { "next": { "$ref": "#/$defs/node" }, "leaf": { "$ref": "#leaf" } }, "additionalProperties": false },
            "leaf": { "$anchor": "leaf", "type": "integer" },
        },
    }));
    let nested = |levels: usize, end: Value| (0..levels).fold(end, |inner, _| json!({ "next": inner }));
    assert_eq!(tree.check(&nested(60, json!({ "leaf": 1 }))), Ok(()));
    assert!(
        tree.check(&nested(60, json!({ "leaf": "x" }))).is_err_and(|misfit| misfit.pointer.ends_with("/next/leaf"))
    );
    let misfit = tree.check(&nested(limits::JSON_DEPTH_MAX, json!({}))).expect_err("it is too deep");
    assert_eq!(misfit.why, "it is nested deeper than 64 levels");
    assert_eq!(
        schema(&json!({ "$ref": "#/%24defs/a%20b", "$defs": { "a b": { "const": 1 } } })).check(&json!(1)),
        Ok(())
    );
}

#[test]
fn a_reference_that_leads_to_itself_is_refused() {
    for (value, pointer) in [
        (json!({ "$ref": "#" }), ""),
        (json!({ "allOf": [{ "$ref": "#" }] }), ""),
        (
            json!({ "$defs": { "a": { "anyOf": [{ "$ref": "#/$defs/b" }] }, "b": { "not": { "$ref": "#/$defs/a" } } }, "$ref": "#/$defs/a" }),
            "/$ref",
        ),
        (json!({ "properties": { "x": { "if": { "$ref": "#/properties/x" } } } }), "/properties/x"),
        (json!({ "$dynamicAnchor": "m", "oneOf": [{ "$dynamicRef": "#m" }] }), ""),
        (json!({ "dependentSchemas": { "a": { "$ref": "#" } } }), ""),
    ] {
        assert_eq!(
            Schema::compile(&value).map(|_| ()),
            Err(SchemaFault::Circular { pointer: pointer.to_owned() }),
            "{value}"
        );
    }
    // Going into the value between makes it an ordinary recursion.
    for value in
        [json!({ "items": { "$ref": "#" } }), json!({ "additionalProperties": { "allOf": [{ "$ref": "#" }] } })]
    {
        assert_eq!(schema(&value).check(&json!([[[]]])), Ok(()));
    }
}

/// A chain of definitions, each of which looks twice at the next: a page of text, 2^n steps.
fn fan_out(levels: usize) -> Value {
    let mut defs = serde_json::Map::new();
    for n in 0..levels {
        let next = json!({ "$ref": format!("#/$defs/d{}", n + 1) });
        defs.insert(format!("d{n}"), json!({ "allOf": [next, next] }));
    }
    defs.insert(format!("d{levels}"), json!({ "type": "object" }));
    json!({ "$ref": "#/$defs/d0", "$defs": defs })
}

#[test]
fn a_schema_that_fans_out_is_refused_and_one_below_the_bound_is_checked() {
    for levels in [15, 40, 500] {
        assert_eq!(Schema::compile(&fan_out(levels)).map(|_| ()), Err(SchemaFault::TooCostly), "{levels}");
    }
    let large = schema(&fan_out(14));
    assert_eq!(large.check(&json!({})), Ok(()));
    assert!(large.check(&json!([])).is_err());
}

#[test]
fn a_schema_that_fans_out_over_levels_gets_less_depth() {
    let branch = json!({ "type": "object", "properties": { "c": { "$ref": "#" } } });
    let tree = schema(&json!({ "anyOf": [branch, branch] }));
    let nested = |levels: usize| (0..levels).fold(json!({}), |inner, _| json!({ "c": inner }));
    assert_eq!(tree.check(&nested(8)), Ok(()));
    let misfit = tree.check(&nested(40)).expect_err("it would take 2^40 steps");
    assert!(misfit.why.starts_with("it is nested deeper than 1"), "{misfit}");
}

#[test]
fn anchors_and_identifiers_cannot_hide_the_cost() {
    let mut all = serde_json::Map::new();
    for n in 0..1000 {
        all.insert(format!("d{n}"), json!({ "$dynamicAnchor": "x", "properties": { "p": { "$dynamicRef": "#x" } } }));
    }
    assert_eq!(Schema::compile(&json!({ "$defs": all, "properties": all })).map(|_| ()), Err(SchemaFault::TooCostly));
    let inner = json!({ "properties": { "a": { "$id": "https://example.com/inner", "$ref": "#/$defs/x" } } });
    assert_eq!(
        Schema::compile(&inner).map(|_| ()),
        Err(SchemaFault::Invalid {
            pointer: "/properties/a".into(),
            why: "only the whole schema may have \"$id\"".into()
        })
    );
    assert_eq!(
        Schema::compile(&json!({ "$ref": "#/nowhere" })).map(|_| ()),
        Err(SchemaFault::Invalid {
            pointer: "/$ref".into(),
            why: "\"#/nowhere\" refers to nothing in the schema".into()
        })
    );
}

#[test]
fn size_and_depth_are_bounded_at_the_limit_and_past_it() {
    let nested = |levels: usize| (0..levels).fold(json!(true), |inner, _| json!({ "items": inner }));
    assert_eq!(Schema::compile(&nested(limits::JSON_DEPTH_MAX)).map(|_| ()), Ok(()));
    for levels in [limits::JSON_DEPTH_MAX + 1, 100] {
        assert_eq!(Schema::compile(&nested(levels)).map(|_| ()), Err(SchemaFault::TooDeep));
    }
    let padded = |bytes: usize| json!({ "description": "x".repeat(bytes - r#"{"description":""}"#.len()) });
    assert_eq!(Schema::compile(&padded(limits::SCHEMA_BYTES_MAX)).map(|_| ()), Ok(()));
    for bytes in [limits::SCHEMA_BYTES_MAX + 1, 4 * limits::SCHEMA_BYTES_MAX] {
        assert_eq!(Schema::compile(&padded(bytes)).map(|_| ()), Err(SchemaFault::TooLarge { bytes }));
    }
}

#[test]
fn patterns_are_linear_or_refused() {
    let pattern = schema(&json!({ "type": "string", "pattern": "^(a+)+$" }));
    assert_eq!(pattern.check(&json!("a".repeat(50_000))), Ok(()));
    assert!(pattern.check(&json!(format!("{}!", "a".repeat(50_000)))).is_err());
    for bad in ["(?=x)y", "(a)\\1", "(", "(\\w{1000}){1000}"] {
        let fault = Schema::compile(&json!({ "pattern": bad })).map(|_| ()).expect_err(bad);
        assert!(matches!(fault, SchemaFault::Invalid { .. }), "{bad}: {fault}");
        assert!(TextPattern::compile(bad).is_err(), "{bad}");
    }
}

#[test]
fn patterns_are_bounded_together_not_one_by_one() {
    // covers L47
    let compiled = |value: &Value| Schema::compile(value).map(|_| ());
    // By number: different ones count, wherever they stand.
    let small =
        |count: usize| -> Vec<Value> { (0..count).map(|n| json!({ "pattern": format!("^[a-f]+x{n}$") })).collect() };
    let many = |patterns: usize, bytes: usize| Err(SchemaFault::TooManyPatterns { patterns, bytes });
    assert_eq!(compiled(&json!({ "prefixItems": small(64) })), Ok(()));
    assert_eq!(
        compiled(&json!({ "prefixItems": small(65), "$defs": { "a": small(9)[0] } })),
        many(65, 10 * 10 + 55 * 11)
    );
    assert_eq!(
        compiled(&json!({ "prefixItems": small(64), "items": { "patternProperties": { "^y$": true } } })),
        many(65, 10 * 10 + 54 * 11 + 3)
    );
    assert_eq!(compiled(&json!({ "prefixItems": vec![json!({ "pattern": "^[a-f]+$" }); 5000] })), Ok(()));

    // By the size of what is compiled: one such pattern is taken, and a few, and not sixty.
    let letters = |count: usize| -> Vec<Value> {
        (0..count).map(|n| json!({ "pattern": format!("\\p{{L}}{{9}}x{n}") })).collect()
    };
    for count in [1, 4] {
        assert_eq!(compiled(&json!({ "prefixItems": letters(count) })), Ok(()), "{count}");
    }
    match compiled(&json!({ "prefixItems": letters(60) })) {
        Err(SchemaFault::Invalid { pointer, .. }) => assert_eq!(pointer, "/prefixItems/0/pattern"),
        other => panic!("{other:?}"),
    }

    // By their text.
    let long = |bytes: usize| json!({ "pattern": "a".repeat(bytes) });
    let most = limits::PATTERNS_TEXT_BYTES_MAX;
    assert_eq!(compiled(&long(most)), Ok(()));
    for bytes in [most + 1, 8 * most] {
        assert_eq!(compiled(&long(bytes)), many(1, bytes));
    }
    assert_eq!(compiled(&json!({ "items": long(most), "contains": { "pattern": "b" } })), many(2, most + 1));
    assert!(TextPattern::compile(&"a".repeat(most)).is_ok());
    for bytes in [most + 1, 8 * most] {
        assert_eq!(TextPattern::compile(&"a".repeat(bytes)), Err(PatternFault::TooLong { bytes }));
    }
}

#[test]
fn what_a_schema_lists_counts_as_steps() {
    // covers L47
    // Each of these is looked at hundreds of times, with thousands of values to compare each time.
    let fan = |levels: usize, last: Value| {
        let mut value = fan_out(levels);
        value["$defs"][format!("d{levels}")] = last;
        value
    };
    let numbers: Vec<u32> = (0..500).collect();
    let names: Vec<String> = (0..500).map(|n| format!("n{n}")).collect();
    let members: serde_json::Map<String, Value> = names.iter().map(|name| (name.clone(), true.into())).collect();
    for last in [
        json!({ "enum": numbers }),
        json!({ "const": { "all": numbers } }),
        json!({ "required": names }),
        json!({ "dependentRequired": { "a": names } }),
        json!({ "properties": members }),
    ] {
        assert_eq!(Schema::compile(&fan(8, last.clone())).map(|_| ()), Err(SchemaFault::TooCostly), "{last}");
        assert_eq!(Schema::compile(&fan(6, last.clone())).map(|_| ()), Ok(()), "{last}");
    }
}

#[test]
fn a_wide_value_is_checked_as_far_as_the_schema_is_cheap() {
    // covers L47
    let wide = |count: usize| Value::Array(vec![json!(7); count]);
    // Each item is compared with thousands of values.
    let costly = schema(&json!({ "type": "array", "items": { "enum": (0..40_000).collect::<Vec<u32>>() } }));
    assert_eq!(costly.check(&wide(1000)), Ok(()));
    let misfit = costly.check(&wide(100_000)).expect_err("it would take four thousand million steps");
    let most = limits::CHECK_STEPS_MAX / costly.steps[1];
    assert_eq!(misfit.to_string(), format!("it has more than {most} values"));
    // The list is a value too.
    let most = usize::try_from(most).expect("it is a small number");
    assert_eq!(costly.check(&wide(most - 1)), Ok(()));
    assert_eq!(costly.check(&wide(most)), Err(misfit));
    let cheap = schema(&json!({ "type": "array", "items": { "type": "integer" } }));
    assert_eq!(cheap.check(&wide(100_000)), Ok(()));
}

#[test]
fn a_text_pattern_matches_as_a_whole_or_is_found() {
    let pattern = TextPattern::compile("a|bc").expect("it is one");
    for (text, whole, found) in
        [("a", true, true), ("bc", true, true), ("ac", false, true), ("a\n", false, true), ("", false, false)]
    {
        assert_eq!((pattern.is_whole(text), pattern.is_found_in(text)), (whole, found), "{text:?}");
    }
    // A comment in extended mode does not swallow what closes the whole match.
    let commented = TextPattern::compile("(?x) a+ # letters").expect("it is one");
    assert!(commented.is_whole("aaa") && !commented.is_whole("aaab"));
    let lines = TextPattern::compile("(?m)^a$").expect("it is one");
    assert!(lines.is_whole("a") && !lines.is_whole("a\na"));
}

/// Two definitions of each name: those of the root are harmless, those of the part that names itself look twice at the
/// next. A reader who takes the name for a new base runs into the second.
fn twins(levels: usize, name: &str) -> Value {
    let definitions = |link: fn(Value) -> Value| {
        let links = (0..levels).map(|n| {
            let next = json!({ "$ref": format!("#/definitions/a{}", n + 1) });
            (format!("a{n}"), link(next))
        });
        let mut all: serde_json::Map<String, Value> = links.collect();
        all.insert(format!("a{levels}"), json!({ "type": "object" }));
        all
    };
    let hidden = definitions(|next| json!({ "allOf": [next, next] }));
    json!({
        "definitions": definitions(|_| json!({ "type": "object" })),
        "allOf": [{ name: "http://example.com/inner", "definitions": hidden, "allOf": [{ "$ref": "#/definitions/a0" }] }],
    })
}

#[test]
fn no_draft_and_no_name_inside_gives_references_another_meaning() {
    // covers L47
    let with = |mut schema: Value, draft: &str| {
        schema["$schema"] = draft.into();
        schema
    };
    let compiled = |value: &Value| Schema::compile(value).map(|_| ());
    let draft_4 = "http://json-schema.org/draft-04/schema#";
    let other = |draft: &str| Err(SchemaFault::Draft { draft: format!("{draft:?}") });
    assert_eq!(compiled(&with(twins(24, "id"), draft_4)), other(draft_4));
    for draft in [
        "http://json-schema.org/draft-06/schema#",
        "http://json-schema.org/draft-07/schema#",
        "https://json-schema.org/draft/2019-09/schema",
        "https://json-schema.org/draft/2020-12/schema##",
        "https://json-schema.org/schema",
        "https://example.com/own-dialect",
        "",
    ] {
        assert_eq!(compiled(&with(json!({ "type": "object" }), draft)), other(draft));
    }
    assert_eq!(compiled(&json!({ "$schema": 7 })), Err(SchemaFault::Draft { draft: "7".into() }));
    let only_the_whole = |pointer: &str, keyword: &str| {
        Err(SchemaFault::Invalid {
            pointer: pointer.to_owned(),
            why: format!("only the whole schema may have {keyword:?}"),
        })
    };
    assert_eq!(compiled(&twins(24, "$id")), only_the_whole("/allOf/0", "$id"));
    // A reference may lead through what is no schema.
    let through = json!({ "$ref": "#/const/in/x", "const": { "in": { "$id": "http://example.com/", "x": true } } });
    assert_eq!(compiled(&through), only_the_whole("/const/in", "$id"));
    let inside = json!({ "items": with(twins(24, "id"), draft_4) });
    assert_eq!(compiled(&inside), only_the_whole("/items", "$schema"));

    // In draft 2020-12 `id` is no name, and the address of the whole changes nothing, even if it is another schema's.
    for mut value in
        [twins(24, "id"), json!({ "$ref": "#/definitions/a0", "definitions": { "a0": { "type": "object" } } })]
    {
        for draft in ["https://json-schema.org/draft/2020-12/schema", "http://json-schema.org/draft/2020-12/schema#"] {
            value["$id"] = "http://json-schema.org/draft-07/schema".into();
            let schema = schema(&with(value.clone(), draft));
            assert_eq!(schema.check(&json!({})), Ok(()));
            assert!(schema.check(&json!([])).is_err());
        }
    }
    // Members of these names are members like others.
    assert_eq!(
        compiled(&json!({ "properties": { "$id": { "type": "string" }, "$schema": true }, "required": ["$id"] })),
        Ok(())
    );
}

#[test]
fn long_names_above_many_values_are_refused() {
    // The compiler would keep two gigabytes of paths.
    let above = |name: usize, count: usize| json!({ "properties": { "n".repeat(name): { "anyOf": vec![json!(true); count] } } });
    let compiled = |value: &Value| Schema::compile(value).map(|_| ());
    assert_eq!(compiled(&above(limits::SCHEMA_BYTES_MAX / 2, 20_000)), Err(SchemaFault::LongNames));
    assert_eq!(compiled(&above(limits::SCHEMA_BYTES_MAX / 2, 20)), Ok(()));
    assert_eq!(compiled(&above(20, 20_000)), Ok(()));
    let paths = |name: usize, count: usize| paths_bytes(&above(name, count));
    // "/properties/", twice the name; then "/anyOf", and two more for each item.
    assert_eq!(paths(7, 3), 11 + 19 + 25 + 3 * 27);
    let name = limits::SCHEMA_BYTES_MAX / 4;
    let count = (0..).find(|count| paths(name, *count) > limits::SCHEMA_PATHS_BYTES_MAX).expect("it grows");
    assert_eq!(compiled(&above(name, count)), Err(SchemaFault::LongNames));
    assert_eq!(compiled(&above(name, count - 1)), Ok(()));
}

#[test]
fn the_place_of_a_fault_is_cut_however_long_the_way_to_it() {
    let long = "é".repeat(1000);
    let named = json!({ "properties": { long: { "items": { "$id": "http://example.com/" } } } });
    let pointer = format!("/properties/{}…", "é".repeat(limits::SCHEMA_POINTER_CHARS_MAX - "/properties".len()));
    let why = "only the whole schema may have \"$id\"".to_owned();
    assert_eq!(Schema::compile(&named).map(|_| ()), Err(SchemaFault::Invalid { pointer, why }));
    // A chain of references is as long a way.
    let mut value = chain(1000, |next| next);
    value["$defs"]["d1000"] = json!({ "$ref": "#/nowhere" });
    match Schema::compile(&value).map(|_| ()) {
        Err(SchemaFault::Invalid { pointer, .. }) => {
            assert!(pointer.starts_with("/$ref/$ref/$ref/") && pointer.ends_with('…'), "{pointer}");
            assert!(pointer.chars().count() <= limits::SCHEMA_POINTER_CHARS_MAX + 2, "{pointer}");
        }
        other => panic!("{other:?}"),
    }
}

fn chain(levels: usize, link: impl Fn(Value) -> Value) -> Value {
    let mut defs = serde_json::Map::new();
    for n in 0..levels {
        defs.insert(format!("d{n}"), link(json!({ "$ref": format!("#/$defs/d{}", n + 1) })));
    }
    defs.insert(format!("d{levels}"), json!(true));
    json!({ "$ref": "#/$defs/d0", "$defs": defs })
}

#[test]
fn a_chain_of_references_cannot_use_up_the_stack() {
    // The chain goes round once for each level of the value: without a bound this ends the process.
    let round = |levels: usize, link: fn(Value) -> Value| {
        let mut value = chain(levels, link);
        value["$defs"][format!("d{levels}")] =
            json!({ "type": "object", "properties": { "a": { "$ref": "#/$defs/d0" } } });
        value
    };
    let links: [fn(Value) -> Value; 6] = [
        |next| next,
        |next| json!({ "allOf": [next] }),
        |next| json!({ "anyOf": [next] }),
        |next| json!({ "oneOf": [next, false] }),
        |next| json!({ "if": true, "then": next }),
        |next| json!({ "not": { "not": next } }),
    ];
    for link in links {
        let schema = schema(&round(200, link));
        let nested = |end: Value| (0..schema.depth_max() - 1).fold(end, |inner, _| json!({ "a": inner }));
        assert_eq!(schema.check(&nested(json!({}))), Ok(()));
        assert!(schema.check(&nested(json!(1))).is_err());
        assert!(
            schema
                .check(&json!({ "a": nested(json!({})) }))
                .is_err_and(|misfit| misfit.why.starts_with("it is nested deeper"))
        );
        assert_eq!(Schema::compile(&round(2_000, link)).map(|_| ()), Err(SchemaFault::TooCostly));
    }
}
