//! Reads the list of rules.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use serde_json::Value;

use super::Rule;
use super::mode::Enforcement;
use super::tier::{tiers, variants};
use super::variant::Variant;
use super::wider::{expanded, wider};
use crate::key::{Missing, key};
use crate::limit::after::After;
use crate::limit::algorithm::Algorithm;
use crate::limit::calendar;
use crate::limit::cost::{Cost, cost};
use crate::limit::penalty::Penalty;
use crate::limit::{self, Kind, Limit};
use crate::matching::{Condition, condition};
use crate::reading::{Errors, Fields, Reader, number, rule_name};
use crate::response::Response;
use weir_wire::messages::RULES_MAX;
use weir_wire::quota::{Quota, TOKENS_MAX};
use weir_wire::sharing::{FLOORS_MAX, Floor, REGION_NAME_MAX, Sharing, WhenUnsynced, is_region_name};

/// What a POP may do on its own.
const WHEN_UNSYNCED: [(&str, WhenUnsynced); 3] =
    [("local", WhenUnsynced::Local), ("share", WhenUnsynced::Share), ("deny", WhenUnsynced::Deny)];

/// What a rule does with a request that lacks a part of its key.
const MISSING: [(&str, Missing); 3] =
    [("skip", Missing::Skip), ("share", Missing::Share), ("limit", Missing::Limit)];

pub(crate) fn rules(
    value: &Value,
    place: &str,
    reader: &mut Reader,
    errors: &mut Errors,
) -> Option<Vec<Rule>> {
    let Some(items) = value.as_array().filter(|items| (1..=RULES_MAX).contains(&items.len())) else {
        errors.note_found(place, format!("a list of 1 to {RULES_MAX} rules"), value);
        return None;
    };
    let mut rules: Vec<Rule> = Vec::with_capacity(items.len());
    let mut names: Vec<String> = Vec::with_capacity(items.len());
    for (i, item) in items.iter().enumerate() {
        let place = format!("{place}[{i}]");
        let Some(made) = rule(item, &place, reader, errors) else { continue };
        for mut rule in made {
            match names.binary_search(&rule.name) {
                Ok(_) => {
                    let problem = format!("another rule has the name {:?}", rule.name);
                    errors.note(&format!("{place}.name"), problem);
                }
                Err(at) => names.insert(at, rule.name.clone()),
            }
            rule.variant.group = u16::try_from(i).unwrap_or(u16::MAX);
            rules.push(rule);
        }
    }
    if rules.len() > RULES_MAX {
        let found = rules.len();
        let expected =
            format!("expected at most {RULES_MAX} rules with those that tiers and wider make, found {found}");
        errors.note(place, expected);
    }
    Some(rules)
}

/// A rule's tiers, then the rule, each followed by the rules that `wider` makes of it.
fn rule(value: &Value, place: &str, reader: &mut Reader, errors: &mut Errors) -> Option<Vec<Rule>> {
    let mut fields = Fields::of(value, place, errors)?;
    let name = rule_name(&mut fields, "the rule's name", errors);
    let matches_place = fields.place("match");
    let matches = match fields.take("match") {
        Some(value) => condition(value, &matches_place, reader, errors),
        None => Some(Condition::default()),
    };
    let key = key(&mut fields, &mut reader.attributes, errors);
    let missing = fields.choice("missing", &MISSING, errors).unwrap_or_default();
    let kind = limit::kind(&mut fields, errors);
    let (limit, sharing) = match kind {
        Kind::Quota => {
            let terms = calendar::terms(&mut fields, errors);
            terms.map(|(quota, sharing)| (Limit::of(quota, None), sharing)).unzip()
        }
        kind => {
            let limit = limit::read(kind, &mut fields, errors);
            (limit, sharing(&mut fields, limit.map(|limit| limit.quota), errors))
        }
    };
    let quota = limit.map(|limit| limit.quota);
    let after = after(&mut fields, errors);
    let enforcement = Enforcement::read(&mut fields, errors);
    let penalty = Penalty::read(&mut fields, errors);
    let is_strict = sharing.as_ref().is_some_and(|sharing| sharing.strict);
    // What must never be overshot fails closed, unless its operator says otherwise.
    let default = if is_strict { WhenUnsynced::Deny } else { WhenUnsynced::default() };
    let when_unsynced = fields.choice("when_unsynced", &WHEN_UNSYNCED, errors).unwrap_or(default);
    let cost = if is_told_by_response(&mut fields) {
        Some(Cost::default())
    } else {
        cost(&mut fields, quota, sharing.as_ref(), &mut reader.attributes, errors)
    };
    let wider = wider(&mut fields, key.as_ref(), errors);
    let tiers = tiers(&mut fields, kind, key.as_ref(), reader, errors);
    let response_place = fields.place("response");
    let response = match fields.take("response") {
        Some(value) => Response::parse(value, &response_place, errors),
        None => Some(Response::default()),
    };
    if let (Some(limit), Some(_)) = (&limit, &after) {
        note_what_cannot_be_charged_after(limit, is_strict, &fields, errors);
    }
    if let Some(limit) = &limit {
        note_what_needs_a_token_bucket(limit, &mut fields, errors);
    }
    let name_place = fields.place("name");
    fields.finish(errors);
    let rule = Rule {
        name: name?,
        matches: Arc::new(matches?),
        key: key?,
        missing,
        cost: cost?,
        algorithm: limit?.algorithm,
        quota: quota?,
        rate: limit?.rate,
        after: after.map(Arc::new),
        variant: Variant::default(),
        enforcement,
        penalty,
        sharing: sharing?,
        when_unsynced,
        response: response?,
    };
    let variants = variants(&rule, tiers, &name_place, errors);
    Some(variants.iter().flat_map(|rule| expanded(rule, &wider, &name_place, errors)).collect())
}

