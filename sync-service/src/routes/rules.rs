//! Routes of the fleet's rule set: operators change and compare it, and POPs fetch it.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{ETAG, HeaderMap, HeaderName, HeaderValue, IF_MATCH, IF_NONE_MATCH};
use serde_json::{Value, json};
use tokio::sync::OwnedMutexGuard;
use tokio::task::spawn_blocking;
use url::form_urlencoded;
use weir_protocol::messages::POP_NAME_MAX;
use weir_protocol::sharing::REGION_NAME_MAX;

use super::{Answered, HttpRequest, HttpResponse, Routes, essence};
use crate::access::credentials::Role;
use crate::changes::Differences;
use crate::check::warn::{self, Warning};
use crate::connections::Peer;
use crate::document::{DOCUMENT_BYTES_MAX, Document, Form, source};
use crate::overrides::spec::{OverrideState, Subject};
use crate::problem::{Problem, json as response, text};
use crate::rules::{
    Audience, COMMENT, COMMENT_BYTES_MAX, ChangeError, ChangeOrigin, NumberedDocument, POPS_MAX, Tried,
};
use crate::store::StoreError;
use crate::store::rules::StoredVersion;

/// Maximum size of a body with a single field, in bytes.
pub(super) const OVERRIDE_BYTES_MAX: usize = 4_096;
/// Maximum number of overrides listed in the response to a new rule set.
const LOST_OVERRIDES_MAX: usize = 20;
/// Media type of all responses.
pub(super) const JSON: &str = "application/json";
/// Error text for a change without a precondition.
const EXPECTED_CONDITION: &str = "expected `If-Match: \"N\"` with the version that this replaces, `If-Match: *` to \
    replace any, or `If-None-Match: *` for the first";
/// Media types of a rule set.
const FORMS: [(&str, Form); 2] = [(JSON, Form::Json), ("application/yaml", Form::Yaml)];

impl Routes {
    pub(super) async fn get_rules(&self, request: &HttpRequest, peer: &Peer) -> Answered {
        self.reader(request.headers(), peer)?;
        let version = request.uri().query().map(wanted).transpose()?;
        let NumberedDocument { version, document } = self.held(version).await?;
        Ok(tagged(text(StatusCode::OK, JSON, document), version))
    }

    pub(super) async fn put_rules(&self, request: HttpRequest, peer: &Peer) -> Answered {
        let Wanted { is_trial, audience } =
            request.uri().query().map(Wanted::read).transpose()?.unwrap_or_default();
        let change = if is_trial {
            // A dry run changes nothing.
            self.operator(request.headers(), Role::Read)?;
            comment(request.headers())?;
            None
        } else {
            Some(self.change(request.headers(), peer, "put")?)
        };
        let media_type = essence(request.headers());
        let form = FORMS.iter().find(|(name, _)| media_type.eq_ignore_ascii_case(name.as_bytes()));
        let (_, form) = *form.ok_or_else(|| Problem::media_type("application/json` or `application/yaml"))?;
        let expected = self.expected(request.headers()).await?;
        let body = self.read(request.into_body(), DOCUMENT_BYTES_MAX).await?;
        // Checking may take long, and a token that may only read can request it: one dry run at a time.
        let turn = if is_trial { Some(Arc::clone(&self.judging).lock_owned().await) } else { None };
        let (document, mut warnings) = judged(turn, body, form).await?;
        warnings.extend(lost_overrides(&self.exchange.rules.lost_overrides(&document).await));
        if let Some(audience) = audience {
            return self.begin_canary(&document, audience, expected, change.as_ref(), &warnings).await;
        }
        let Some(change) = change else {
            let Tried { current, next, is_same, changes, lines } =
                self.exchange.rules.try_put(&document, expected).await?;
            let answer = json!({
                "dry_run": true, "current": current, "version": next, "is_same": is_same, "changes": changes,
                "lines": lines, "warnings": warnings,
            });
            return Ok(response(StatusCode::OK, JSON, &answer));
        };
        let version = self.exchange.rules.put(&document, expected, &change).await?;
        let status = if expected == Some(0) { StatusCode::CREATED } else { StatusCode::OK };
        let answer = json!({"version": version, "warnings": warnings, "note": self.exchange.note(None)});
        Ok(tagged(response(status, JSON, &answer), version))
    }

    pub(super) async fn versions(&self, request: &HttpRequest) -> Answered {
        self.operator(request.headers(), Role::Read)?;
        let kept = self.exchange.rules.kept().await?;
        let version = |kept: &StoredVersion| {
            let ChangeOrigin { note, author, comment, .. } = ChangeOrigin::read(&kept.note);
            json!({
                "version": kept.version, "name": kept.name(), "at_s": kept.at_s, "note": note, "author": author,
                "comment": comment,
            })
        };
        let versions: Vec<Value> = kept.iter().map(version).collect();
        Ok(response(StatusCode::OK, JSON, &json!({"versions": versions})))
    }

