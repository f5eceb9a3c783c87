//! Routes of the fleet's rule set and of a canary: operators change and compare them, and POPs fetch them.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{ETAG, HeaderMap, HeaderName, HeaderValue, IF_MATCH, IF_NONE_MATCH};
use serde_json::{Value, json};
use tokio::sync::OwnedMutexGuard;
use tokio::task::spawn_blocking;
use weir_cli::check::warn::{self, Warning};
use weir_cli::document::{DOCUMENT_BYTES_MAX, Document, Form};
use weir_cli::{COMMENT, COMMENT_BYTES_MAX, moment};
use weir_protocol::messages::POP_NAME_MAX;
use weir_protocol::sharing::REGION_NAME_MAX;
use weir_store::StoreError;
use weir_store::fleet::Seen;
use weir_store::rules::StoredVersion;

use super::table::{Query, number};
use super::{Answered, Call, HttpRequest, HttpResponse, JSON, Routes, essence};
use crate::changes::Differences;
use crate::overrides::spec::{OverrideState, Subject};
use crate::problem::{Problem, json as response, merged, text};
use crate::rules::follow::FleetState;
use crate::rules::{Audience, ChangeError, ChangeOrigin, NumberedDocument, POPS_MAX, Tried};

pub(super) const OVERRIDE_BYTES_MAX: usize = 4_096;
/// Maximum number of overrides listed in the response to a new rule set.
const LOST_OVERRIDES_MAX: usize = 20;
const EXPECTED_CONDITION: &str = "expected `If-Match: \"N\"` with the version that this replaces, `If-Match: *` to \
    replace any, or `If-None-Match: *` for the first";
const FORMS: [(&str, Form); 2] = [(JSON, Form::Json), ("application/yaml", Form::Yaml)];

impl Routes {
    pub(super) async fn get_rules(&self, call: Call<'_>) -> Answered {
        let version = call.query.read_as("version", "a number", number)?;
        let NumberedDocument { version, document } = self.held(version).await?;
        Ok(tagged(text(StatusCode::OK, JSON, document), version))
    }

    pub(super) async fn put_rules(&self, call: Call<'_>) -> Answered {
        let is_trial = call.query.read_as("dry_run", "true or false", |text| text.parse().ok())? == Some(true);
        let audience = audience(&call.query)?;
        let change = call.change("put")?;
        let change = (!is_trial).then_some(change);
        let request = call.request;
        let media_type = essence(request.headers());
        let form = FORMS.iter().find(|(name, _)| media_type.eq_ignore_ascii_case(name.as_bytes()));
        let (_, form) = *form.ok_or_else(|| Problem::media_type("application/json` or `application/yaml"))?;
        let expected = self.expected(request.headers()).await?;
        let body = self.read(request.into_body(), DOCUMENT_BYTES_MAX).await?;
        // Checking may take long, and a token with the role `read` is enough: only one dry run at a time.
        let turn = if is_trial { Some(Arc::clone(&self.trying).lock_owned().await) } else { None };
        let (document, mut warnings) = checked(turn, body, form).await?;
        warnings.extend(lost_overrides(&self.exchange.rules.lost_overrides(&document).await));
        let rules = &self.exchange.rules;
        let Some(change) = change else {
            let tried = match &audience {
                Some(audience) => rules.try_canary(&document, audience, expected).await?,
                None => rules.try_put(&document, expected).await?,
            };
            let Tried { current, next, is_same, changes, lines } = tried;
            let whose = audience.map_or_else(|| json!({"version": next}), |audience| json!(audience));
            let tried = json!({
                "dry_run": true, "current": current, "is_same": is_same, "changes": changes, "lines": lines,
                "warnings": warnings,
            });
            return Ok(response(StatusCode::OK, JSON, &merged(whose, tried)));
        };
        if let Some(audience) = audience {
            let (canary, version) = rules.begin_canary(&document, audience, expected, &change).await?;
            let begun = json!({"canary": canary.id, "version": version, "warnings": warnings});
            let answer = merged(json!(canary.audience), begun);
            return Ok(tagged(response(StatusCode::CREATED, JSON, &answer), canary.id));
        }
        let version = rules.put(&document, expected, &change).await?;
        let status = if expected == Some(0) { StatusCode::CREATED } else { StatusCode::OK };
        let answer = json!({"version": version, "warnings": warnings, "note": self.exchange.note(None)});
        Ok(tagged(response(status, JSON, &answer), version))
    }