/// Whether only the response tells a rule's cost.
fn is_told_by_response(fields: &mut Fields<'_>) -> bool {
    fields.take("cost").and_then(Value::as_object).is_some_and(|cost| cost.contains_key("after"))
}

/// Reads a cost that only the response tells.
fn after(fields: &mut Fields<'_>, errors: &mut Errors) -> Option<After> {
    let place = fields.place("cost");
    let cost = fields.take("cost").filter(|cost| cost.get("after").is_some())?;
    let mut fields = Fields::of(cost, &place, errors)?;
    let place = fields.place("after");
    let after = fields.take("after").and_then(|value| After::read(value, &place, errors));
    fields.finish(errors);
    after
}

/// A rule that is paid in advance, or gives out turns, cannot charge a cost that only the response tells.
fn note_what_cannot_be_charged_after(
    limit: &Limit,
    is_strict: bool,
    fields: &Fields<'_>,
    errors: &mut Errors,
) {
    let is_by_turns = matches!(limit.algorithm, Algorithm::LeakyBucket(_) | Algorithm::Concurrency(_));
    if is_strict || is_by_turns {
        let expected =
            "expected a cost known at the request: the rule is strict, a leaky_bucket or concurrency";
        errors.note(&fields.place("cost"), expected);
    }
}

/// POPs share only a token bucket; with any other algorithm each counts for itself.
fn note_what_needs_a_token_bucket(limit: &Limit, fields: &mut Fields<'_>, errors: &mut Errors) {
    if matches!(limit.algorithm, Algorithm::TokenBucket(_)) {
        return;
    }
    for name in ["strict", "local_burst", "floors", "when_unsynced"] {
        if fields.take(name).is_some() {
            errors.note(&fields.place(name), "expected only with algorithm: token_bucket, which POPs share");
        }
    }
}

fn sharing(fields: &mut Fields<'_>, quota: Option<Quota>, errors: &mut Errors) -> Option<Sharing> {
    let strict = fields.boolean("strict", errors).unwrap_or_default();
    let burst_max = quota.map_or(TOKENS_MAX, Quota::burst);
    let local_burst = fields.number("local_burst", 1..=burst_max, errors);
    let floors_place = fields.place("floors");
    let floors = fields.take("floors").map(|value| floors(value, &floors_place, errors));
    let floors = floors.unwrap_or_else(|| Some(Vec::new()))?;
    Some(Sharing { strict, local_burst: local_burst.unwrap_or(burst_max), floors, calendar: None })
}

fn floors(value: &Value, place: &str, errors: &mut Errors) -> Option<Vec<Floor>> {
    let Some(object) = value.as_object().filter(|object| (1..=FLOORS_MAX).contains(&object.len())) else {
        errors.note_found(
            place,
            format!("1 to {FLOORS_MAX} regions and their parts, as in {{eu: 30}}"),
            value,
        );
        return None;
    };
    let mut floors: Vec<Floor> = Vec::with_capacity(object.len());
    for (region, percent) in object {
        let place = format!("{place}.{region}");
        if !is_region_name(region) {
            let expected =
                format!("1 to {REGION_NAME_MAX} characters from a-z, 0-9, - and _ as a region's name");
            errors.note(&place, format!("expected {expected}"));
        }
        let percent = number(percent, &place, 1..=100, errors).and_then(|percent| u8::try_from(percent).ok());
        floors.extend(percent.map(|percent| Floor { region: region.clone(), percent }));
    }
    let sum: u32 = floors.iter().map(|floor| u32::from(floor.percent)).sum();
    if sum > 100 {
        errors.note(place, format!("expected parts that add up to at most 100, found {sum}"));
    }
    Some(floors)
}
