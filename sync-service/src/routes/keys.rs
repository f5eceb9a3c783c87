//! Routes for operators: top keys, single keys, the decisions of rules, and overrides.

use hyper::StatusCode;
use serde_json::{Value, json};
use weir_budget::budget::BudgetId;
use weir_cli::moment;
use weir_gateway::CheckRequest;
use weir_gateway::json::checks;
use weir_protocol::messages::BAN_MS_MAX;
use weir_rules::fleet_secret::FleetSecret;

use super::rules::OVERRIDE_BYTES_MAX;
use super::table::number;
use super::{Answered, Call, JSON, Routes};
use crate::audit::event::ChangeEvent;
use crate::keys::name::{self, WhichError};
use crate::keys::page::{self, KeyState, TopKeysPage};
use crate::keys::query::{self, TopKeysQuery};
use crate::keys::request::{self, RequestKey, RequestKeys, summary};
use crate::overrides::request::{self as orders, REASON_BYTES_MAX};
use crate::overrides::spec::{Network, Override, OverrideKind, OverrideSelector, OverrideState, Subject};
use crate::problem::{Problem, json as response};
use crate::rules::ChangeError;

const KEY_TEXT_BYTES_MAX: usize = 1_024;

impl Routes {
    pub(super) async fn top_keys(&self, call: Call<'_>) -> Answered {
        let asked = TopKeysQuery::read(&call.query)?;
        let top_keys = self.exchange.top_keys().await;
        let (keys, found) = asked.choose(top_keys.keys);
        let banned_ms = self.exchange.banned_ms(&keys);
        let top_keys = TopKeysPage { keys, ..top_keys };
        let answer = page::list(&top_keys, found, moment::now_ms(), &banned_ms);
        Ok(response(StatusCode::OK, JSON, &answer))
    }

    pub(super) async fn rates(&self, _: Call<'_>) -> Answered {
        Ok(response(StatusCode::OK, JSON, &self.exchange.rates_and_statuses().await.0))
    }

