//! Costs that are known only with the response.

use alloc::string::String;
use alloc::vec::Vec;

use crate::reading::{Fields, Item};
use crate::request::{LINE_BREAK, names};
use weir_protocol::quota::TOKENS_MAX;

const STATUSES_MAX: usize = 50;
const HEADER_BYTES_MAX: usize = 256;
const BYTES_MAX: u32 = 1 << 30;

/// Source of a cost that is known only with the response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum After {
    /// One token if the response has one of these statuses, else none.
    Status(Vec<u16>),
    /// The number in a response header; the highest of several.
    Header {
        name: String,
        /// Cost if the header is missing or not a whole number. `None` stands for the reserved tokens.
        default: Option<u32>,
        max: u32,
    },
    /// A number in dynamic metadata that another filter of the host sets.
    Metadata {
        /// The metadata's namespace, then the names that lead to the value.
        path: Vec<String>,
        /// Cost if the value is missing or not a whole number. `None` stands for the reserved tokens.
        default: Option<u32>,
        max: u32,
    },
    /// One token for each `per` bytes of the response, rounded up.
    Bytes { per: u32 },
}

impl After {
    /// Cost of a response with this status; `None` if something else states the cost.
    pub fn of_status(&self, status: u16) -> Option<u32> {
        if let Self::Status(statuses) = self { Some(u32::from(statuses.contains(&status))) } else { None }
    }

    /// Cost stated by the header or metadata `value`, for `reserved` tokens; `None` if something else states it.
    pub fn of_text(&self, value: Option<&[u8]>, reserved: u32) -> Option<u32> {
        let (Self::Header { default, max, .. } | Self::Metadata { default, max, .. }) = self else {
            return None;
        };
        let stated = match self {
            Self::Header { .. } => value.into_iter().flat_map(values).filter_map(whole_number).max(),
            _ => value.and_then(whole_number),
        };
        Some(stated.map(|cost| cost.min(*max)).or(*default).unwrap_or(reserved))
    }

    pub fn of_bytes(&self, bytes: u64) -> Option<u32> {
        let Self::Bytes { per } = self else { return None };
        Some(u32::try_from(bytes.div_ceil(u64::from(*per))).unwrap_or(u32::MAX).min(TOKENS_MAX))
    }

    pub fn most(&self) -> u32 {
        match self {
            Self::Status(_) => 1,
            Self::Header { max, .. } | Self::Metadata { max, .. } => *max,
            Self::Bytes { .. } => TOKENS_MAX,
        }
    }

    /// Reads the field `cost` if it has `after`. The bool is true if it has `reserve` as well.
    pub(crate) fn read(fields: &mut Fields<'_>) -> Option<(Self, bool)> {
        let cost = fields.take("cost").filter(depends_on_response)?;
        let mut fields = cost.fields()?;
        let after = fields.take("after").and_then(|item| Self::of(&item));
        let reserves = fields.has("reserve");
        fields.finish();
        Some((after?, reserves))
    }

    fn of(item: &Item<'_>) -> Option<Self> {
        let mut fields = item.fields()?;
        let statuses = fields.list("status", STATUSES_MAX).filter_map(|status| status.number(100..=599));
        let statuses: Vec<u16> = statuses.filter_map(|status| u16::try_from(status).ok()).collect();
        let header = fields.text("header", HEADER_BYTES_MAX).map(str::to_ascii_lowercase);
        let path = names("metadata", &mut fields);
        let per = fields.number("response_bytes_per", 1..=BYTES_MAX);
        let default = fields.number("default", 0..=TOKENS_MAX);
        let max = fields.number("max", 1..=TOKENS_MAX);
        let source = fields.only(&["status", "header", "metadata", "response_bytes_per"]);
        if path.as_ref().is_some_and(|path| path.len() < 2) {
            fields.record_at("metadata", "expected a namespace and a key, as in [llm, total_tokens]");
        }
        if !fields.has("header") && !fields.has("metadata") {
            for (name, given) in [("default", default), ("max", max)] {
                if given.is_some() {
                    fields.record_at(name, "expected only with header or metadata");
                }
            }
        }
        fields.finish();
        let max = max.unwrap_or(TOKENS_MAX);
        let default = default.map(|default| default.min(max));
        match source {
            Some("status") => Some(Self::Status(statuses)),
            Some("header") => Some(Self::Header { name: header?, default, max }),
            Some("metadata") => Some(Self::Metadata { path: path?, default, max }),
            Some("response_bytes_per") => Some(Self::Bytes { per: per? }),
            _ => {
                let one = "one of status, header, metadata and response_bytes_per";
                item.record(format_args!("expected {one}, as in {{status: [401]}}"));
                None
            }
        }
    }
}

/// Splits a header into lines, and each line at commas.
pub(super) fn values(header: &[u8]) -> impl Iterator<Item = &[u8]> {
    header.split(|&b| matches!(b, b',' | LINE_BREAK))
}

/// Parses a whole number; numbers above [`u32::MAX`] count as that.
pub(super) fn whole_number(text: &[u8]) -> Option<u32> {
    let digits = text.trim_ascii();
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let add = |n: u32, digit: &u8| n.saturating_mul(10).saturating_add(u32::from(digit - b'0'));
    Some(digits.iter().fold(0, add))
}

pub(super) fn depends_on_response(cost: &Item<'_>) -> bool {
    cost.value().get("after").is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::ErrorCollector;
    use serde_json::{Value, json};
    use std::string::ToString;

    fn read(value: &Value) -> Result<After, Vec<String>> {
        let errors = ErrorCollector::default();
        let after = After::of(&Item::new(value, &errors));
        errors.into_result(after).map_err(|errors| errors.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn each_form_reads_only_its_own_cost() {
        let status = read(&json!({"status": [401, 403]})).unwrap();
        assert_eq!((status.of_status(403), status.of_status(200)), (Some(1), Some(0)));
        assert_eq!((status.of_text(None, 7), status.of_bytes(1)), (None, None));
        let header = read(&json!({"header": "X-Tokens", "default": 3, "max": 500})).unwrap();
        let stated = [("1\n17", 17), ("17, x", 17), ("17", 17), (" 0 ", 0), ("501", 500), ("99999999999", 500)];
        for (value, cost) in stated.into_iter().chain(["x\ny", "-1", "", "1.5"].map(|value| (value, 3))) {
            assert_eq!(header.of_text(Some(value.as_bytes()), 7), Some(cost), "{value:?}");
        }
        assert_eq!((header.of_text(None, 7), header.of_text(Some(&[0xff]), 7)), (Some(3), Some(3)));
        let metadata = read(&json!({"metadata": ["llm", "total_tokens"]})).unwrap();
        for (text, cost) in [(Some("2000000"), TOKENS_MAX), (Some("-1"), 500), (Some("true"), 500), (None, 500)] {
            assert_eq!(metadata.of_text(text.map(str::as_bytes), 500), Some(cost), "{text:?}");
        }
        let bytes = read(&json!({"response_bytes_per": 1024})).unwrap();
        let costs = [0, 1, 1_024, 1_025].map(|n| bytes.of_bytes(n));
        assert_eq!(costs, [Some(0), Some(1), Some(1), Some(2)]);
        assert_eq!(bytes.of_bytes(u64::MAX), Some(TOKENS_MAX));
        assert_eq!(bytes.of_text(Some(b"1"), 7), None);
    }
}
