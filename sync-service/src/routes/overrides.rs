//! Routes of overrides: operators put, list and lift them.

use hyper::StatusCode;
use serde_json::{Value, json};
use weir_cli::moment;
use weir_protocol::messages::BAN_MS_MAX;

use super::rules::OVERRIDE_BYTES_MAX;
use super::table::number;
use super::{Answered, Call, JSON, Routes};
use crate::keys::name;
use crate::overrides::request::{self, REASON_BYTES_MAX};
use crate::overrides::spec::{Network, Override, OverrideKind, OverrideSelector, OverrideState, Subject};
use crate::problem::{Problem, json as response};
use crate::rules::ChangeError;

impl Call<'_> {
    /// Kind of the overrides that the path is about; none if it is about all.
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

impl Routes {
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
        let asked = request::read(kind, &value, moment::now_ms(), subject);
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
            // Before the override is dropped: if this fails, it can be lifted again.
            let banned = match self.ids(&rule, &key).await {
                // Its rule is gone, and may come back.
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

    /// Problem for an override that is not put or lifted: the store may have lost the rule set that POPs run.
    fn not_ordered(&self, error: ChangeError) -> Problem {
        let is_about_none = matches!(error, ChangeError::None | ChangeError::NoOverride);
        match self.exchange.lost_revision().filter(|_| is_about_none) {
            Some(revision) => Problem::lost(revision),
            None => error.into(),
        }
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
    Ok(OverrideSelector::About(Subject::of(address)))
}

const _: () = assert!(REASON_BYTES_MAX < OVERRIDE_BYTES_MAX);