    pub(super) async fn roll_back(&self, request: HttpRequest, peer: &Peer) -> Answered {
        let change = self.change(request.headers(), peer, "")?;
        judge_query(&request)?;
        let expected = self.expected(request.headers()).await?;
        let to = self.order(request, "version", Value::as_u64, r#"{"version": N}"#).await?;
        let version = self.exchange.rules.roll_back(to, expected, &change).await?;
        Ok(changed(StatusCode::OK, version))
    }

    pub(super) async fn enforce(&self, request: HttpRequest, peer: &Peer) -> Answered {
        let change = self.change(request.headers(), peer, "")?;
        judge_query(&request)?;
        let expected = r#"{"enforce": true} or {"enforce": false}"#;
        let enforce = self.order(request, "enforce", Value::as_bool, expected).await?;
        let (version, offline) = self.exchange.rules.enforce(enforce, &change).await?;
        let mut answer = json!({"version": version});
        self.add_note(&mut answer, offline.as_ref());
        Ok(tagged(response(StatusCode::OK, JSON, &answer), version))
    }

    /// Adds notes for the operator to the response to a change.
    pub(super) fn add_note(&self, answer: &mut Value, offline: Option<&StoreError>) {
        (answer["offline"], answer["note"]) = (offline.is_some().into(), self.exchange.note(offline).into());
    }

    /// The change in a request, by an operator with the right to it, with the comment if there is one.
    pub(super) fn change(
        &self,
        headers: &HeaderMap,
        peer: &Peer,
        note: &str,
    ) -> Result<ChangeOrigin, Problem> {
        let operator = self.operator(headers, Role::Write)?;
        let (author, comment) = (operator.name.clone(), comment(headers)?);
        Ok(ChangeOrigin { note: note.into(), author, comment, peer: Some(peer.address.ip().to_canonical()) })
    }

    /// The only field of a JSON body, which must be `name`; `expected` describes the body for errors.
    async fn order<T>(
        &self,
        request: HttpRequest,
        name: &str,
        read: impl Fn(&Value) -> Option<T>,
        expected: &str,
    ) -> Result<T, Problem> {
        if !essence(request.headers()).eq_ignore_ascii_case(JSON.as_bytes()) {
            return Err(Problem::media_type(JSON));
        }
        let body = self.read(request.into_body(), OVERRIDE_BYTES_MAX).await?;
        let value = source::json(&body).ok();
        let fields = value.as_ref().and_then(Value::as_object).filter(|fields| fields.len() == 1);
        let order = fields.and_then(|fields| fields.get(name)).and_then(read);
        order.ok_or_else(|| Problem::malformed(format!("expected {expected}")))
    }

    /// Version that must be current for a change (RFC 9110, 13.1); none for any.
    pub(super) async fn expected(&self, headers: &HeaderMap) -> Result<Option<u64>, Problem> {
        let text = |name: HeaderName| headers.get(name).map(|value| value.as_bytes().trim_ascii());
        let unreadable =
            || Problem::malformed("expected either `If-Match: \"N\"`, `If-Match: *` or `If-None-Match: *`");
        match (text(IF_MATCH), text(IF_NONE_MATCH)) {
            (None, None) => Err(Problem::new(StatusCode::PRECONDITION_REQUIRED, EXPECTED_CONDITION)),
            (None, Some(b"*")) => Ok(Some(0)),
            // There must be one; once there is, there always is.
            (Some(b"*"), None) => match self.exchange.rules.current().await? {
                Some(_) => Ok(None),
                None => Err(ChangeError::Conflict(0).into()),
            },
            (Some(tag), None) => version_of(tag).map(Some).ok_or_else(unreadable),
            _ => Err(unreadable()),
        }
    }
}

/// An operator's comment on a change.
fn comment(headers: &HeaderMap) -> Result<String, Problem> {
    let comment = headers.get(COMMENT).map_or(&b""[..], |value| value.as_bytes());
    let comment = str::from_utf8(comment).ok().filter(|comment| comment.len() <= COMMENT_BYTES_MAX);
    let comment = comment.ok_or_else(|| {
        Problem::malformed(format!("expected at most {COMMENT_BYTES_MAX} bytes of UTF-8 in `{COMMENT}`"))
    })?;
    Ok(comment.trim().into())
}

/// Parses a document and collects its warnings, which may take long. `turn` is held until then, even if the
/// client disconnects.
async fn judged(
    turn: Option<OwnedMutexGuard<()>>,
    body: Bytes,
    form: Form,
) -> Result<(Document, Vec<Warning>), Problem> {
    let judge = move || {
        let _turn = turn;
        let document = Document::read(&body, form).map_err(ChangeError::Invalid)?;
        let warnings = warn::warnings(document.rules());
        Ok((document, warnings))
    };
    let unjudged = |_| {
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the rule set was not judged; nothing was changed")
    };
    spawn_blocking(judge).await.map_err(unjudged)?
}

/// Warnings about overrides that a rule set leaves without effect.
fn lost_overrides(lost: &[OverrideState]) -> Vec<Warning> {
    let warning = |standing: &OverrideState| {
        let rule = match &standing.order.said.subject {
            Subject::Key { rule, .. } => Some(rule.clone()),
            Subject::Address { .. } => None,
        };
        let (order, why) = (standing.order.said.summary(), standing.without_effect.as_deref());
        let problem = format!(
            "an override that is in force would be without effect ({order}): {}",
            why.unwrap_or_default()
        );
        Warning { place: "overrides".into(), rule, problem }
    };
    lost.iter().take(LOST_OVERRIDES_MAX).map(warning).collect()
}

/// The version in an entity tag, as in `"7"`.
pub(super) fn version_of(tag: &[u8]) -> Option<u64> {
    let digits = tag.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    number(str::from_utf8(digits).ok()?)
}

fn wanted(query: &str) -> Result<u64, Problem> {
    let mut pairs = form_urlencoded::parse(query.as_bytes());
    let version = pairs.next().filter(|(name, _)| name == "version" && pairs.next().is_none());
    version
        .and_then(|(_, text)| number(&text))
        .ok_or_else(|| Problem::malformed(format!("expected `?version=N`, found `?{query}`")))
}

/// Refuses a query: it may be meant for a dry run, which only the PUT of a rule set has.
pub(super) fn judge_query(request: &HttpRequest) -> Result<(), Problem> {
    let Some(query) = request.uri().query() else { return Ok(()) };
    Err(Problem::malformed(format!("expected no query, found `?{query}`: nothing was changed")))
}

/// Options in the query of a PUT.
#[derive(Default)]
struct Wanted {
    /// True for a dry run.
    is_trial: bool,
    /// POPs of a canary; none for all POPs.
    audience: Option<Audience>,
}

impl Wanted {
    /// Parses the query. Any other query is refused, as it may be meant for a dry run.
    fn read(query: &str) -> Result<Self, Problem> {
        let unreadable = || {
            Problem::malformed(format!(
                "expected `?dry_run=true`, `?pops=A,B` (at most {POPS_MAX}) or `?region=R`, found `?{query}`"
            ))
        };
        let (mut wanted, mut is_trial) = (Self::default(), None);
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let audience = match (&*name, &*value) {
                ("dry_run", "true" | "false") if is_trial.is_none() => {
                    is_trial = Some(value == "true");
                    continue;
                }
                ("pops", names) => pops(names),
                ("region", region) => {
                    name_fits(region, REGION_NAME_MAX).then(|| Audience::Region(region.into()))
                }
                _ => None,
            };
            if wanted.audience.is_some() || audience.is_none() {
                return Err(unreadable());
            }
            wanted.audience = audience;
        }
        // An empty query is none of these.
        if is_trial.is_none() && wanted.audience.is_none() {
            return Err(unreadable());
        }
        Ok(Self { is_trial: is_trial.unwrap_or_default(), ..wanted })
    }
}

/// A list of POPs.
fn pops(names: &str) -> Option<Audience> {
    let names: BTreeSet<String> = names.split(',').map(str::to_owned).collect();
    let fit = names.len() <= POPS_MAX && names.iter().all(|name| name_fits(name, POP_NAME_MAX));
    fit.then_some(Audience::Pops(names))
}

fn name_fits(name: &str, bytes_max: usize) -> bool {
    (1..=bytes_max).contains(&name.len())
}

/// Digits only: no sign, no blanks.
pub(super) fn number(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

pub(super) fn changed(status: StatusCode, version: u64) -> HttpResponse {
    tagged(response(status, JSON, &json!({"version": version})), version)
}

/// Adds the version's entity tag to `response`.
pub(super) fn tagged(mut response: HttpResponse, version: u64) -> HttpResponse {
    if let Ok(tag) = HeaderValue::try_from(format!("\"{version}\"")) {
        response.headers_mut().insert(ETAG, tag);
    }
    response
}

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
            Some(version) => rules.get(version).await?.ok_or_else(|| ChangeError::NotKept(version).into()),
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
