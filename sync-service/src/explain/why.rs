//! The first test of a condition that a request fails.

use weir_rules::matching::{AttributeTest, Clause, Condition};
use weir_rules::request::{Attribute, AttributeId, Attributes, Fetched};

/// Which part of `condition` the request surely fails, and what it has instead; none if it may meet all.
pub(super) fn not(
    condition: &Condition,
    attributes: &Attributes,
    request: &mut Fetched<'_>,
) -> Option<String> {
    clause(&condition.all, attributes, request)
        .or_else(|| {
            let any = Condition { any: condition.any.clone(), ..Condition::default() };
            (!any.holds(request).may()).then(|| "none of any holds".into())
        })
        .or_else(|| {
            let not = Condition { not: condition.not.clone(), ..Condition::default() };
            (!not.holds(request).may()).then(|| "not does not hold: the request is one of those".into())
        })
}

fn clause(clause: &Clause, attributes: &Attributes, request: &mut Fetched<'_>) -> Option<String> {
    // Every field by name, so that a new one has to be handled here.
    let Clause { hosts, methods, paths, headers, cookies, query, claims, addresses, routes } = clause.clone();
    let none = Clause::default;
    let mut tests = vec![
        ("methods".to_owned(), Clause { methods, ..none() }),
        ("path".into(), Clause { paths, ..none() }),
        ("hosts".into(), Clause { hosts, ..none() }),
        ("routes".into(), Clause { routes, ..none() }),
        ("addresses".into(), Clause { addresses, ..none() }),
    ];
    for header in headers {
        tests.push((name_of(&header, attributes), Clause { headers: vec![header], ..none() }));
    }
    for cookie in cookies {
        tests.push((format!("cookie {}", cookie.name), Clause { cookies: vec![cookie], ..none() }));
    }
    for parameter in query {
        tests.push((
            format!("query parameter {}", parameter.name),
            Clause { query: vec![parameter], ..none() },
        ));
    }
    for claim in claims {
        tests.push((name_of(&claim, attributes), Clause { claims: vec![claim], ..none() }));
    }
    let fails = |(_, all): &(String, Clause), request: &mut Fetched<'_>| {
        !Condition { all: all.clone(), ..Condition::default() }.holds(request).may()
    };
    let (field, test) = tests.into_iter().find(|test| fails(test, request))?;
    let id = match field.as_str() {
        "methods" => Some(AttributeId::METHOD),
        "hosts" => Some(AttributeId::AUTHORITY),
        "routes" => Some(AttributeId::ROUTE),
        "addresses" => Some(AttributeId::SOURCE_ADDRESS),
        "path" => Some(AttributeId::PATH),
        _ => test.headers.first().or(test.claims.first()).map(|test| test.attribute),
    };
    let found = id.map(|id| request.get(id).map(|value| String::from_utf8_lossy(value).into_owned()));
    Some(match found {
        Some(Some(value)) => format!("{field} does not hold: it is {value:?}"),
        Some(None) => format!("{field} does not hold: the request has none"),
        None => format!("{field} does not hold"),
    })
}

/// What is tested, in words.
fn name_of(test: &AttributeTest, attributes: &Attributes) -> String {
    match attributes.get(test.attribute) {
        Some(Attribute::Header(name)) => format!("header {name}"),
        Some(Attribute::Claim(names)) => format!("claim {}", names.join(".")),
        other => format!("{other:?}"),
    }
}
