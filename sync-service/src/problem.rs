//! Error responses: `application/problem+json` (RFC 9457).

use std::fmt;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HeaderName, HeaderValue, WWW_AUTHENTICATE};
use hyper::{Response, StatusCode};
use serde_json::{Value, json as object};
use weir_rules::reading::ConfigError;
use weir_store::StoreError;

use crate::access::Refused;
use crate::rules::ChangeError;

#[derive(Clone, Debug)]
pub(crate) struct Problem {
    pub(crate) status: StatusCode,
    body: Value,
    header: Option<(HeaderName, HeaderValue)>,
}

impl Problem {
    /// Problem with `status`. `detail` is the error, or what was expected.
    pub(crate) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        let title = status.canonical_reason().unwrap_or("Error");
        let body = object!({
            "type": "about:blank", "title": title, "status": status.as_u16(), "detail": detail.into(),
        });
        Self { status, body, header: None }
    }

    pub(crate) fn malformed(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    pub(crate) fn unauthorized() -> Self {
        let detail = "expected `Authorization: Bearer` with a token for this path; or, of a POP, a client certificate \
            over TLS";
        Self::new(StatusCode::UNAUTHORIZED, detail).with_header(WWW_AUTHENTICATE, "Bearer")
    }

    pub(crate) fn invalid(detail: impl Into<String>, errors: &[ConfigError]) -> Self {
        let error = |error: &ConfigError| object!({"place": error.place, "problem": error.problem});
        let errors = errors.iter().map(error).collect();
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, detail).with("errors", errors)
    }

    pub(crate) fn method_not_allowed(allowed: &str) -> Self {
        let problem = Self::new(StatusCode::METHOD_NOT_ALLOWED, format!("expected {allowed}"));
        Self { header: HeaderValue::from_str(allowed).ok().map(|allowed| (ALLOW, allowed)), ..problem }
    }

    /// The body has another media type than `expected`.
    pub(crate) fn media_type(expected: &str) -> Self {
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, format!("expected `Content-Type: {expected}`"))
    }

    pub(crate) fn too_large(bytes_max: usize) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, format!("expected at most {bytes_max} bytes")).that_closes()
    }

    /// POPs run this revision, but the store has lost its rule set and its overrides.
    pub(crate) fn lost(revision: u64) -> Self {
        let detail = format!(
            "the store has lost the rule set and the overrides of revision {revision}, which POPs run. Its overrides \
             end in their time; the rule set, put again, ends them at once, and so does the kill switch. Until then, \
             `weir-sync ban RULE KEY` bans a key, and `weir-sync reset RULE KEY` lifts its ban"
        );
        Self::new(StatusCode::CONFLICT, detail)
    }

    /// Adds `Connection: close`, so that the rest of the body need not be read.
    #[must_use]
    pub(crate) fn that_closes(self) -> Self {
        self.with_header(CONNECTION, "close")
    }

    fn with_header(self, name: HeaderName, value: &'static str) -> Self {
        Self { header: Some((name, HeaderValue::from_static(value))), ..self }
    }

    /// Adds an extension member (RFC 9457, section 3.2).
    fn with(mut self, name: &str, value: Value) -> Self {
        self.body[name] = value;
        self
    }

    pub(crate) fn response(&self) -> Response<Full<Bytes>> {
        let mut response = json(self.status, "application/problem+json", &self.body);
        if let Some((name, value)) = &self.header {
            response.headers_mut().insert(name, value.clone());
        }
        response
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.status, self.body["detail"])
    }
}

impl From<Refused> for Problem {
    fn from(refused: Refused) -> Self {
        let detail = match refused {
            Refused::Unknown => return Self::unauthorized(),
            Refused::Closed => {
                "there are no tokens for operators here: set admin_token_file (or WEIR_SYNC_ADMIN_TOKEN) for this \
                 weir-sync"
                    .into()
            }
            Refused::NoTokens(api) => format!(
                "there are no tokens for this API here: expected one with the role `{}` in check_token_file",
                api.as_str()
            ),
            Refused::Api(name, api) => format!(
                "the token `{name}` is not for this API: expected one with the role `{}` in check_token_file",
                api.as_str()
            ),
            Refused::ReadOnly(name) => {
                format!("the token `{name}` may only read: expected one with the role `write` in admin_token_file")
            }
        };
        Self::new(StatusCode::FORBIDDEN, detail)
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string())
    }
}

impl From<ChangeError> for Problem {
    fn from(error: ChangeError) -> Self {
        let detail = error.to_string();
        match error {
            ChangeError::Store(error) => error.into(),
            ChangeError::Conflict(current) => {
                Self::new(StatusCode::PRECONDITION_FAILED, detail).with("version", current.into())
            }
            ChangeError::None | ChangeError::NoRules | ChangeError::Full => Self::new(StatusCode::CONFLICT, detail),
            ChangeError::NotKept(_) | ChangeError::NoOverride | ChangeError::NoCanary => {
                Self::new(StatusCode::NOT_FOUND, detail)
            }
            ChangeError::Canary(id) => Self::new(StatusCode::CONFLICT, detail).with("canary", id.into()),
            ChangeError::OtherCanary(id) => {
                Self::new(StatusCode::PRECONDITION_FAILED, detail).with("canary", id.into())
            }
            ChangeError::UnknownPops(_) => Self::new(StatusCode::UNPROCESSABLE_ENTITY, detail),
            ChangeError::Override(errors) | ChangeError::Strict(errors) | ChangeError::Invalid(errors) => {
                Self::invalid(detail, &errors)
            }
        }
    }
}

/// JSON response that must not be cached.
pub(crate) fn json(status: StatusCode, content_type: &'static str, value: &Value) -> Response<Full<Bytes>> {
    text(status, content_type, value.to_string())
}

/// Text response that must not be cached.
pub(crate) fn text(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// The object `base` with the fields of the object `more`, which take precedence.
pub(crate) fn merged(mut base: Value, more: Value) -> Value {
    if let (Value::Object(base), Value::Object(more)) = (&mut base, more) {
        base.extend(more);
    }
    base
}
