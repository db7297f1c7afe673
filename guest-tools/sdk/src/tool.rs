//! A tool: what the model is told of it, and the function that runs it.

use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use crate::{Call, Claims, Content, Definition, Failure, Grammar, GrammarSyntax, InputFormat, Output, schema};

type Run<C> = Box<dyn Fn(&Call<C>, &str) -> Result<Vec<Content>, Failure>>;

/// A tool of a component whose config is `C`.
pub struct Tool<C> {
    definition: Definition,
    run: Run<C>,
}

impl<C> Tool<C> {
    /// A tool whose input is JSON: the schema that the model sees is derived from `I`, doc comments included.
    ///
    /// The description is written for the model: what the tool does and when to use it.
    pub fn json<I, O>(
        name: impl Into<String>,
        description: impl Into<String>,
        run: impl Fn(&Call<C>, I) -> Result<O, Failure> + 'static,
    ) -> Self
    where
        I: DeserializeOwned + JsonSchema,
        O: Output,
    {
        let format = InputFormat::JsonSchema(schema::of_input::<I>().to_string());
        Self::new::<O>(name.into(), description.into(), format, move |call, input| {
            run(call, schema::read_input(input)?)?.into_contents()
        })
    }

    /// A tool whose input is raw text: the function gets exactly what the model wrote.
    pub fn text<O: Output>(
        name: impl Into<String>,
        description: impl Into<String>,
        run: impl Fn(&Call<C>, &str) -> Result<O, Failure> + 'static,
    ) -> Self {
        Self::new::<O>(name.into(), description.into(), InputFormat::Text, move |call, input| {
            run(call, input)?.into_contents()
        })
    }

    /// A tool whose input is raw text that fits a grammar. Not every provider enforces it: the function still checks.
    pub fn grammar<O: Output>(
        name: impl Into<String>,
        description: impl Into<String>,
        syntax: GrammarSyntax,
        definition: impl Into<String>,
        run: impl Fn(&Call<C>, &str) -> Result<O, Failure> + 'static,
    ) -> Self {
        let format = InputFormat::Grammar(Grammar { syntax, definition: definition.into() });
        Self::new::<O>(name.into(), description.into(), format, move |call, input| run(call, input)?.into_contents())
    }

    fn new<O: Output>(
        name: String,
        description: String,
        input: InputFormat,
        run: impl Fn(&Call<C>, &str) -> Result<Vec<Content>, Failure> + 'static,
    ) -> Self {
        let definition = Definition {
            name,
            title: None,
            category: None,
            description,
            input,
            output_schema: O::schema().map(|schema| schema.to_string()),
            claims: Claims::empty(),
        };
        Self { definition, run: Box::new(run) }
    }

    /// A short name for people.
    #[must_use]
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.definition.title = Some(title.into());
        self
    }

    /// A word to group tools by.
    #[must_use]
    pub fn category(mut self, category: impl Into<String>) -> Self {
        self.definition.category = Some(category.into());
        self
    }

    /// What the tool says of itself. Shown to operators and never believed; be honest all the same.
    #[must_use]
    pub fn claims(mut self, claims: Claims) -> Self {
        self.definition.claims = claims;
        self
    }

    pub(crate) fn name(&self) -> &str {
        &self.definition.name
    }

    pub(crate) fn into_definition(self) -> Definition {
        self.definition
    }

    pub(crate) fn run(&self, call: &Call<C>, input: &str) -> Result<Vec<Content>, Failure> {
        (self.run)(call, input)
    }
}
