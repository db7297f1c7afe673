//! Write tools for Wharf agents in Rust.
//!
//! A tool is a struct for its input and a function. The JSON Schema that the model sees is derived from the struct, doc
//! comments included; errors are typed; the config that an operator writes is another struct.
//!
//! ```
//! use serde::{Deserialize, Serialize};
//! use wharf_tool_sdk::{Call, Claims, Component, Failure, Json, JsonSchema, Tool};
//!
//! /// What the operator writes under `config` in the harness file.
//! #[derive(Deserialize, JsonSchema)]
//! #[serde(deny_unknown_fields)]
//! struct Config {
//!     /// Most characters that a text may have.
//!     longest: usize,
//! }
//!
//! #[derive(Deserialize, JsonSchema)]
//! #[serde(deny_unknown_fields)]
//! struct Count {
//!     /// The text whose words are counted.
//!     text: String,
//! }
//!
//! #[derive(Serialize, JsonSchema)]
//! struct Counted {
//!     words: usize,
//! }
//!
//! fn count(call: &Call<Config>, input: Count) -> Result<Json<Counted>, Failure> {
//!     if input.text.chars().count() > call.config.longest {
//!         return Err(Failure::invalid_input(format!("text is longer than {} characters", call.config.longest)));
//!     }
//!     Ok(Json(Counted { words: input.text.split_whitespace().count() }))
//! }
//!
//! struct Words;
//!
//! impl Component for Words {
//!     type Config = Config;
//!
//!     fn tools(_: &Config) -> Result<Vec<Tool<Config>>, Failure> {
//!         Ok(vec![
//!             Tool::json("count_words", "Counts the words of a text.", count)
//!                 .claims(Claims::READ_ONLY | Claims::IDEMPOTENT),
//!         ])
//!     }
//! }
//!
//! wharf_tool_sdk::export_tools!(Words);
//!
//! // The same code runs on the author's machine, without a host:
//! use wharf_tool_sdk::{Content, testing};
//! let counted = testing::invoke::<Words>("count_words", r#"{"text":"to be or not"}"#, r#"{"longest":80}"#);
//! assert_eq!(counted, Ok(vec![Content::Json(r#"{"words":4}"#.to_owned())]));
//! ```
//!
//! The crate is a `cdylib`; build it with `cargo build --release --target wasm32-wasip2`, or as Wharf's own components are
//! built where that target is not to be had. Files, network, clocks and random numbers come through `std`, which meets the
//! operator's grants. A panic is a trap: the call ends with an error for the model, so return a [`Failure`] instead.

/// The example of the README, compiled with the documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

extern crate self as wharf_tool_sdk;

#[doc(hidden)]
pub mod bindings;
mod call;
mod component;
mod failure;
pub mod limits;
mod output;
mod root;
mod schema;
#[cfg(not(target_arch = "wasm32"))]
pub mod testing;
mod tool;

pub use bindings::{
    about::exports::wharf::tool::about::Description,
    imports::wharf::tool::types::{
        Attachment, Blob, Claims, Content, Definition, Failure, FailureKind, Grammar, GrammarSyntax, InputFormat,
        Invocation,
    },
};
pub use call::{Call, Host};
pub use component::{Capability, Component, NoConfig};
pub use output::{Json, Output};
pub use root::{Place, Root};
pub use schemars::{self, JsonSchema};
pub use tool::Tool;

/// Used by the export macros; no promise is made about it.
#[doc(hidden)]
pub mod __private {
    pub use wit_bindgen;

    pub use crate::component::{config_schema, definitions, describe};
    use crate::{Component, Content, Failure, Invocation, call, component};

    /// Answers `invoke` with the host that the component runs in.
    ///
    /// # Errors
    /// Whatever the tool answers.
    pub fn invoke<C: Component>(invocation: Invocation) -> Result<Vec<Content>, Failure> {
        component::invoke::<C>(invocation, call::outside())
    }
}

/// Makes the crate a component of world `tool` that offers the tools of a type that implements [`Component`].
///
/// On targets other than WebAssembly it only checks the types. The generated code is unsafe, so the crate cannot
/// *forbid* unsafe code; it can deny it.
#[macro_export]
macro_rules! export_tools {
    ($component:ty) => {
        const _: () = {
            #[allow(dead_code)]
            struct Exported;
            $crate::__tools_guest!(Exported, $component, $crate::bindings::tools::exports::wharf::tool::tools);
            #[cfg(target_arch = "wasm32")]
            #[allow(unsafe_code)]
            const _: () = {
        $crate::bindings::tools::export!(Exported with_types_in $crate::bindings::tools);
            };
        };
    };
}

/// Makes the crate a component of world `capability` that offers the tools and the description of a type that implements
/// [`Capability`]. See [`export_tools!`].
#[macro_export]
macro_rules! export_capability {
    ($component:ty) => {
        const _: () = {
            #[allow(dead_code)]
            struct Exported;
            $crate::__tools_guest!(Exported, $component, $crate::bindings::tools::exports::wharf::tool::tools);
            impl $crate::bindings::about::exports::wharf::tool::about::Guest for Exported {
                fn describe(config: String) -> Result<$crate::Description, $crate::Failure> {
                    $crate::__private::describe::<$component>(&config)
                }
            }
            #[cfg(target_arch = "wasm32")]
            #[allow(unsafe_code)]
            const _: () = {
        $crate::bindings::tools::export!(Exported with_types_in $crate::bindings::tools);
        $crate::bindings::about::export!(Exported with_types_in $crate::bindings::about);
            };
        };
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __tools_guest {
    ($exported:ident, $component:ty, $($path:tt)*) => {
        // Nothing calls the exports where no component is built; the compiler is to see that they are used all the same.
        #[allow(dead_code)]
        fn exported(invocation: $crate::Invocation) -> Result<Vec<$crate::Content>, $crate::Failure> {
            $crate::__private::invoke::<$component>(invocation)
        }

        impl $($path)*::Guest for $exported {
            fn config_schema() -> Option<String> {
                $crate::__private::config_schema::<$component>()
            }

            fn definitions(config: String) -> Result<Vec<$crate::Definition>, $crate::Failure> {
                $crate::__private::definitions::<$component>(&config)
            }

            fn invoke(invocation: $crate::Invocation) -> Result<Vec<$crate::Content>, $crate::Failure> {
                exported(invocation)
            }
        }
    };
}
