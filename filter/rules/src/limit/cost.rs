//! The number of tokens that a request takes.

use serde_json::Value;

use super::after::{depends_on_response, values, whole_number};
use crate::reading::{Fields, Item};
use crate::request::{AttributeId, Attributes, Fetched, NAME_BYTES_MAX, Source, ValueKind, source};
use weir_protocol::quota::{Quota, TOKENS_MAX};
use weir_protocol::sharing::Sharing;

/// Number of tokens that a request takes, at least one and at most the burst.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cost {
    Fixed(u32),
    /// The number in a request header; the highest of several.
    Header {
        attribute: AttributeId,
        /// Cost if the header is missing, zero, or not a whole number.
        default: u32,
        max: u32,
    },
}

impl Default for Cost {
    fn default() -> Self {
        Self::Fixed(1)
    }
}

impl Cost {
    #[inline]
    pub fn of(&self, request: &mut Fetched<'_>) -> u32 {
        match (self, request.times) {
            (Self::Fixed(cost), 1) => *cost,
            (_, times) => self.once(request).saturating_mul(times),
        }
    }

    #[inline(never)]
    fn once(&self, request: &mut Fetched<'_>) -> u32 {
        match self {
            Self::Fixed(cost) => *cost,
            Self::Header { attribute, default, max } => {
                let cost = |value| match whole_number(value) {
                    None | Some(0) => *default,
                    Some(cost) => cost.min(*max),
                };
                let values = request.get(*attribute).into_iter().flat_map(values);
                values.map(cost).max().unwrap_or(*default)
            }
        }
    }

    pub fn most(&self) -> u32 {
        match self {
            Self::Fixed(cost) => *cost,
            Self::Header { max, .. } => *max,
        }
    }

    pub fn usual(&self) -> u32 {
        match self {
            Self::Fixed(cost) => *cost,
            Self::Header { default, .. } => *default,
        }
    }
}

/// Reads the field `cost`. If only the response states the cost, the result is the number of tokens to reserve.
pub(crate) fn cost(
    fields: &mut Fields<'_>,
    quota: Option<Quota>,
    sharing: Option<&Sharing>,
    attributes: &mut Attributes,
) -> Option<Cost> {
    let Some(item) = fields.take("cost") else { return Some(Cost::default()) };
    let burst = quota.map_or(TOKENS_MAX, Quota::burst);
    let most = match sharing {
        Some(sharing) if sharing.local_burst < burst => (sharing.local_burst, "local_burst"),
        _ => (burst, "burst"),
    };
    if !depends_on_response(&item) {
        return known_before(&item, most, attributes);
    }
    match item.value().get("reserve") {
        None | Some(Value::Null) => Some(Cost::default()),
        Some(reserve) => known_before(&item.within("reserve", reserve), most, attributes),
    }
}

fn known_before(item: &Item<'_>, most: (u32, &str), attributes: &mut Attributes) -> Option<Cost> {
    if item.value().is_object() { of_header(item, most, attributes) } else { admissible(item, most).map(Cost::Fixed) }
}

/// Reads a constant cost; an error if it exceeds `most`, since no bucket would ever admit it.
fn admissible(item: &Item<'_>, (most, field): (u32, &str)) -> Option<u32> {
    let cost = item.number(1..=TOKENS_MAX)?;
    if cost > most {
        item.record(format_args!("expected at most {most}, the rule's {field}: {cost} is never admitted"));
    }
    (cost <= most).then_some(cost)
}

fn of_header(item: &Item<'_>, most: (u32, &str), attributes: &mut Attributes) -> Option<Cost> {
    let mut fields = item.fields()?;
    fields.require("header", "a header's name");
    let header = source(ValueKind::Header, ("header", NAME_BYTES_MAX), &mut fields, attributes);
    let default = fields.take("default").map_or(Some(1), |item| admissible(&item, most));
    let max = fields.take("max").map_or(Some(most.0), |item| admissible(&item, most));
    let (default, max) = (default?, max?);
    if default > max {
        fields.record_at("default", format_args!("expected at most {max}, as max is, found {default}"));
    }
    fields.finish();
    let Source::Attribute(attribute) = header? else { return None };
    Some(Cost::Header { attribute, default, max })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::ErrorCollector;
    use crate::request::{Attribute, Request, Values};
    use crate::{RuleSet, document};
    use alloc::string::{String, ToString};
    use alloc::vec::Vec;
    use serde_json::json;

    struct CostHeader(Option<&'static str>);

    impl Request for CostHeader {
        fn attribute(&mut self, attribute: &Attribute) -> Option<Vec<u8>> {
            assert_eq!(*attribute, Attribute::Header("x-cost".into()));
            self.0.map(Into::into)
        }
    }

    fn parsed(cost: &Value) -> Result<RuleSet, Vec<String>> {
        let rule = json!({"name": "r", "key": ["all"], "rate": "10/s", "burst": 50, "cost": cost});
        let errors = ErrorCollector::default();
        let rules = document::read(&json!({"rules": [rule]}), &errors);
        errors.into_result(rules).map_err(|errors| errors.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_header_sets_the_cost_of_a_request() {
        let rules = parsed(&json!({"header": "X-Cost", "default": 3, "max": 40})).unwrap();
        let mut values = Values::default();
        let default = [None].into_iter().chain(["", "0", "000", "-1", "+7", "1.5", "7 8", "7x", "1\nx"].map(Some));
        let valid = [("1", 1), (" 007 ", 7), ("40", 40), ("41", 40), ("99999999999999999999999", 40), ("1\n9", 9)];
        let valid = valid.into_iter().chain([("9\n1", 9), ("9,1", 9), ("1\n99", 40)]);
        for (text, cost) in default.map(|text| (text, 3)).chain(valid.map(|(text, cost)| (Some(text), cost))) {
            let mut header = CostHeader(text);
            let mut request = Fetched::new(&mut header, rules.attributes(), &mut values);
            assert_eq!(rules.rules()[0].cost.of(&mut request), cost, "{text:?}");
        }
    }
}
