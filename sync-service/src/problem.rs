//! Errors as clients see them: `application/problem+json` (RFC 9457).

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HeaderName, HeaderValue, WWW_AUTHENTICATE,
};
use hyper::{Response, StatusCode};
use weir_rules::reading::ConfigError;

use crate::rules::ChangeError;
use crate::store::StoreError;

/// Why a request was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// The report cannot be read; says why.
    Malformed(String),
    /// The token is missing or wrong.
    Unauthorized,
    /// There is nothing at this path.
    NotFound,
    /// The metrics are at the pages' own address.
    ElsewhereOnly,
    /// The path has other methods: these.
    MethodNotAllowed(&'static str),
    /// The body did not arrive within this many milliseconds.
    Slow(u128),
    /// The body is larger than this many bytes.
    TooLarge(usize),
    /// The body is something else than this media type.
    MediaType(&'static str),
    /// The body broke off.
    Broken,
    /// Operators' routes are closed: no token is set for them.
    NoAdmin,
    /// There is no rule set.
    NoRules,
    /// There is no rule set that could be changed.
    NothingToChange,
    /// This version of the rule set is not kept.
    NotKept(u64),
    /// A change must say which version it is of.
    PreconditionRequired,
    /// Which version a change is of cannot be read.
    Precondition,
    /// The change is of another version than this, the current one; 0 if there is none.
    PreconditionFailed(u64),
    /// The rule set is wrong: all that is.
    Invalid(Vec<ConfigError>),
    /// The store is out of reach; says why.
    Store(String),
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        Self::Store(error.to_string())
    }
}

impl From<ChangeError> for Problem {
    fn from(error: ChangeError) -> Self {
        match error {
            ChangeError::Store(error) => error.into(),
            ChangeError::Conflict(current) => Self::PreconditionFailed(current),
            ChangeError::None => Self::NothingToChange,
            ChangeError::NotKept(version) => Self::NotKept(version),
            ChangeError::Invalid(errors) => Self::Invalid(errors),
        }
    }
}

impl Problem {
    /// The response's status.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Malformed(_) | Self::Broken | Self::Precondition => StatusCode::BAD_REQUEST,
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::NoAdmin => StatusCode::FORBIDDEN,
            Self::NotFound | Self::ElsewhereOnly | Self::NoRules | Self::NotKept(_) => StatusCode::NOT_FOUND,
            Self::NothingToChange => StatusCode::CONFLICT,
            Self::PreconditionRequired => StatusCode::PRECONDITION_REQUIRED,
            Self::PreconditionFailed(_) => StatusCode::PRECONDITION_FAILED,
            Self::Invalid(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Store(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::MethodNotAllowed(_) => StatusCode::METHOD_NOT_ALLOWED,
            Self::Slow(_) => StatusCode::REQUEST_TIMEOUT,
            Self::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::MediaType(_) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        }
    }

    /// What is wrong and what was expected.
    pub fn detail(&self) -> String {
        match self {
            Self::Malformed(reason) | Self::Store(reason) => reason.clone(),
            Self::Unauthorized => "expected `Authorization: Bearer` with the token for this path".into(),
            Self::NotFound => {
                "expected /v1/report, /v1/rules, /v1/rules/versions, /v1/rules/rollback, /v1/enforcement, /v1/fleet, \
                 /healthz, /readyz or /metrics"
                    .into()
            }
            Self::ElsewhereOnly => "the metrics are at the address that ops_listen sets".into(),
            Self::MethodNotAllowed(allowed) => format!("expected {allowed}"),
            Self::Slow(ms) => format!("expected the whole body within {ms} ms"),
            Self::TooLarge(max) => format!("expected at most {max} bytes"),
            Self::MediaType(expected) => format!("expected `Content-Type: {expected}`"),
            Self::Broken => "the body broke off".into(),
            Self::NoAdmin => {
                "rules cannot be changed here: set admin_token_file (or WEIR_SYNC_ADMIN_TOKEN) for this weir-sync".into()
            }
            Self::NoRules => "there is no rule set: POPs run their own configuration's".into(),
            Self::NothingToChange => {
                "there is no rule set to change: POPs run their own configuration's. PUT one to /v1/rules first".into()
            }
            Self::NotKept(version) => {
                format!("version {version} is not kept; GET /v1/rules/versions lists those that are")
            }
            Self::PreconditionRequired => {
                "expected `If-Match: \"N\"` with the version that this replaces, `If-Match: *` to replace any, or \
                 `If-None-Match: *` for the first"
                    .into()
            }
            Self::Precondition => {
                "expected either `If-Match: \"N\"`, `If-Match: *` or `If-None-Match: *`".into()
            }
            Self::PreconditionFailed(0) => "there is no rule set yet: expected `If-None-Match: *`".into(),
            Self::PreconditionFailed(current) => format!("the current version is {current}"),
            Self::Invalid(errors) => format!("the rule set has {} errors; nothing was changed", errors.len()),
        }
    }

    /// The whole response.
    pub fn response(&self) -> Response<Full<Bytes>> {
        let status = self.status();
        let mut problem = serde_json::json!({
            "type": "about:blank",
            "title": status.canonical_reason().unwrap_or("Error"),
            "status": status.as_u16(),
            "detail": self.detail(),
        });
        if let Some((name, value)) = self.extension() {
            problem[name] = value;
        }
        let mut response = json(status, "application/problem+json", &problem);
        if let Some((name, value)) = self.header() {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        response
    }

    /// What the problem says beyond RFC 9457's own members.
    fn extension(&self) -> Option<(&'static str, serde_json::Value)> {
        match self {
            Self::PreconditionFailed(current) => Some(("version", (*current).into())),
            Self::Invalid(errors) => {
                let error =
                    |error: &ConfigError| serde_json::json!({"place": error.place, "problem": error.problem});
                Some(("errors", errors.iter().map(error).collect()))
            }
            _ => None,
        }
    }

    /// What the status asks for beside the body.
    fn header(&self) -> Option<(HeaderName, &'static str)> {
        match self {
            Self::Unauthorized => Some((WWW_AUTHENTICATE, "Bearer")),
            Self::MethodNotAllowed(allowed) => Some((ALLOW, allowed)),
            // What is left of the body is not worth reading.
            Self::Slow(_) | Self::TooLarge(_) | Self::Broken => Some((CONNECTION, "close")),
            _ => None,
        }
    }
}

/// A JSON response that no cache keeps.
pub fn json(
    status: StatusCode,
    content_type: &'static str,
    value: &serde_json::Value,
) -> Response<Full<Bytes>> {
    text(status, content_type, value.to_string())
}

/// A text response that no cache keeps.
pub fn text(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
