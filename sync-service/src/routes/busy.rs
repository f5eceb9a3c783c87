//! Who is limited, for operators.

use hyper::StatusCode;
use weir_budget::budget::BudgetId;

use super::{Answered, Request, Routes};
use crate::access::credentials::Role;
use crate::keys::answer::{self, Busy};
use crate::keys::asked::{Asked, KEY_PATH};
use crate::keys::name;
use crate::moment;
use crate::problem::{Problem, json as response};

/// The media type of every answer.
const JSON: &str = "application/json";

impl Routes {
    /// The busiest and most limited keys of the fleet.
    pub(super) async fn busy_keys(&self, request: &Request) -> Answered {
        self.operator(request.headers(), Role::Read)?;
        let asked = Asked::read(request.uri().query().unwrap_or_default()).map_err(Problem::malformed)?;
        let busy = self.exchange.busy().await;
        let (keys, found) = asked.choose(busy.keys);
        let banned_ms = self.exchange.banned_ms(&keys);
        let busy = Busy { keys, ..busy };
        let answer = answer::list(&busy, found, moment::now_ms(), &banned_ms);
        Ok(response(StatusCode::OK, JSON, &answer))
    }

    /// How one key stands.
    pub(super) async fn one_key(&self, request: &Request) -> Answered {
        self.operator(request.headers(), Role::Read)?;
        let id = named(request.uri().path())?;
        let one = self.exchange.key(&id).await.ok_or_else(|| {
            let detail = format!(
                "no POP has reported keys of the rule `{}` of late, and no rule set that is kept has it: GET /v1/keys lists \
                 keys with the names of their rules",
                id.rule
            );
            Problem::new(StatusCode::NOT_FOUND, detail)
        })?;
        Ok(response(StatusCode::OK, JSON, &answer::one(&one, moment::now_ms())))
    }
}

/// The key that a path names. The last part may have a slash: that of a network.
fn named(path: &str) -> Result<BudgetId, Problem> {
    let parts = path.strip_prefix(KEY_PATH).and_then(|rest| rest.split_once('/'));
    let named = parts.and_then(|(rule, value)| Some((name::from_path(rule)?, name::from_path(value)?)));
    let (rule, value) = named.filter(|(rule, _)| !rule.is_empty()).ok_or_else(|| {
        Problem::malformed("expected /v1/keys/RULE/VALUE, as in /v1/keys/per-address/192.0.2.7")
    })?;
    let value = name::read(&value).map_err(|error| Problem::malformed(error.to_string()))?;
    Ok(BudgetId { rule, value })
}
