//! Routes of overrides: operators put, list and lift them.

use hyper::{Method, StatusCode};
use serde_json::{Value, json};
use weir_protocol::messages::BAN_MS_MAX;

use super::rules::{JSON, OVERRIDE_BYTES_MAX, judge_query, number};
use super::{Answered, HttpRequest, Routes, essence};
use crate::access::credentials::Role;
use crate::connections::Peer;
use crate::document::source;
use crate::keys::{name, which};
use crate::moment;
use crate::overrides::Override;
use crate::overrides::network::Network;
use crate::overrides::path::OverridePath;
use crate::overrides::request::{self, REASON_BYTES_MAX};
use crate::overrides::spec::{OverrideKind, OverrideSelector, OverrideState, Subject};
use crate::problem::{Problem, json as response};
use crate::rules::ChangeError;

impl Routes {
    pub(super) async fn overrides(&self, request: HttpRequest, peer: &Peer, place: OverridePath) -> Answered {
        match (place, request.method()) {
            (OverridePath::All, &Method::GET | &Method::HEAD) => self.list_overrides(&request, None).await,
            (OverridePath::Of(kind), &Method::GET | &Method::HEAD) => {
                self.list_overrides(&request, Some(kind)).await
            }
            (OverridePath::Of(kind), &Method::PUT) => self.put_override(request, peer, kind, None).await,
            (OverridePath::One(kind, which), &Method::DELETE) => {
                self.lift_override(&request, peer, kind, &which_of(&which)?).await
            }
            (OverridePath::Override(rule, value), &Method::PUT) => {
                let subject = key_of(rule, &value)?;
                self.put_override(request, peer, OverrideKind::Rate, Some(subject)).await
            }
            (OverridePath::Override(rule, value), &Method::DELETE) => {
                let which = OverrideSelector::About(key_of(rule, &value)?);
                self.lift_override(&request, peer, OverrideKind::Rate, &which).await
            }
            (OverridePath::Override(..), _) => Err(Problem::method_not_allowed("PUT, DELETE")),
            (OverridePath::All, _) => Err(Problem::method_not_allowed("GET, HEAD")),
            (OverridePath::Of(_), _) => Err(Problem::method_not_allowed("GET, HEAD, PUT")),
            (OverridePath::One(..), _) => Err(Problem::method_not_allowed("DELETE")),
        }
    }

    async fn list_overrides(&self, request: &HttpRequest, kind: Option<OverrideKind>) -> Answered {
        self.operator(request.headers(), Role::Read)?;
        judge_query(request)?;
        let all = self.exchange.rules.overrides().await?;
        let is_asked = |standing: &&OverrideState| kind.is_none_or(|kind| standing.order.said.kind == kind);
        let overrides: Vec<Value> = all.iter().filter(is_asked).map(OverrideState::json).collect();
        Ok(response(
            StatusCode::OK,
            JSON,
            &json!({"overrides": overrides, "lost": self.exchange.lost_revision()}),
        ))
    }

    /// Puts an override. Its subject is in the path or in the body.
    async fn put_override(
        &self,
        request: HttpRequest,
        peer: &Peer,
        kind: OverrideKind,
        subject: Option<Subject>,
    ) -> Answered {
        let mut change = self.change(request.headers(), peer, kind.as_str())?;
        judge_query(&request)?;
        if !essence(request.headers()).eq_ignore_ascii_case(JSON.as_bytes()) {
            return Err(Problem::media_type(JSON));
        }
        let body = self.read(request.into_body(), OVERRIDE_BYTES_MAX).await?;
        let value = source::json(&body).map_err(|error| Problem::malformed(format!("no JSON: {error}")))?;
        let now_ms = moment::now_ms();
        let asked = match subject {
            Some(subject) => request::read_override(&value, now_ms, subject),
            None => request::read(kind, &value, now_ms),
        };
        let mut asked = asked.map_err(|errors| {
            let detail = format!("the override has {} errors; nothing was changed", errors.len());
            Problem::invalid(detail, &errors)
        })?;
        // The reason may be in the body or in the comment.
        if asked.reason.is_empty() {
            asked.reason.clone_from(&change.comment);
        }
        change.comment.clone_from(&asked.reason);
        let banned = match &mut asked.subject {
            Subject::Key { rule, key } if kind == OverrideKind::Ban => {
                let ids = self.ids(rule, key).await?;
                // The key is stored in the form in which keys are listed.
                *key = ids.first().map(|id| name::show(&id.value)).unwrap_or_default();
                ids
            }
            _ => Vec::new(),
        };
        let put = self.exchange.rules.put_override(kind, &asked, &change).await;
        let (standing, offline) = put.map_err(|error| self.not_ordered(error))?;
        if !banned.is_empty() {
            let Override { at_ms, until_ms, .. } = standing.order;
            let for_ms = u32::try_from(until_ms.saturating_sub(at_ms)).unwrap_or(BAN_MS_MAX).min(BAN_MS_MAX);
            // The POPs that report here are notified even if the store is out of reach.
            let shared = self.exchange.ban_keys(&banned, for_ms).await;
            shared.or_else(|error| if error.is_out_of_reach() { Ok(()) } else { Err(error) })?;
        }
        let mut answer = standing.json();
        self.add_note(&mut answer, offline.as_ref());
        Ok(response(StatusCode::OK, JSON, &answer))
    }

    async fn lift_override(
        &self,
        request: &HttpRequest,
        peer: &Peer,
        kind: OverrideKind,
        which: &OverrideSelector,
    ) -> Answered {
        let change = self.change(request.headers(), peer, "lift")?;
        judge_query(request)?;
        let rules = &self.exchange.rules;
        let standing = rules.order(kind, which).await.map_err(|error| self.not_ordered(error))?;
        if let (OverrideKind::Ban, Subject::Key { rule, key }) = (kind, standing.order.said.subject) {
            // Before the override is dropped: if this fails, it can be lifted again.
            let banned = match self.ids(&rule, &key).await {
                // Its rule is gone, and may come back.
                Err(problem) if problem.status.is_client_error() => which::unknown(&rule, &key)?,
                ids => ids?,
            };
            self.exchange.unban_keys(&banned).await?;
        }
        let (standing, offline) = rules.lift_override(kind, which, &change).await?;
        let mut answer = standing.json();
        self.add_note(&mut answer, offline.as_ref());
        Ok(response(StatusCode::OK, JSON, &answer))
    }
}

impl Routes {
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
    let text = decoded(text)?;
    let address = text.parse::<Network>().map_err(|error| {
        Problem::malformed(format!("expected the override's id, or its address: {error}, found {text:?}"))
    })?;
    Ok(OverrideSelector::About(Subject::of(address)))
}

/// The key in a path.
fn key_of(rule: String, value: &str) -> Result<Subject, Problem> {
    let key = decoded(value)?;
    let fits = (1..=KEY_TEXT_BYTES_MAX).contains(&key.len());
    if fits { Ok(Subject::Key { rule, key }) } else { Err(Problem::malformed(EXPECTED_KEY)) }
}

/// Decodes a percent-encoded part of a path.
fn decoded(part: &str) -> Result<String, Problem> {
    let text = name::from_path(part);
    text.ok_or_else(|| Problem::malformed(format!("expected percent-encoded UTF-8, found {part:?}")))
}

/// Maximum length of a key in a path, in bytes.
const KEY_TEXT_BYTES_MAX: usize = 1_024;
const EXPECTED_KEY: &str = "expected a key of the rule, of at most 1024 bytes";

const _: () = assert!(REASON_BYTES_MAX < OVERRIDE_BYTES_MAX);
