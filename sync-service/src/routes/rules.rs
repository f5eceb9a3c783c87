//! The fleet's rule set, which operators change and POPs fetch.

use hyper::header::{ETAG, HeaderMap, HeaderName, HeaderValue, IF_MATCH, IF_NONE_MATCH};
use hyper::{Method, StatusCode};
use serde_json::{Value, json};
use url::form_urlencoded;
use weir_wire::messages;

use super::{Answered, Request, Response, Routes, essence};
use crate::document::{DOCUMENT_BYTES_MAX, Document, Form};
use crate::problem::{Problem, json as response, text};
use crate::rules::Held;
use crate::strict_json;

/// The largest body of a request with a single field, in bytes.
const ORDER_BYTES_MAX: usize = 4_096;
/// The media type of every answer.
const JSON: &str = "application/json";
/// What a rule set may be put as.
const FORMS: [(&str, Form); 2] = [(JSON, Form::Json), ("application/yaml", Form::Yaml)];

impl Routes {
    /// Answers `/v1/rules` and what is below it, `/v1/enforcement` and `/v1/fleet`.
    pub(super) async fn rules(&self, request: Request) -> Answered {
        let method = request.method();
        let reads = matches!(*method, Method::GET | Method::HEAD);
        match request.uri().path() {
            messages::RULES_PATH if reads => {
                self.authorize_any(request.headers())?;
                self.get_rules(request.uri().query()).await
            }
            messages::RULES_PATH if method == Method::PUT => self.put_rules(request).await,
            messages::RULES_PATH => Err(Problem::MethodNotAllowed("GET, HEAD, PUT")),
            "/v1/rules/versions" if reads => {
                self.authorize_admin(request.headers())?;
                self.versions().await
            }
            "/v1/fleet" if reads => {
                self.authorize_any(request.headers())?;
                self.fleet().await
            }
            "/v1/rules/versions" | "/v1/fleet" => Err(Problem::MethodNotAllowed("GET, HEAD")),
            "/v1/rules/rollback" if method == Method::POST => self.roll_back(request).await,
            "/v1/rules/rollback" => Err(Problem::MethodNotAllowed("POST")),
            "/v1/enforcement" if method == Method::PUT => self.enforce(request).await,
            "/v1/enforcement" => Err(Problem::MethodNotAllowed("PUT")),
            _ => Err(Problem::NotFound),
        }
    }

    async fn get_rules(&self, query: Option<&str>) -> Answered {
        let rules = &self.exchange.rules;
        let held = match query.map(wanted).transpose()? {
            Some(version) => rules.get(version).await?.ok_or(Problem::NotKept(version))?,
            None => rules.current().await?.ok_or(Problem::NoRules)?,
        };
        let Held { version, document } = held;
        Ok(tagged(text(StatusCode::OK, JSON, document), version))
    }

    async fn put_rules(&self, request: Request) -> Answered {
        self.authorize_admin(request.headers())?;
        let media_type = essence(request.headers());
        let form = FORMS.iter().find(|(name, _)| media_type.eq_ignore_ascii_case(name.as_bytes()));
        let (_, form) = *form.ok_or(Problem::MediaType("application/json` or `application/yaml"))?;
        let expected = self.expected(request.headers()).await?;
        let body = self.read(request.into_body(), DOCUMENT_BYTES_MAX).await?;
        let document = Document::read(&body, form).map_err(Problem::Invalid)?;
        let version = self.exchange.rules.put(&document, expected, "put").await?;
        let status = if expected == Some(0) { StatusCode::CREATED } else { StatusCode::OK };
        Ok(changed(status, version))
    }

    async fn versions(&self) -> Answered {
        let kept = self.exchange.rules.kept().await?;
        let versions: Vec<Value> = kept
            .iter()
            .map(|kept| json!({"version": kept.version, "at_s": kept.at_s, "note": kept.note}))
            .collect();
        Ok(response(StatusCode::OK, JSON, &json!({"versions": versions})))
    }