    pub(super) async fn keys_of(&self, call: Call<'_>) -> Answered {
        let body = self.json(call.request, self.config.body_bytes_max).await?;
        let checks = checks(&body).map_err(|errors| {
            Problem::invalid(format!("the body has {} errors; nothing was looked up", errors.len()), &errors)
        })?;
        let [mut ask] =
            <[CheckRequest; 1]>::try_from(checks).map_err(|_| Problem::malformed("expected one request"))?;
        let address = ask.address;
        let rule_sets = self.exchange.rules.in_force().await?;
        let Some((current, canary)) = rule_sets.split_first() else {
            let detail = "there is no rule set: POPs run their own configuration's, of which nothing is known here";
            return Err(Problem::new(StatusCode::NOT_FOUND, detail));
        };
        let secret = self.secrets.gateway_key.as_ref().map(|key| FleetSecret::derive(key.expose().as_bytes()));
        let RequestKeys { list, mut keys, others } = request::keys(current, &mut ask, secret.as_ref());
        for rule_set in canary {
            let mut more = request::keys(rule_set, &mut ask, secret.as_ref()).keys;
            more.retain(|key| !keys.contains(key));
            keys.append(&mut more);
        }
        let others: Vec<_> = others.into_iter().map(|(rule, why)| json!({"rule": rule, "why": why})).collect();
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
                Some(one) => with_overrides(&one, &overrides),
                None => {
                    json!({"rule": rule, "key": shown, "why": why.unwrap_or("no POP has reported it of late")})
                }
            };
            (row["enforced_percent"], row["lacks_key"]) = (enforced_percent.into(), lacks_key.into());
            row
        };
        let rows: Vec<_> = keys.into_iter().map(row).collect();
        let about = address.map(|address| query::of_address(&overrides, address)).unwrap_or_default();
        let becomes = summary(list, &rows);
        let answer = json!({"summary": becomes, "list": list, "keys": rows, "others": others, "overrides": about});
        Ok(response(StatusCode::OK, JSON, &answer))
    }

    pub(super) async fn one_key(&self, call: Call<'_>) -> Answered {
        let (rule, key) = call.named()?;
        let ids = match self.ids(&rule, &key).await {
            Err(problem) if problem.status == StatusCode::BAD_REQUEST => return Err(problem),
            // Either no rule set has a rule of this name, or none can be read. POPs may have reported it nevertheless.
            Err(_) => name::ids_of_unknown(&rule, &key)?,
            Ok(ids) => ids,
        };
        let known = self.exchange.keys(&ids).await.into_iter().flatten();
        let (mut own, tiers): (Vec<_>, Vec<_>) = known.partition(|one| one.id.rule == rule);
        let one = own.pop().ok_or_else(|| {
            let detail = format!(
                "no POP has reported keys of the rule `{rule}` of late, and no rule set that is kept has it: \
                 `weir-sync keys` lists keys with the names of their rules"
            );
            Problem::new(StatusCode::NOT_FOUND, detail)
        })?;
        let overrides = self.overrides_known().await;
        let mut answer = with_overrides(&one, &overrides);
        // Keys of tiers are counted separately.
        answer["tiers"] =
            own.iter().chain(&tiers).map(|one| with_overrides(one, &overrides)).collect::<Vec<_>>().into();
        Ok(response(StatusCode::OK, JSON, &answer))
    }

    /// Overrides in force; empty if they cannot be read.
    async fn overrides_known(&self) -> Vec<OverrideState> {
        self.exchange.rules.overrides().await.unwrap_or_default()
    }

    /// Resets a key everywhere: its budget, and its state at POPs.
    pub(super) async fn forget_key(&self, call: Call<'_>) -> Answered {
        let change = call.change("")?;
        let (rule, value) = call.named()?;
        let ids = self.ids(&rule, &value).await?;
        let key = ids.first().map(|id| name::show(&id.value)).unwrap_or_default();
        let event = ChangeEvent { target: Some(json!({"rule": rule, "key": key})), ..change.event("reset") };
        let forgotten = self.exchange.forget_keys(&ids).await;
        forgotten.inspect_err(|error| self.exchange.audit_log.change_failed(error, event.clone()))?;
        tracing::info!(rule, key, author = change.author, comment = change.comment, "a key was reset");
        self.exchange.audit_log.change(event);
        // The reset lifts the key's ban, so the ban's override is dropped too.
        let banned = OverrideSelector::About(Subject::Key { rule: rule.clone(), key: key.clone() });
        match self.exchange.rules.lift_override(OverrideKind::Ban, &banned, &change).await {
            Ok(_) | Err(ChangeError::NoOverride) => {}
            Err(error) => return Err(error.into()),
        }
        let answer = json!({"rule": rule, "key": key, "reset": true});
        Ok(response(StatusCode::OK, JSON, &answer))
    }

    /// Keys that `value` names under `rule` and its tiers; at least one.
    async fn ids(&self, rule: &str, value: &str) -> Result<Vec<BudgetId>, Problem> {
        // Including the tiers that overrides add.
        let rule_sets = self.exchange.rules.in_force().await?;
        let mut each = rule_sets.iter().map(|rule_set| name::ids(rule_set, rule, value));
        // POPs may run the rules of their own configuration, which are unknown here.
        let Some(first) = each.next() else { return Ok(name::ids_of_unknown(rule, value)?) };
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

    pub(super) async fn list_overrides(&self, call: Call<'_>) -> Answered {
        let kind = call.kind();
        let all = self.exchange.rules.overrides().await?;
        let is_asked = |state: &&OverrideState| kind.is_none_or(|kind| state.order.settings.kind == kind);
        let overrides: Vec<Value> = all.iter().filter(is_asked).map(OverrideState::json).collect();
        let answer = json!({"overrides": overrides, "lost": self.exchange.lost_revision()});
        Ok(response(StatusCode::OK, JSON, &answer))
    }

    /// Puts an override. Its subject is in the path or in the body.
    pub(super) async fn put_override(&self, call: Call<'_>) -> Answered {
        let kind = call.kind().unwrap_or(OverrideKind::Rate);
        let mut change = call.change(kind.as_str())?;
        let subject = if kind == OverrideKind::Rate { Some(call.subject()?) } else { None };
        let value = self.json(call.request, OVERRIDE_BYTES_MAX).await?;
        let asked = orders::read(kind, &value, moment::now_ms(), subject);
        let mut asked = asked.map_err(|errors| {
            let detail = format!("the override has {} errors; nothing was changed", errors.len());
            Problem::invalid(detail, &errors)
        })?;
        // The reason may be in the body or in the comment.
        let reason = &mut asked.settings.reason;
        if reason.is_empty() {
            reason.clone_from(&change.comment);
        }
        change.comment.clone_from(reason);
        let banned = match &mut asked.settings.subject {
            Subject::Key { rule, key } if kind == OverrideKind::Ban => {
                let ids = self.ids(rule, key).await?;
                // The key is stored in the form in which keys are listed.
                *key = ids.first().map(|id| name::show(&id.value)).unwrap_or_default();
                ids
            }
            _ => Vec::new(),
        };
        let put = self.exchange.rules.put_override(&asked, &change).await;
        let (state, offline) = put.map_err(|error| self.not_ordered(error))?;
        if !banned.is_empty() {
            let Override { at_ms, until_ms, .. } = state.order;
            let for_ms = u32::try_from(until_ms.saturating_sub(at_ms)).unwrap_or(BAN_MS_MAX).min(BAN_MS_MAX);
            // The POPs that report here are notified even if the store is out of reach.
            let shared = self.exchange.ban_keys(&banned, for_ms).await;
            shared.or_else(|error| if error.is_out_of_reach() { Ok(()) } else { Err(error) })?;
        }
        let mut answer = state.json();
        self.add_note(&mut answer, offline.as_ref());
        Ok(response(StatusCode::OK, JSON, &answer))
    }

    pub(super) async fn lift_override(&self, call: Call<'_>) -> Answered {
        let kind = call.kind().unwrap_or(OverrideKind::Rate);
        let change = call.change("lift")?;
        let which = match kind {
            OverrideKind::Rate => OverrideSelector::About(call.subject()?),
            _ => which_of(&call.parts.concat())?,
        };
        let rules = &self.exchange.rules;
        let state = rules.order(kind, &which).await.map_err(|error| self.not_ordered(error))?;
        if let (OverrideKind::Ban, Subject::Key { rule, key }) = (kind, state.order.settings.subject) {
            // Before the override is dropped, so that a failed lift can be repeated.
            let banned = match self.ids(&rule, &key).await {
                // The rule is gone, and may come back.
                Err(problem) if problem.status.is_client_error() => name::ids_of_unknown(&rule, &key)?,
                ids => ids?,
            };
            self.exchange.unban_keys(&banned).await?;
        }
        let (state, offline) = rules.lift_override(kind, &which, &change).await?;
        let mut answer = state.json();
        self.add_note(&mut answer, offline.as_ref());
        Ok(response(StatusCode::OK, JSON, &answer))
    }

    /// Problem for an override that was not put or lifted. The store may have lost the rule set that POPs run.
    fn not_ordered(&self, error: ChangeError) -> Problem {
        let is_about_none = matches!(error, ChangeError::None | ChangeError::NoOverride);
        match self.exchange.lost_revision().filter(|_| is_about_none) {
            Some(revision) => Problem::lost(revision),
            None => error.into(),
        }
    }
}

