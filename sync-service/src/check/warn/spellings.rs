//! Rules that a client can evade by another spelling.

use weir_rules::key::{KeyPart, KeySpec, Part};
use weir_rules::matching::{Clause, Condition, Test};
use weir_rules::request::{Attributes, Duplicates, Folding, Source};

use super::warning::Warning;

/// Another spelling of `/login` for each of [`Folding::NAMES`].
const SPELLINGS: [&str; 4] = ["/LOGIN", "/login/", "/login;a", "/%6Cogin"];

/// Warns of each path that is refused or counted in one spelling only. Paths in `not` are exempt from the rule,
/// and are not checked.
pub(super) fn of_condition(condition: &Condition, at: &dyn Fn(&str) -> String) -> Vec<Warning> {
    let mut warnings = of_clause(&condition.all, at);
    for (i, clause) in condition.any.iter().enumerate() {
        warnings.extend(of_clause(clause, &|field| at(&format!(".any[{i}]{field}"))));
    }
    warnings
}

fn of_clause(clause: &Clause, at: &dyn Fn(&str) -> String) -> Vec<Warning> {
    let paths =
        clause.tests().find_map(|test| if let Test::Paths(paths) = test { Some(paths) } else { None });
    let paths = paths.map_or(&[][..], Vec::as_slice);
    let mut warnings = Vec::new();
    for (i, path) in paths.iter().enumerate() {
        let place = if paths.len() == 1 { ".path".to_owned() } else { format!(".paths[{i}]") };
        for ((field, folding), spelled) in Folding::NAMES.iter().zip(SPELLINGS) {
            if path.tells_apart().has(*folding) {
                let problem = format!(
                    "a client gets past it with another spelling, as {spelled} is of /login, unless the upstream tells them \
                     apart: remove {field}, or set it to ignore"
                );
                warnings.push(Warning::at(at(&format!("{place}.{field}")), problem));
            }
        }
    }
    warnings
}

/// Warns of each credential in a key that a client may send twice, which makes another key.
pub(super) fn of_key(key: &KeySpec, attributes: &Attributes, at: &dyn Fn(&str) -> String) -> Vec<Warning> {
    let is_open = |part: KeyPart<'_>| {
        let KeyPart::Other(Part::Value(value)) = part else { return false };
        let Source::Attribute(id) = value.source else { return false };
        value.duplicates == Duplicates::Unsaid && attributes.is_credentials(id)
    };
    let open = key.parts().enumerate().filter(|(_, part)| is_open(*part));
    let problem = "a client that sends it twice has another bucket for each pair: expected duplicates: limit, or the one that \
                   the upstream takes";
    open.map(|(i, _)| Warning::at(at(&format!("key[{i}]")), problem)).collect()
}
