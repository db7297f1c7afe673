//! A tool that converts units of measurement. Language models get such sums almost right; a tool gets them right.

use serde::{Deserialize, Serialize};
use wharf_tool_sdk::{Call, Claims, Component, Failure, Json, JsonSchema, NoConfig, Tool};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Convert {
    value: f64,
    from: Unit,
    to: Unit,
}

#[derive(Debug, PartialEq, Serialize, JsonSchema)]
struct Converted {
    value: f64,
    unit: Unit,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Unit {
    Metre,
    Kilometre,
    Inch,
    Foot,
    Mile,
    Gram,
    Kilogram,
    Ounce,
    Pound,
    Celsius,
    Fahrenheit,
    Kelvin,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Quantity {
    Length,
    Mass,
    Temperature,
}

impl Unit {
    /// What the unit measures, and how it becomes metres, grams or kelvins: `base = value * factor + offset`.
    fn measure(self) -> (Quantity, f64, f64) {
        match self {
            Self::Metre => (Quantity::Length, 1.0, 0.0),
            Self::Kilometre => (Quantity::Length, 1000.0, 0.0),
            Self::Inch => (Quantity::Length, 0.0254, 0.0),
            Self::Foot => (Quantity::Length, 0.3048, 0.0),
            Self::Mile => (Quantity::Length, 1609.344, 0.0),
            Self::Gram => (Quantity::Mass, 1.0, 0.0),
            Self::Kilogram => (Quantity::Mass, 1000.0, 0.0),
            Self::Ounce => (Quantity::Mass, 28.349_523_125, 0.0),
            Self::Pound => (Quantity::Mass, 453.592_37, 0.0),
            Self::Celsius => (Quantity::Temperature, 1.0, 273.15),
            Self::Fahrenheit => (Quantity::Temperature, 5.0 / 9.0, 273.15 - 32.0 * 5.0 / 9.0),
            Self::Kelvin => (Quantity::Temperature, 1.0, 0.0),
        }
    }
}

fn convert(_: &Call<NoConfig>, input: Convert) -> Result<Json<Converted>, Failure> {
    let (from, factor, offset) = input.from.measure();
    let (to, per, shift) = input.to.measure();
    if from != to {
        return Err(Failure::invalid_input(format!(
            "a {from:?} cannot become a {to:?}; hint: choose units of one kind"
        )));
    }
    let value = (input.value * factor + offset - shift) / per;
    // Nine digits hide what binary fractions add and keep every digit that a measurement has.
    let digits = 10_f64.powi(9);
    Ok(Json(Converted { value: (value * digits).round() / digits, unit: input.to }))
}

struct Units;

impl Component for Units {
    type Config = NoConfig;

    fn tools(_: &NoConfig) -> Result<Vec<Tool<NoConfig>>, Failure> {
        Ok(vec![
            Tool::json("convert_units", "Converts a length, a mass or a temperature to another unit.", convert)
                .title("Convert units")
                .claims(Claims::READ_ONLY | Claims::IDEMPOTENT),
        ])
    }
}

wharf_tool_sdk::export_tools!(Units);

#[cfg(test)]
mod tests {
    use wharf_tool_sdk::{Content, Failure, testing};

    use super::Units;

    fn ask(input: &str) -> Result<Vec<Content>, Failure> {
        testing::invoke::<Units>("convert_units", input, "{}")
    }

    #[test]
    fn units_of_one_kind_are_converted() {
        let json = |text: &str| Ok(vec![Content::Json(text.to_owned())]);
        assert_eq!(
            ask(r#"{"value":26.2,"from":"mile","to":"kilometre"}"#),
            json(r#"{"value":42.1648128,"unit":"kilometre"}"#)
        );
        assert_eq!(
            ask(r#"{"value":-40,"from":"celsius","to":"fahrenheit"}"#),
            json(r#"{"value":-40.0,"unit":"fahrenheit"}"#)
        );
        assert_eq!(ask(r#"{"value":1,"from":"pound","to":"ounce"}"#), json(r#"{"value":16.0,"unit":"ounce"}"#));
    }

    #[test]
    fn units_of_two_kinds_are_refused_with_a_hint() {
        assert_eq!(
            ask(r#"{"value":1,"from":"foot","to":"pound"}"#),
            Err(Failure::invalid_input("a Length cannot become a Mass; hint: choose units of one kind"))
        );
        assert!(
            ask(r#"{"value":1,"from":"cubit","to":"foot"}"#).is_err_and(|failure| failure.message.contains("cubit"))
        );
    }
}
