//! Rules that a client can evade by writing the same in another way.

use serde_json::Value;

/// What may count in how a path is spelled, and how `/login` is spelled then.
const SPELLINGS: [(&str, &str); 4] =
    [("case", "/LOGIN"), ("slashes", "/login/"), ("parameters", "/login;a"), ("encoding", "/%6Cogin")];

/// A line for each path that is refused or counted in one spelling alone. Paths in `not` are let off, and stay out.
pub(super) fn of_condition(condition: &Value, at: &dyn Fn(&str) -> String) -> Vec<String> {
    let clauses = condition["any"].as_array().into_iter().flatten().enumerate();
    let clauses = clauses.map(|(i, clause)| (format!(".any[{i}]"), clause));
    let mut warnings = Vec::new();
    for (place, clause) in std::iter::once((String::new(), condition)).chain(clauses) {
        let paths = clause["paths"].as_array().into_iter().flatten().enumerate();
        let paths = paths.map(|(i, path)| (format!("{place}.paths[{i}]"), path));
        for (place, path) in std::iter::once((format!("{place}.path"), &clause["path"])).chain(paths) {
            for (field, spelled) in SPELLINGS.iter().filter(|(field, _)| path[*field] == "exact") {
                warnings.push(format!(
                    "{}: a client gets past it in another spelling, as /login is {spelled}, unless the upstream tells them \
                     apart: leave {field} away, or say ignore",
                    at(&format!("{place}.{field}"))
                ));
            }
        }
    }
    warnings
}

/// A line for each key of credentials that a client may send twice, which makes another key.
pub(super) fn of_key(key: &Value, at: &dyn Fn(&str) -> String) -> Vec<String> {
    let is_credentials = |part: &Value| {
        let name = part["header"].as_str().unwrap_or_default();
        ["authorization", "proxy-authorization"].iter().any(|one| name.eq_ignore_ascii_case(one))
    };
    let parts = key.as_array().into_iter().flatten().enumerate();
    let open = parts.filter(|(_, part)| is_credentials(part) && part.get("duplicates").is_none());
    open.map(|(i, _)| {
        format!(
            "{}: a client that sends it twice has a bucket of its own for each pair: expected duplicates: limit, or which \
             of them the upstream takes",
            at(&format!("key[{i}]"))
        )
    })
    .collect()
}
