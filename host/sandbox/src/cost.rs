//! What a component would cost to compile, counted from its bytes without decoding a function. A small file can ask for a
//! great deal: many functions, one function that no compiler gets done with, components that contain each other twice and
//! twice again.

use wasmparser::{BinaryReaderError, ComponentInstance, Encoding, Instance, Parser, Payload};

use crate::error::LoadError;
use crate::limits;

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Cost {
    /// Functions of all modules.
    functions: u64,
    /// Bytes of the bodies of all functions.
    code_bytes: u64,
    /// Bytes of the longest body.
    function_bytes: u64,
    /// Instances of modules and components that the outermost component makes, those of the inner ones included. An upper
    /// bound: which component is instantiated is not looked up, the most costly one so far is taken.
    instances: u64,
}

impl Cost {
    /// Counts, without judging. Fails if the bytes are not well-formed as far as they are read.
    pub(crate) fn of(bytes: &[u8]) -> Result<Self, BinaryReaderError> {
        let mut cost = Self::default();
        // The modules and components that are being read, with their instances so far, and the most that any ended with.
        let (mut open, mut worst) = (Vec::new(), 0_u64);
        for payload in Parser::new(0).parse_all(bytes) {
            match payload? {
                Payload::Version { encoding: Encoding::Module | Encoding::Component, .. } => open.push(1_u64),
                Payload::CodeSectionStart { count, .. } => {
                    cost.functions = cost.functions.saturating_add(count.into());
                }
                Payload::CodeSectionEntry(body) => {
                    let length = body.range().len() as u64;
                    cost.code_bytes = cost.code_bytes.saturating_add(length);
                    cost.function_bytes = cost.function_bytes.max(length);
                }
                Payload::InstanceSection(section) => {
                    for instance in section {
                        if let (Instance::Instantiate { .. }, Some(sum)) = (instance?, open.last_mut()) {
                            *sum = sum.saturating_add(1);
                        }
                    }
                }
                Payload::ComponentInstanceSection(section) => {
                    for instance in section {
                        if let (ComponentInstance::Instantiate { .. }, Some(sum)) = (instance?, open.last_mut()) {
                            *sum = sum.saturating_add(worst.max(1));
                        }
                    }
                }
                Payload::End(_) => {
                    let sum = open.pop().unwrap_or_default();
                    worst = worst.max(sum);
                    cost.instances = sum;
                }
                _ => {}
            }
        }
        Ok(cost)
    }

    /// Whether a component may cost that much.
    pub(crate) fn check(&self, name: &str) -> Result<(), LoadError> {
        let bounds = [
            ("functions", self.functions, limits::FUNCTIONS_MAX),
            ("bytes of code", self.code_bytes, limits::CODE_BYTES_MAX),
            ("bytes of code in one function", self.function_bytes, limits::FUNCTION_CODE_BYTES_MAX),
            ("instances inside it", self.instances, limits::INSTANCES_MAX),
        ];
        bounds.into_iter().try_for_each(|(what, have, limit)| LoadError::check_size(name, what, have, limit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Cost {
        Cost::of(&wat::parse_str(text).unwrap()).unwrap()
    }

    #[test]
    fn functions_code_and_instances_are_counted_at_every_depth() {
        assert_eq!(of("(component)"), Cost { instances: 1, ..Cost::default() });
        let inner = r#"
            (core module $m (func) (func (param i32) (drop (local.get 0)) (nop)))
            (core instance (instantiate $m)) (core instance (instantiate $m))"#;
        // Bodies: a count of locals, the operators, an end.
        let once = Cost { functions: 2, code_bytes: 2 + 6, function_bytes: 6, instances: 3 };
        assert_eq!(of(&format!("(component {inner})")), once);
        let outer =
            format!("(component (component $c {inner}) (instance (instantiate $c)) (instance (instantiate $c)))");
        assert_eq!(of(&outer), Cost { instances: 1 + 2 * 3, ..once });
    }

    // Thirty levels of twice the one below are a billion instances in a kilobyte.
    #[test]
    fn components_that_multiply_are_too_large() {
        let mut text = "(component $c)".to_owned();
        for _ in 0..30 {
            text = format!("(component $c {text} (instance (instantiate $c)) (instance (instantiate $c)))");
        }
        let bytes = wat::parse_str(&text).unwrap();
        assert!(bytes.len() < 2_000);
        let error = Cost::of(&bytes).unwrap().check("c").unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("capability \"c\" is too large: instances inside it {}, at most 10000", (1_u64 << 31) - 1)
        );
    }

    #[test]
    fn each_count_is_allowed_up_to_its_bound_and_not_past_it() {
        let at = Cost {
            functions: limits::FUNCTIONS_MAX,
            code_bytes: limits::CODE_BYTES_MAX,
            function_bytes: limits::FUNCTION_CODE_BYTES_MAX,
            instances: limits::INSTANCES_MAX,
        };
        at.check("c").unwrap();
        let past = [
            Cost { functions: at.functions + 1, ..at },
            Cost { code_bytes: at.code_bytes + 1, ..at },
            Cost { function_bytes: at.function_bytes + 1, ..at },
            Cost { instances: at.instances + 1, ..at },
        ];
        let said = past.map(|cost| cost.check("c").unwrap_err().to_string());
        assert_eq!(
            said,
            [
                "capability \"c\" is too large: functions 250001, at most 250000",
                "capability \"c\" is too large: bytes of code 67108865, at most 67108864",
                "capability \"c\" is too large: bytes of code in one function 1048577, at most 1048576",
                "capability \"c\" is too large: instances inside it 10001, at most 10000",
            ]
        );
    }
}
