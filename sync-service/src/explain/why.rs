//! Finds the first test of a condition that a request fails.

use weir_rules::matching::{Clause, Condition, Test};
use weir_rules::request::{AttributeId, Attributes, Fetched, Source};

use crate::check::explain::condition::source;

/// Describes the part of `condition` that the request certainly fails, with the value it has instead. None if
/// the request may meet the condition.
pub(super) fn not(
    condition: &Condition,
    attributes: &Attributes,
    request: &mut Fetched<'_>,
) -> Option<String> {
    let Condition { all, any, not, end: _ } = condition;
    if let Some(test) = all.tests().find(|test| !test.holds(request).may()) {
        return Some(failed(test, attributes, request));
    }
    let may = |clause: &Clause| clause.holds(request).may();
    if !any.is_empty() && !any.iter().any(may) {
        return Some("none of any holds".into());
    }
    let is_one = not.as_ref().is_some_and(|not| !(!not.holds(request)).may());
    is_one.then(|| "not does not hold: the request meets it".into())
}

/// Describes the failed `test` with the value that the request has instead.
fn failed(test: &Test, attributes: &Attributes, request: &mut Fetched<'_>) -> String {
    let (field, id) = match test {
        Test::Methods(_) | Test::OverriddenMethods(..) => ("methods".into(), Some(AttributeId::METHOD)),
        Test::Paths(_) => ("path".into(), Some(AttributeId::PATH)),
        Test::Hosts(_) => ("hosts".into(), Some(AttributeId::AUTHORITY)),
        Test::Routes(_) => ("routes".into(), Some(AttributeId::ROUTE)),
        Test::Addresses(_) => ("addresses".into(), Some(AttributeId::SOURCE_ADDRESS)),
        Test::Value(value, _) => {
            let id = if let Source::Attribute(id) = value.source { Some(id) } else { None };
            (source(&value.source, attributes), id)
        }
    };
    let found = match id.map(|id| request.get(id).map(String::from_utf8_lossy)) {
        Some(Some(value)) => format!(": it is {value:?}"),
        Some(None) => ": the request has none".into(),
        None => String::new(),
    };
    format!("{field} does not hold{found}")
}
