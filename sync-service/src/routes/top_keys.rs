//! Routes for operators: top keys, and the decisions of rules.

use hyper::StatusCode;
use serde_json::{Value, json};
use weir_budget::budget::BudgetId;
use weir_rules::fleet_secret::FleetSecret;

use super::reset::named;
use super::rules::JSON;
use super::{Answered, HttpRequest, Routes};
use crate::access::credentials::Role;
use crate::gateway::CheckRequest;
use crate::gateway::json::asks;
use crate::keys::found::{self, RequestKey, RequestKeys};
use crate::keys::page::{self, KeyState, TopKeysPage};
use crate::keys::query::TopKeysQuery;
use crate::keys::{name, overrides, summary, which};
use crate::moment;
use crate::overrides::spec::OverrideState;
use crate::problem::{Problem, json as response};

impl Routes {
    /// Lists the top keys of the fleet.
    pub(super) async fn top_keys(&self, request: &HttpRequest) -> Answered {
        self.operator(request.headers(), Role::Read)?;
        let asked =
            TopKeysQuery::read(request.uri().query().unwrap_or_default()).map_err(Problem::malformed)?;
        let top_keys = self.exchange.top_keys().await;
        let (keys, found) = asked.choose(top_keys.keys);
        let banned_ms = self.exchange.banned_ms(&keys);
        let top_keys = TopKeysPage { keys, ..top_keys };
        let answer = page::list(&top_keys, found, moment::now_ms(), &banned_ms);
        Ok(response(StatusCode::OK, JSON, &answer))
    }

    /// Returns the decisions per second of each rule.
    pub(super) async fn rates(&self, request: &HttpRequest) -> Answered {
        self.operator(request.headers(), Role::Read)?;
        Ok(response(StatusCode::OK, JSON, &self.exchange.pops_say().await.0.answer()))
    }

    /// Returns the state of a request's keys. The body has the same form as for a check.
    pub(super) async fn keys_of(&self, request: HttpRequest) -> Answered {
        self.operator(request.headers(), Role::Read)?;
        let body = self.json(request).await?;
        let asks = asks(&body).map_err(|errors| {
            Problem::invalid(format!("the body has {} errors; nothing was looked up", errors.len()), &errors)
        })?;
        let [ask] =
            <[CheckRequest; 1]>::try_from(asks).map_err(|_| Problem::malformed("expected one request"))?;
        let address = ask.address;
        let rule_sets = self.exchange.rules.in_force().await?;
        if rule_sets.is_empty() {
            let detail =
                "there is no rule set: POPs run their own configuration's, of which nothing is known here";
            return Err(Problem::new(StatusCode::NOT_FOUND, detail));
        }
        let secret =
            self.secrets.gateway_key.as_ref().map(|key| FleetSecret::derive(key.expose().as_bytes()));
        let mut ask = ask;
        let mut found = RequestKeys::default();
        for (at, rule_set) in rule_sets.iter().enumerate() {
            let of_one = found::keys(rule_set, &mut ask, secret.as_ref());
            if at == 0 {
                found = of_one;
                continue;
            }
            // Add the keys that only a canary has.
            let is_new = |key: &RequestKey| !found.keys.contains(key);
            let more: Vec<_> = of_one.keys.into_iter().filter(is_new).collect();
            found.keys.extend(more);
        }
        let RequestKeys { list, keys, others } = found;
        let others: Vec<_> =
            others.into_iter().map(|(rule, why)| json!({"rule": rule, "why": why})).collect();
        let id = |key: &RequestKey| {
            let value = key.value.clone().filter(|_| key.why.is_none())?;
            Some(BudgetId::new(key.rule.clone(), value))
        };
        let ids: Vec<_> = keys.iter().filter_map(id).collect();
        let overrides = self.overrides_known().await;
        let mut known = self.exchange.keys(&ids).await.into_iter();
        let row = |RequestKey { rule, value, why, lacks_key, enforced_percent }: RequestKey| {
            let one = if value.is_some() && why.is_none() { known.next().flatten() } else { None };
            let shown = value.as_deref().map(name::show);
            let mut row = match one {
                Some(one) => told(&one, &overrides),
                None => {
                    json!({"rule": rule, "key": shown, "why": why.unwrap_or("no POP has reported it of late")})
                }
            };
            (row["enforced_percent"], row["lacks_key"]) = (enforced_percent.into(), lacks_key.into());
            row
        };
        let rows: Vec<_> = keys.into_iter().map(row).collect();
        let about = address.map(|address| overrides::of_address(&overrides, address)).unwrap_or_default();
        let becomes = summary::of(list, &rows);
        let answer =
            json!({"summary": becomes, "list": list, "keys": rows, "others": others, "overrides": about});
        Ok(response(StatusCode::OK, JSON, &answer))
    }

    /// Returns the state of one key.
    pub(super) async fn one_key(&self, request: &HttpRequest) -> Answered {
        self.operator(request.headers(), Role::Read)?;
        let (rule, key) = named(request.uri().path())?;
        let ids = match self.ids(&rule, &key).await {
            Err(problem) if problem.status == StatusCode::BAD_REQUEST => return Err(problem),
            // No rule set has a rule of this name, or none can be read. POPs may have reported it.
            Err(_) => which::unknown(&rule, &key)?,
            Ok(ids) => ids,
        };
        let known = self.exchange.keys(&ids).await.into_iter().flatten();
        let (mut own, tiers): (Vec<_>, Vec<_>) = known.partition(|one| one.id.rule == rule);
        let one = own.pop().ok_or_else(|| {
            let detail = format!(
                "no POP has reported keys of the rule `{rule}` of late, and no rule set that is kept has it: GET /v1/keys lists \
                 keys with the names of their rules"
            );
            Problem::new(StatusCode::NOT_FOUND, detail)
        })?;
        let overrides = self.overrides_known().await;
        let mut answer = told(&one, &overrides);
        // Keys of tiers are counted separately.
        answer["tiers"] =
            own.iter().chain(&tiers).map(|one| told(one, &overrides)).collect::<Vec<_>>().into();
        Ok(response(StatusCode::OK, JSON, &answer))
    }

    /// Overrides in force; none while the store is out of reach.
    async fn overrides_known(&self) -> Vec<OverrideState> {
        self.exchange.rules.overrides().await.unwrap_or_default()
    }
}

/// A key, with the overrides about it.
fn told(one: &KeyState, overrides: &[OverrideState]) -> Value {
    let mut told = page::one(one, moment::now_ms());
    told["overrides"] = overrides::of_key(overrides, &one.id).into();
    told
}