    pub(super) async fn versions(&self, _: Call<'_>) -> Answered {
        let kept = self.exchange.store.kept_rules().await?;
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

    pub(super) async fn roll_back(&self, call: Call<'_>) -> Answered {
        let change = call.change("")?;
        let expected = self.expected(call.request.headers()).await?;
        let to = self.order(call.request, "version", Value::as_u64, r#"{"version": N}"#).await?;
        let version = self.exchange.rules.roll_back(to, expected, &change).await?;
        Ok(changed(StatusCode::OK, version))
    }

    pub(super) async fn enforce(&self, call: Call<'_>) -> Answered {
        let change = call.change("")?;
        let expected = r#"{"enforce": true} or {"enforce": false}"#;
        let enforce = self.order(call.request, "enforce", Value::as_bool, expected).await?;
        let (version, offline) = self.exchange.rules.enforce(enforce, &change).await?;
        let mut answer = json!({"version": version});
        self.add_note(&mut answer, offline.as_ref());
        Ok(tagged(response(StatusCode::OK, JSON, &answer), version))
    }

    pub(super) fn add_note(&self, answer: &mut Value, offline: Option<&StoreError>) {
        (answer["offline"], answer["note"]) = (offline.is_some().into(), self.exchange.note(offline).into());
    }

    /// Value of the only field of a JSON body, `name`. `expected` describes the body in errors.
    async fn order<T>(
        &self,
        request: HttpRequest,
        name: &str,
        read: impl Fn(&Value) -> Option<T>,
        expected: &str,
    ) -> Result<T, Problem> {
        let value = self.json(request, OVERRIDE_BYTES_MAX).await?;
        let fields = value.as_object().filter(|fields| fields.len() == 1);
        let order = fields.and_then(|fields| fields.get(name)).and_then(read);
        order.ok_or_else(|| Problem::malformed(format!("expected {expected}")))
    }

    /// Version that must be current for a change (RFC 9110, 13.1), or `None` for any.
    pub(super) async fn expected(&self, headers: &HeaderMap) -> Result<Option<u64>, Problem> {
        let text = |name: HeaderName| headers.get(name).map(|value| value.as_bytes().trim_ascii());
        let unreadable =
            || Problem::malformed("expected either `If-Match: \"N\"`, `If-Match: *` or `If-None-Match: *`");
        match (text(IF_MATCH), text(IF_NONE_MATCH)) {
            (None, None) => Err(Problem::new(StatusCode::PRECONDITION_REQUIRED, EXPECTED_CONDITION)),
            (None, Some(b"*")) => Ok(Some(0)),
            // A version must exist. Once one exists, one always does.
            (Some(b"*"), None) => match self.exchange.rules.current().await? {
                Some(_) => Ok(None),
                None => Err(ChangeError::Conflict(0).into()),
            },
            (Some(tag), None) => version_of(tag).map(Some).ok_or_else(unreadable),
            _ => Err(unreadable()),
        }
    }

    pub(super) async fn differences(&self, call: Call<'_>) -> Answered {
        let version = |name| call.query.read_as(name, "a number", number);
        let (from, to) = (self.held(version("from")?).await?, self.held(version("to")?).await?);
        // Parsing large rule sets takes a while.
        let compare = move || {
            let [old, new] = [&from, &to].map(NumberedDocument::value);
            let changes = Differences::between(&old, &new);
            let lines = changes.lines(&old, &new);
            json!({"from": from.version, "to": to.version, "is_same": old == new, "changes": changes, "lines": lines})
        };
        let unread = |_| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the versions could not be compared");
        Ok(response(StatusCode::OK, JSON, &spawn_blocking(compare).await.map_err(unread)?))
    }

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

    pub(super) async fn get_canary(&self, _: Call<'_>) -> Answered {
        let fleet = self.exchange.fleet().await?;
        let Some((of, _)) = &fleet.canary else { return Err(ChangeError::NoCanary.into()) };
        let document: Value = serde_json::from_slice(&of.document).unwrap_or_default();
        let old = self.exchange.rules.current().await?.as_ref().map(NumberedDocument::value).unwrap_or_default();
        let changes = Differences::between(&old, &document);
        let lines = changes.lines(&old, &document);
        let about = json!({
            "at": moment::text(of.at_ms), "author": of.author, "comment": of.comment, "version": fleet.version,
            "changes": changes, "lines": lines, "document": document,
        });
        let answer = merged(canary(&fleet), about);
        Ok(tagged(response(StatusCode::OK, JSON, &answer), of.id))
    }

    pub(super) async fn promote(&self, call: Call<'_>) -> Answered {
        let change = call.change("")?;
        let id = of_header(call.request.headers())?.ok_or_else(|| {
            let detail = "expected `If-Match: \"ID\"` with the number of the canary, or `If-Match: *` to promote any";
            Problem::new(StatusCode::PRECONDITION_REQUIRED, detail)
        })?;
        let version = self.exchange.rules.promote(id, &change).await?;
        Ok(changed(StatusCode::OK, version))
    }

    pub(super) async fn withdraw(&self, call: Call<'_>) -> Answered {
        let change = call.change("")?;
        let id = of_header(call.request.headers())?.flatten();
        let canary = self.exchange.rules.withdraw(id, &change).await?;
        let mut answer = canary.json();
        answer["withdrawn"] = true.into();
        Ok(response(StatusCode::OK, JSON, &answer))
    }
}

impl Call<'_> {
    pub(super) fn change(&self, note: &str) -> Result<ChangeOrigin, Problem> {
        let (author, comment) = (self.caller.clone(), comment(self.request.headers())?);
        let peer = Some(self.peer.address.ip().to_canonical());
        Ok(ChangeOrigin { note: note.into(), author, comment, peer })
    }
}

fn comment(headers: &HeaderMap) -> Result<String, Problem> {
    let comment = headers.get(COMMENT).map_or(&b""[..], |value| value.as_bytes());
    let comment = str::from_utf8(comment).ok().filter(|comment| comment.len() <= COMMENT_BYTES_MAX);
    let comment = comment.ok_or_else(|| {
        Problem::malformed(format!("expected at most {COMMENT_BYTES_MAX} bytes of UTF-8 in `{COMMENT}`"))
    })?;
    Ok(comment.trim().into())
}

/// Parses a document and collects its warnings, holding `turn` even if the client disconnects.
async fn checked(
    turn: Option<OwnedMutexGuard<()>>,
    body: Bytes,
    form: Form,
) -> Result<(Document, Vec<Warning>), Problem> {
    let check = move || {
        let _turn = turn;
        let document = Document::read(&body, form).map_err(ChangeError::Invalid)?;
        let warnings = warn::warnings(document.rules());
        Ok((document, warnings))
    };
    let unchecked =
        |_| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the rule set was not checked; nothing was changed");
    spawn_blocking(check).await.map_err(unchecked)?
}

fn lost_overrides(lost: &[OverrideState]) -> Vec<Warning> {
    let warning = |state: &OverrideState| {
        let rule = match &state.order.settings.subject {
            Subject::Key { rule, .. } => Some(rule.clone()),
            Subject::Address { .. } => None,
        };
        let (order, why) = (state.order.settings.summary(), state.without_effect.as_deref());
        let problem =
            format!("an override that is in force would be without effect ({order}): {}", why.unwrap_or_default());
        Warning { place: "overrides".into(), rule, problem }
    };
    lost.iter().take(LOST_OVERRIDES_MAX).map(warning).collect()
}

/// The version in an entity tag, as in `"7"`.
pub(super) fn version_of(tag: &[u8]) -> Option<u64> {
    let digits = tag.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    number(str::from_utf8(digits).ok()?)
}

/// POPs of a canary, or `None` if the rule set is for all POPs.
fn audience(query: &Query) -> Result<Option<Audience>, Problem> {
    let region = |name: &str| name_fits(name, REGION_NAME_MAX).then(|| Audience::Region(name.into()));
    let region = query.read_as("region", "the name of a region", region)?;
    let expected = format!("at most {POPS_MAX} names of POPs, separated by commas");
    match (query.read_as("pops", &expected, pops)?, region) {
        (Some(_), Some(_)) => Err(Problem::malformed("expected either pops or region, found both")),
        (pops, region) => Ok(pops.or(region)),
    }
}

fn pops(names: &str) -> Option<Audience> {
    let names: BTreeSet<String> = names.split(',').map(str::to_owned).collect();
    let fit = names.len() <= POPS_MAX && names.iter().all(|name| name_fits(name, POP_NAME_MAX));
    fit.then_some(Audience::Pops(names))
}

fn name_fits(name: &str, bytes_max: usize) -> bool {
    (1..=bytes_max).contains(&name.len())
}

pub(super) fn changed(status: StatusCode, version: u64) -> HttpResponse {
    tagged(response(status, JSON, &json!({"version": version})), version)
}

pub(super) fn tagged(mut response: HttpResponse, version: u64) -> HttpResponse {
    if let Ok(tag) = HeaderValue::try_from(format!("\"{version}\"")) {
        response.headers_mut().insert(ETAG, tag);
    }
    response
}

/// Number of the canary in `If-Match`: `Some(None)` for any, `None` without the header.
#[allow(clippy::option_option, reason = "the header may name any canary")]
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
    let mut json = canary.json();
    json["revision"] = (*revision).into();
    for (name, pops) in [("running", running), ("refused", refused), ("waiting", waiting)] {
        json[name] = pops.iter().map(|seen| seen.pop.as_str()).collect();
    }
    json
}
