//! Who is limited, and how much each rule decides, for operators.

use std::net::IpAddr;

use hyper::StatusCode;
use serde_json::json;
use tokio::task::spawn_blocking;
use weir_budget::budget::BudgetId;
use weir_rules::fleet_secret::FleetSecret;
use weir_rules::key::KeyValue;

use super::reset::named;
use super::rules::JSON;
use super::{Answered, Request, Routes};
use crate::access::credentials::Role;
use crate::document::{Document, Form};
use crate::gateway::Ask;
use crate::gateway::json::asks;
use crate::keys::answer::{self, Busy};
use crate::keys::asked::Asked;
use crate::keys::found::{self, Found, FoundKey};
use crate::keys::name;
use crate::moment;
use crate::problem::{Problem, json as response};
use crate::rules::ChangeError;

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

    /// How much each rule decides.
    pub(super) async fn rates(&self, request: &Request) -> Answered {
        self.operator(request.headers(), Role::Read)?;
        Ok(response(StatusCode::OK, JSON, &self.exchange.rates().await.answer()))
    }

    /// How the keys of a request stand, which is said as for a check.
    pub(super) async fn keys_of(&self, request: Request) -> Answered {
        self.operator(request.headers(), Role::Read)?;
        let body = self.json(request).await?;
        let asks = asks(&body).map_err(|errors| {
            Problem::invalid(format!("the body has {} errors; nothing was looked up", errors.len()), &errors)
        })?;
        let [ask] = <[Ask; 1]>::try_from(asks).map_err(|_| Problem::malformed("expected one request"))?;
        let held = self.exchange.rules.in_force().await?.ok_or_else(|| {
            let detail =
                "there is no rule set: POPs run their own configuration's, of which nothing is known here";
            Problem::new(StatusCode::NOT_FOUND, detail)
        })?;
        let secret =
            self.secrets.gateway_key.as_ref().map(|key| FleetSecret::derive(key.expose().as_bytes()));
        // Reading a large rule set takes a while.
        let find = move || -> Result<Found, Problem> {
            let mut ask = ask;
            let document = Document::read(&held.document, Form::Json).map_err(ChangeError::Invalid)?;
            Ok(found::keys(document.rules(), &mut ask, secret.as_ref()))
        };
        let unread = |_| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the rule set could not be read");
        let Found { list, keys, others } = spawn_blocking(find).await.map_err(unread)??;
        let others: Vec<_> =
            others.into_iter().map(|(rule, why)| json!({"rule": rule, "why": why})).collect();
        let mut rows = Vec::with_capacity(keys.len());
        for FoundKey { rule, value, why } in keys {
            let shown = value.as_deref().map(name::show);
            let id = value.filter(|_| why.is_none()).map(|value| BudgetId { rule: rule.clone(), value });
            let one = match &id {
                Some(id) => self.exchange.key(id).await,
                None => None,
            };
            rows.push(match one {
                Some(one) => answer::one(&one, moment::now_ms()),
                None => json!({"rule": rule, "key": shown, "why": why.unwrap_or("no POP has reported it of late")}),
            });
        }
        Ok(response(StatusCode::OK, JSON, &json!({"list": list, "keys": rows, "others": others})))
    }

    /// How one key stands.
    pub(super) async fn one_key(&self, request: &Request) -> Answered {
        self.operator(request.headers(), Role::Read)?;
        let (rule, key) = named(request.uri().path())?;
        let id = self.whole(rule, &key).await?;
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

    /// The key that a path names: of an address without a prefix, what the rule counts by, as far as the rule set says.
    async fn whole(&self, rule: String, key: &str) -> Result<BudgetId, Problem> {
        let address = key.parse::<IpAddr>().ok().map(|address| address.to_canonical());
        let value = name::read(key).map_err(|error| Problem::malformed(error.to_string()))?;
        // Without its store, the key is what an address is by default.
        let held = if address.is_some() { self.exchange.rules.in_force().await.ok().flatten() } else { None };
        let (Some(held), Some(address)) = (held, address) else { return Ok(BudgetId { rule, value }) };
        // Reading a large rule set takes a while.
        let cut = move || {
            let document = Document::read(&held.document, Form::Json).ok();
            let rules = document.as_ref().map_or(&[][..], |document| document.rules().rules());
            let known = rules.iter().find(|known| known.name == rule && known.key.is_address());
            let cut =
                known.and_then(|known| known.key.prefixes()).map(|cut| KeyValue::of_address(address, cut));
            BudgetId { rule, value: cut.map_or(value, |key| key.as_bytes().to_vec()) }
        };
        let unread = |_| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the rule set could not be read");
        spawn_blocking(cut).await.map_err(unread)
    }
}
