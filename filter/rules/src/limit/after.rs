//! Costs that are known only when the response is.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::reading::{Fields, Item};
use weir_wire::quota::TOKENS_MAX;

/// The most statuses that a rule may list.
const STATUSES_MAX: usize = 50;
/// The longest name of a response header, in bytes.
const HEADER_BYTES_MAX: usize = 256;
/// The most bytes that one token may stand for.
const BYTES_MAX: u32 = 1 << 30;

/// How a response tells what its request cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum After {
    /// One token if the response has one of these statuses, else nothing.
    Status(Vec<u16>),
    /// What a response header says.
    Header {
        /// Its name, in lower case.
        name: String,
        /// What counts if it is missing or no whole number.
        default: u32,
        /// The most that counts.
        max: u32,
    },
    /// One token for each `per` bytes of the response, rounded up.
    Bytes {
        /// How many bytes one token stands for.
        per: u32,
    },
}

impl After {
    /// The cost of a response with this status; `None` if the cost depends on something else.
    pub fn of_status(&self, status: u16) -> Option<u32> {
        if let Self::Status(statuses) = self { Some(u32::from(statuses.contains(&status))) } else { None }
    }

    /// The cost that the header's value says (`None`: the header is missing); `None` if the cost depends on
    /// something else.
    pub fn of_header(&self, value: Option<&[u8]>) -> Option<u32> {
        let Self::Header { default, max, .. } = self else { return None };
        let text = value.and_then(|value| core::str::from_utf8(value).ok()).unwrap_or_default();
        Some(text.trim().parse::<u64>().map_or(*default, |n| u32::try_from(n).unwrap_or(u32::MAX).min(*max)))
    }

    /// The cost of a response of so many bytes; `None` if the cost depends on something else.
    pub fn of_bytes(&self, bytes: u64) -> Option<u32> {
        let Self::Bytes { per } = self else { return None };
        Some(u32::try_from(bytes.div_ceil(u64::from(*per))).unwrap_or(u32::MAX).min(TOKENS_MAX))
    }

    /// Reads the field `cost`, if only the response tells.
    pub(crate) fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let cost = fields.take("cost").filter(is_told_by_response)?;
        let mut fields = cost.fields()?;
        let after = fields.take("after").and_then(|item| Self::of(&item));
        fields.finish();
        after
    }

    /// Reads the object under `after`.
    fn of(item: &Item<'_>) -> Option<Self> {
        let mut fields = item.fields()?;
        let statuses = fields.list("status", STATUSES_MAX).filter_map(|status| status.number(100..=599));
        let statuses: Vec<u16> = statuses.filter_map(|status| u16::try_from(status).ok()).collect();
        let header = fields.text("header", HEADER_BYTES_MAX).map(str::to_ascii_lowercase);
        let per = fields.number("response_bytes_per", 1..=BYTES_MAX);
        let default = fields.number("default", 0..=TOKENS_MAX);
        let max = fields.number("max", 1..=TOKENS_MAX);
        let has = ["status", "header", "response_bytes_per"].map(|name| fields.has(name));
        if !fields.has("header") {
            for (name, given) in [("default", default), ("max", max)] {
                if given.is_some() {
                    fields.note_at(name, "expected only with header");
                }
            }
        }
        fields.finish();
        match has {
            [true, false, false] => Some(Self::Status(statuses)),
            [false, true, false] => {
                let max = max.unwrap_or(TOKENS_MAX);
                Some(Self::Header { name: header?, default: default.unwrap_or(0).min(max), max })
            }
            [false, false, true] => Some(Self::Bytes { per: per? }),
            _ => {
                let one = "one of status, header and response_bytes_per";
                item.note(format!("expected {one}, as in {{status: [401]}}"));
                None
            }
        }
    }
}

/// Whether only the response tells this cost.
pub(super) fn is_told_by_response(cost: &Item<'_>) -> bool {
    cost.value().get("after").is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::Errors;
    use serde_json::{Value, json};
    use std::string::ToString;
    use std::vec;

    fn read(value: &Value) -> Result<After, Vec<String>> {
        let errors = Errors::default();
        let after = After::of(&Item::new(value, "after", &errors));
        errors.into_result(after).map_err(|errors| errors.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn each_form_knows_its_cost_and_no_other() {
        let status = read(&json!({"status": [401, 403]})).unwrap();
        assert_eq!((status.of_status(403), status.of_status(200)), (Some(1), Some(0)));
        assert_eq!((status.of_header(None), status.of_bytes(1)), (None, None));
        let header = read(&json!({"header": "X-Tokens", "default": 3, "max": 500})).unwrap();
        assert_eq!(header, After::Header { name: "x-tokens".into(), default: 3, max: 500 });
        for (value, cost) in
            [("17", 17), (" 0 ", 0), ("501", 500), ("99999999999", 500), ("-1", 3), ("", 3), ("1.5", 3)]
        {
            assert_eq!(header.of_header(Some(value.as_bytes())), Some(cost), "{value:?}");
        }
        assert_eq!((header.of_header(None), header.of_header(Some(&[0xff]))), (Some(3), Some(3)));
        let bytes = read(&json!({"response_bytes_per": 1024})).unwrap();
        let costs = [0, 1, 1_024, 1_025].map(|n| bytes.of_bytes(n));
        assert_eq!(costs, [Some(0), Some(1), Some(1), Some(2)]);
        assert_eq!(bytes.of_bytes(u64::MAX), Some(TOKENS_MAX));
    }

    #[test]
    fn it_is_one_form() {
        let one = "after: expected one of status, header and response_bytes_per, as in {status: [401]}";
        assert_eq!(read(&json!({})).unwrap_err(), vec![one]);
        assert_eq!(read(&json!({"status": [401], "header": "x"})).unwrap_err(), vec![one]);
        assert_eq!(
            read(&json!({"status": [401, 99], "max": 4})).unwrap_err(),
            [
                "after.status[1]: expected a whole number from 100 to 599, found 99",
                "after.max: expected only with header"
            ]
        );
    }
}
