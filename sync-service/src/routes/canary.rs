//! Routes of the canary: a rule set for some of the POPs.

use hyper::StatusCode;
use hyper::header::{HeaderMap, IF_MATCH};
use serde_json::{Value, json};

use super::rules::{changed, tagged, version_of};
use super::{Answered, Call, JSON, Routes};
use crate::changes::Differences;
use crate::check::warn::Warning;
use crate::document::Document;
use crate::fleet::Seen;
use crate::moment;
use crate::problem::{Problem, json as response, merged};
use crate::rules::Audience;
use crate::rules::follow::FleetState;
use crate::rules::{ChangeError, ChangeOrigin, Tried};

impl Routes {
    /// Begins a canary; without a `change` it is a dry run.
    pub(super) async fn begin_canary(
        &self,
        document: &Document,
        audience: Audience,
        expected: Option<u64>,
        change: Option<&ChangeOrigin>,
        warnings: &[Warning],
    ) -> Answered {
        let rules = &self.exchange.rules;
        let Some(change) = change else {
            let Tried { current, is_same, changes, lines, .. } =
                rules.try_canary(document, &audience, expected).await?;
            let tried = json!({
                "dry_run": true, "current": current, "is_same": is_same, "changes": changes, "lines": lines,
                "warnings": warnings,
            });
            return Ok(response(StatusCode::OK, JSON, &merged(json!(audience), tried)));
        };
        let (canary, version) = rules.begin_canary(document, audience, expected, change).await?;
        let begun = json!({"canary": canary.id, "version": version, "warnings": warnings});
        let answer = merged(json!(canary.audience), begun);
        Ok(tagged(response(StatusCode::CREATED, JSON, &answer), canary.id))
    }

    /// Returns the current canary and its progress.
    pub(super) async fn get_canary(&self, _: Call<'_>) -> Answered {
        let fleet = self.exchange.fleet().await?;
        let Some((of, _)) = &fleet.canary else { return Err(ChangeError::NoCanary.into()) };
        let document: Value = serde_json::from_slice(&of.document).unwrap_or_default();
        let old = self.exchange.rules.current().await?;
        let old: Value = old.and_then(|old| serde_json::from_slice(&old.document).ok()).unwrap_or_default();
        let changes = Differences::between(&old, &document);
        let lines = changes.lines(&old, &document);
        let about = json!({
            "at": moment::text(of.at_ms), "author": of.author, "comment": of.comment, "version": fleet.version,
            "changes": changes, "lines": lines, "document": document,
        });
        let answer = merged(canary(&fleet), about);
        Ok(tagged(response(StatusCode::OK, JSON, &answer), of.id))
    }

    /// Makes the canary the rule set of all POPs.
    pub(super) async fn promote(&self, call: Call<'_>) -> Answered {
        let change = call.change("")?;
        let id = of_header(call.request.headers())?.ok_or_else(|| {
            let detail =
                "expected `If-Match: \"ID\"` with the number of the canary, or `If-Match: *` to promote any";
            Problem::new(StatusCode::PRECONDITION_REQUIRED, detail)
        })?;
        let version = self.exchange.rules.promote(id, &change).await?;
        Ok(changed(StatusCode::OK, version))
    }

    /// Ends the canary: its POPs return to the current version.
    pub(super) async fn withdraw(&self, call: Call<'_>) -> Answered {
        let change = call.change("")?;
        let id = of_header(call.request.headers())?.flatten();
        let canary = self.exchange.rules.withdraw(id, &change).await?;
        let mut answer = canary.told();
        answer["withdrawn"] = true.into();
        Ok(response(StatusCode::OK, JSON, &answer))
    }
}

/// Number of the canary in `If-Match`: `Some(None)` for any, none without the header.
#[allow(clippy::option_option, reason = "what is said may be that any will do")]
fn of_header(headers: &HeaderMap) -> Result<Option<Option<u64>>, Problem> {
    match headers.get(IF_MATCH).map(|value| value.as_bytes().trim_ascii()) {
        None => Ok(None),
        Some(b"*") => Ok(Some(None)),
        Some(tag) => {
            let unreadable = || Problem::malformed("expected `If-Match: \"ID\"` or `If-Match: *`");
            version_of(tag).map(|id| Some(Some(id))).ok_or_else(unreadable)
        }
    }
}

/// JSON for operators about the canary of `fleet`; null if none runs.
pub(super) fn canary(fleet: &FleetState) -> Value {
    let Some((canary, revision)) = &fleet.canary else { return Value::Null };
    let pops = fleet.pops.iter().filter(|pop| fleet.is_canary(pop));
    let (running, others): (Vec<&Seen>, Vec<&Seen>) = pops.partition(|pop| fleet.is_current(pop));
    let (refused, waiting): (Vec<_>, Vec<_>) = others.into_iter().partition(|pop| pop.refused == *revision);
    let mut told = canary.told();
    told["revision"] = (*revision).into();
    for (name, pops) in [("running", running), ("refused", refused), ("waiting", waiting)] {
        told[name] = pops.iter().map(|seen| seen.pop.as_str()).collect();
    }
    told
}