fn with_overrides(one: &KeyState, overrides: &[OverrideState]) -> Value {
    let mut json = page::one(one, moment::now_ms());
    json["overrides"] = query::of_key(overrides, &one.id).into();
    json
}

impl Call<'_> {
    /// Rule and key in the path. The last part may contain a slash, which belongs to a network.
    fn named(&self) -> Result<(String, String), Problem> {
        let fits = |text: &String| (1..=KEY_TEXT_BYTES_MAX).contains(&text.len());
        let text = |at: usize| self.parts.get(at).and_then(|part| name::from_path(part)).filter(fits);
        text(0).zip(text(1)).ok_or_else(|| {
            let detail = "expected a rule and one of its keys, each percent-encoded, as in per-address/192.0.2.0%2F24";
            Problem::malformed(detail)
        })
    }

    /// Kind of the overrides at the path, or `None` for all kinds.
    fn kind(&self) -> Option<OverrideKind> {
        match self.request.uri().path() {
            path if path.starts_with("/v1/bans") => Some(OverrideKind::Ban),
            path if path.starts_with("/v1/allows") => Some(OverrideKind::Allow),
            path if path.starts_with("/v1/keys/") => Some(OverrideKind::Rate),
            _ => None,
        }
    }

    fn subject(&self) -> Result<Subject, Problem> {
        self.named().map(|(rule, key)| Subject::Key { rule, key })
    }
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

/// The override in a path, by its number or its address.
fn which_of(text: &str) -> Result<OverrideSelector, Problem> {
    if let Some(id) = number(text).filter(|_| !text.is_empty()) {
        return Ok(OverrideSelector::Id(id));
    }
    let wrong = || Problem::malformed(format!("expected percent-encoded UTF-8, found {text:?}"));
    let text = name::from_path(text).ok_or_else(wrong)?;
    let address = text.parse::<Network>().map_err(|error| {
        Problem::malformed(format!("expected the override's id, or its address: {error}, found {text:?}"))
    })?;
    Ok(OverrideSelector::About(Subject::Address { address }))
}

const _: () = assert!(REASON_BYTES_MAX < OVERRIDE_BYTES_MAX);
