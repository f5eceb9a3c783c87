//! Route for the differences between two versions of the rule set.

use hyper::StatusCode;
use serde_json::{Value, json};
use tokio::task::spawn_blocking;
use url::form_urlencoded;

use super::rules::{JSON, number};
use super::{Answered, HttpRequest, Routes};
use crate::access::credentials::Role;
use crate::changes::Differences;
use crate::problem::{Problem, json as response};
use crate::rules::NumberedDocument;

/// Two versions; none stands for the current one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Pair {
    from: Option<u64>,
    to: Option<u64>,
}

impl Routes {
    /// Returns the changes from one version to another.
    pub(super) async fn differences(&self, request: &HttpRequest) -> Answered {
        self.operator(request.headers(), Role::Read)?;
        let query = request.uri().query().unwrap_or_default();
        let pair = pair(query).ok_or_else(|| {
            Problem::malformed(format!(
                "expected `?from=N&to=M`, either of which may be left out, found `?{query}`"
            ))
        })?;
        let (from, to) = (self.held(pair.from).await?, self.held(pair.to).await?);
        // Parsing large rule sets takes a while.
        let compare = move || {
            let [old, new] =
                [&from, &to].map(|held| serde_json::from_slice::<Value>(&held.document).unwrap_or_default());
            let changes = Differences::between(&old, &new);
            let lines = changes.lines(&old, &new);
            json!({"from": from.version, "to": to.version, "is_same": old == new, "changes": changes, "lines": lines})
        };
        let unread =
            |_| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the versions could not be compared");
        Ok(response(StatusCode::OK, JSON, &spawn_blocking(compare).await.map_err(unread)?))
    }

    /// Returns a version, or the current one.
    pub(super) async fn held(&self, version: Option<u64>) -> Result<NumberedDocument, Problem> {
        let rules = &self.exchange.rules;
        match version {
            Some(version) => rules.get(version).await?.ok_or_else(|| Problem::not_kept(version)),
            None => rules.current().await?.ok_or_else(|| {
                let detail = "there is no rule set: POPs run their own configuration's";
                Problem::new(StatusCode::NOT_FOUND, detail)
            }),
        }
    }
}

fn pair(query: &str) -> Option<Pair> {
    let mut pair = Pair::default();
    for (name, text) in form_urlencoded::parse(query.as_bytes()) {
        let place = match name.as_ref() {
            "from" => &mut pair.from,
            "to" => &mut pair.to,
            _ => return None,
        };
        if place.replace(number(&text)?).is_some() {
            return None;
        }
    }
    Some(pair)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_names_one_version_or_two() {
        let of = |from, to| Some(Pair { from, to });
        assert_eq!(pair("from=7&to=9"), of(Some(7), Some(9)));
        assert_eq!((pair("to=9"), pair("")), (of(None, Some(9)), of(None, None)));
        for query in ["from=7&from=8", "from=+7", "from=", "version=7"] {
            assert_eq!(pair(query), None, "{query}");
        }
    }
}