    async fn roll_back(&self, request: Request) -> Answered {
        self.authorize_admin(request.headers())?;
        let expected = self.expected(request.headers()).await?;
        let to = self.order(request, "version", Value::as_u64, r#"{"version": N}"#).await?;
        let version = self.exchange.rules.roll_back(to, expected).await?;
        Ok(changed(StatusCode::OK, version))
    }

    async fn enforce(&self, request: Request) -> Answered {
        self.authorize_admin(request.headers())?;
        let expected = r#"{"enforce": true} or {"enforce": false}"#;
        let enforce = self.order(request, "enforce", Value::as_bool, expected).await?;
        let version = self.exchange.rules.enforce(enforce).await?;
        Ok(changed(StatusCode::OK, version))
    }

    async fn fleet(&self) -> Answered {
        let (current, seen) = self.exchange.fleet().await?;
        let pop = |pop: &crate::fleet::Seen| {
            json!({
                "name": pop.pop,
                "region": pop.region,
                "replica": pop.replica,
                "silent_s": silent_s(pop.age_us),
                "version": pop.version,
                "refused": pop.refused,
                "is_current": pop.version == current,
            })
        };
        let pops: Vec<Value> = seen.iter().map(pop).collect();
        Ok(response(StatusCode::OK, JSON, &json!({"version": current, "pops": pops})))
    }

    /// The only field of a JSON body, which must be `name`; `expected` says what the body looks like.
    async fn order<T>(
        &self,
        request: Request,
        name: &str,
        read: impl Fn(&Value) -> Option<T>,
        expected: &str,
    ) -> Result<T, Problem> {
        if !essence(request.headers()).eq_ignore_ascii_case(JSON.as_bytes()) {
            return Err(Problem::MediaType(JSON));
        }
        let body = self.read(request.into_body(), ORDER_BYTES_MAX).await?;
        let value = strict_json::read(&body).ok();
        let fields = value.as_ref().and_then(Value::as_object).filter(|fields| fields.len() == 1);
        let order = fields.and_then(|fields| fields.get(name)).and_then(read);
        order.ok_or_else(|| Problem::Malformed(format!("expected {expected}")))
    }

    /// The version that must be current for a change (RFC 9110, 13.1), `None` if any will do.
    async fn expected(&self, headers: &HeaderMap) -> Result<Option<u64>, Problem> {
        let text = |name: HeaderName| headers.get(name).map(|value| value.as_bytes().trim_ascii());
        match (text(IF_MATCH), text(IF_NONE_MATCH)) {
            (None, None) => Err(Problem::PreconditionRequired),
            (None, Some(b"*")) => Ok(Some(0)),
            // There must be one; once there is, there always is.
            (Some(b"*"), None) => match self.exchange.rules.current().await? {
                Some(_) => Ok(None),
                None => Err(Problem::PreconditionFailed(0)),
            },
            (Some(tag), None) => version_of(tag).map(Some).ok_or(Problem::Precondition),
            _ => Err(Problem::Precondition),
        }
    }
}

/// The version in an entity tag, as in `"7"`.
fn version_of(tag: &[u8]) -> Option<u64> {
    let digits = tag.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    number(str::from_utf8(digits).ok()?)
}

fn wanted(query: &str) -> Result<u64, Problem> {
    let mut pairs = form_urlencoded::parse(query.as_bytes());
    let version = pairs.next().filter(|(name, _)| name == "version" && pairs.next().is_none());
    version
        .and_then(|(_, text)| number(&text))
        .ok_or_else(|| Problem::Malformed(format!("expected `?version=N`, found `?{query}`")))
}

/// Digits only: no sign, no blanks.
fn number(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

fn changed(status: StatusCode, version: u64) -> Response {
    tagged(response(status, JSON, &json!({"version": version})), version)
}

/// `response` with the version's entity tag.
pub(super) fn tagged(mut response: Response, version: u64) -> Response {
    if let Ok(tag) = HeaderValue::try_from(format!("\"{version}\"")) {
        response.headers_mut().insert(ETAG, tag);
    }
    response
}

/// Seconds, to the thousandth.
#[allow(clippy::cast_precision_loss, reason = "for people")]
fn silent_s(age_us: u64) -> f64 {
    (age_us / 1_000) as f64 / 1_000.0
}
