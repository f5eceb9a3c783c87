//! Route that resets one key of a rule.

use hyper::StatusCode;
use serde_json::json;
use weir_budget::budget::BudgetId;

use super::rules::{JSON, judge_query};
use super::{Answered, HttpRequest, Routes};
use crate::audit::event::ChangeEvent;
use crate::connections::Peer;
use crate::keys::name;
use crate::keys::query::KEY_PATH;
use crate::keys::which::{self, WhichError};
use crate::overrides::spec::{OverrideKind, OverrideSelector, Subject};
use crate::problem::{Problem, json as response};
use crate::rules::ChangeError;

impl Routes {
    /// Resets a key everywhere: its budget, and its state at POPs.
    pub(super) async fn forget_key(&self, request: &HttpRequest, peer: &Peer) -> Answered {
        let change = self.change(request.headers(), peer, "")?;
        judge_query(request)?;
        let (rule, value) = named(request.uri().path())?;
        let ids = self.ids(&rule, &value).await?;
        let key = ids.first().map(|id| name::show(&id.value)).unwrap_or_default();
        let told = ChangeEvent { target: Some(json!({"rule": rule, "key": key})), ..change.told("reset") };
        let forgotten = self.exchange.forget_keys(&ids).await;
        forgotten.inspect_err(|error| self.exchange.audit_log.change_failed(error, told.clone()))?;
        tracing::info!(rule, key, author = change.author, comment = change.comment, "a key was reset");
        self.exchange.audit_log.change(told);
        // The reset lifts the key's ban, so its override is dropped, too.
        let banned = OverrideSelector::About(Subject::Key { rule: rule.clone(), key: key.clone() });
        match self.exchange.rules.lift_override(OverrideKind::Ban, &banned, &change).await {
            Ok(_) | Err(ChangeError::NoOverride) => {}
            Err(error) => return Err(error.into()),
        }
        let answer = json!({"rule": rule, "key": key, "reset": true});
        Ok(response(StatusCode::OK, JSON, &answer))
    }

    /// Keys with the text `value` under `rule` and its tiers, of which there is at least one.
    pub(super) async fn ids(&self, rule: &str, value: &str) -> Result<Vec<BudgetId>, Problem> {
        // Including the tiers that overrides add.
        let rule_sets = self.exchange.rules.in_force().await?;
        let mut each = rule_sets.iter().map(|rule_set| which::keys(rule_set, rule, value));
        // POPs may run the rules of their own configuration, which are unknown here.
        let Some(first) = each.next() else { return Ok(which::unknown(rule, value)?) };
        let (mut ids, mut error) = (Vec::new(), None);
        for found in each.chain([first]) {
            match found {
                Ok(found) => ids.extend(found),
                Err(why) => error = Some(why),
            }
        }
        ids.sort();
        ids.dedup();
        // A rule may be in only one of the rule sets.
        error.filter(|_| ids.is_empty()).map_or(Ok(ids), |error| Err(error.into()))
    }
}

/// Rule and key in a path. The last part may contain a slash, which belongs to a network.
pub(super) fn named(path: &str) -> Result<(String, String), Problem> {
    let parts = path.strip_prefix(KEY_PATH).and_then(|rest| rest.split_once('/'));
    let text = |part: &str| name::from_path(part).filter(|text| !text.is_empty());
    let named = parts.and_then(|(rule, value)| Some((text(rule)?, text(value)?)));
    named.ok_or_else(|| {
        let detail =
            "expected /v1/keys/RULE/VALUE, each percent-encoded, as in /v1/keys/per-address/192.0.2.0%2F24";
        Problem::malformed(detail)
    })
}

impl From<WhichError> for Problem {
    fn from(error: WhichError) -> Self {
        let status = match error {
            WhichError::Rule(_) => StatusCode::NOT_FOUND,
            _ => StatusCode::BAD_REQUEST,
        };
        Self::new(status, error.to_string())
    }
}
