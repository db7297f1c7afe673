//! What wit-bindgen makes of the contract in `wit/`. Nothing here is written by hand, and nothing outside the crate names
//! this module but the export macros.
//!
//! The contract's worlds `tool` and `capability` share the interface `tools`, and its export macro may exist only once in
//! a crate. So each exported interface has a small world of its own here; a component that uses both macros exports what
//! world `capability` asks for, one that uses the first alone what world `tool` asks for.
#![allow(unsafe_code, missing_docs, unreachable_pub, clippy::all)]

/// What the host serves, and the types that both directions share.
pub mod imports {
    wit_bindgen::generate!({
        path: "../../wit/0.1.0-draft",
        world: "imports",
        runtime_path: "::wharf_tool_sdk::__private::wit_bindgen::rt",
        additional_derives: [PartialEq],
        generate_unused_types: true,
    });
}

/// The export `tools`.
pub mod tools {
    wit_bindgen::generate!({
        path: "../../wit/0.1.0-draft",
        inline: "package wharf:sdk; world exports-tools { export wharf:tool/tools@0.1.0-draft; }",
        pub_export_macro: true,
        runtime_path: "::wharf_tool_sdk::__private::wit_bindgen::rt",
        with: {
            "wharf:tool/types@0.1.0-draft": crate::bindings::imports::wharf::tool::types,
            "wharf:tool/tools@0.1.0-draft": generate,
        },
    });
}

/// The export `about`.
pub mod about {
    wit_bindgen::generate!({
        path: "../../wit/0.1.0-draft",
        inline: "package wharf:sdk; world exports-about { export wharf:tool/about@0.1.0-draft; }",
        pub_export_macro: true,
        runtime_path: "::wharf_tool_sdk::__private::wit_bindgen::rt",
        additional_derives: [PartialEq],
        with: {
            "wharf:tool/types@0.1.0-draft": crate::bindings::imports::wharf::tool::types,
            "wharf:tool/about@0.1.0-draft": generate,
        },
    });
}
