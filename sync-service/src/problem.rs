//! Error responses: `application/problem+json` (RFC 9457).

use std::fmt;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HeaderName, HeaderValue, WWW_AUTHENTICATE,
};
use hyper::{Response, StatusCode};
use serde_json::{Value, json as object};
use weir_rules::reading::ConfigError;

use crate::access::Refused;
use crate::access::credentials::{Credential, PopPatterns};
use crate::rules::ChangeError;
use crate::rules::audience::Audience;
use crate::store::StoreError;

/// Commands that end a canary, for error messages.
const CANARY_ENDS: &str = "POST /v1/rules/canary/promote makes it the rule set of all POPs, DELETE /v1/rules/canary takes it back; \
    the kill switch takes it back, too";

/// Error response to a request.
#[derive(Clone, Debug)]
pub struct Problem {
    /// Status of the response.
    pub status: StatusCode,
    body: Value,
    header: Option<(HeaderName, &'static str)>,
}

impl Problem {
    /// Problem with `status`. `detail` says what is wrong, or what was expected.
    pub fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        let title = status.canonical_reason().unwrap_or("Error");
        let body = object!({
            "type": "about:blank", "title": title, "status": status.as_u16(), "detail": detail.into(),
        });
        Self { status, body, header: None }
    }

    /// The body cannot be parsed; `detail` says why.
    pub fn malformed(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    /// The token is missing or wrong.
    pub fn unauthorized() -> Self {
        let detail = "expected `Authorization: Bearer` with a token for this path; or, of a POP, a client certificate over TLS";
        Self::new(StatusCode::UNAUTHORIZED, detail).with_header(WWW_AUTHENTICATE, "Bearer")
    }

    /// The token or certificate of a report of `pop` is for other POPs.
    pub fn another_pop(reporter: &Credential<PopPatterns>, pop: &str) -> Self {
        let Credential { name, scope } = reporter;
        let detail = format!(
            "the token or certificate `{name}` is for reports of {}, found a report of {pop}: give this POP one of its \
             own, or add its name to that line of token_file",
            scope.as_str()
        );
        Self::new(StatusCode::FORBIDDEN, detail)
    }

    /// The report names a POP with the prefix that is reserved for gateways.
    pub fn gateways_name(pop: &str) -> Self {
        let detail = format!(
            "found a report of {pop}: names that begin with `gateway/` are those of the gateways in weir-syncs; give this POP \
             another name (sync.pop)"
        );
        Self::new(StatusCode::FORBIDDEN, detail)
    }

    /// The report names a rule that is reserved for gateways.
    pub fn gateways_rule(rule: &str) -> Self {
        let detail = format!(
            "found a report of {rule}: these budgets are for POST /ratelimit/check and for limits of descriptors"
        );
        Self::new(StatusCode::FORBIDDEN, detail)
    }

    /// The body has errors in these places.
    pub fn invalid(detail: impl Into<String>, errors: &[ConfigError]) -> Self {
        let error = |error: &ConfigError| object!({"place": error.place, "problem": error.problem});
        let errors = errors.iter().map(error).collect();
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, detail).with("errors", errors)
    }

    /// The path supports only the methods `allowed`.
    pub fn method_not_allowed(allowed: &'static str) -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, format!("expected {allowed}")).with_header(ALLOW, allowed)
    }

    /// The body has a media type other than those expected, which are given in backticks.
    pub fn media_type(expected: &str) -> Self {
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, format!("expected `Content-Type: {expected}`"))
    }

    /// The body is larger than `bytes_max`.
    pub fn too_large(bytes_max: usize) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, format!("expected at most {bytes_max} bytes")).that_closes()
    }

    /// Version `version` of the rule set is not kept.
    pub fn not_kept(version: u64) -> Self {
        let detail = format!("version {version} is not kept; GET /v1/rules/versions lists those that are");
        Self::new(StatusCode::NOT_FOUND, detail)
    }

    /// POPs run this revision, but the store has lost its rule set and its overrides.
    pub fn lost(revision: u64) -> Self {
        let detail = format!(
            "the store has lost the rule set and the overrides of revision {revision}, which POPs run. Its overrides end \
             in their time; the rule set, put again, ends them at once, and so does the kill switch"
        );
        Self::new(StatusCode::CONFLICT, detail)
    }

    /// None of the named POPs has ever reported.
    fn unheard(audience: &Audience) -> Self {
        let expected = match audience {
            Audience::Pops(names) => {
                let names: Vec<_> = names.iter().map(String::as_str).collect();
                format!("expected POPs that have reported; these have not: {}", names.join(", "))
            }
            Audience::Region(region) => {
                format!("expected a region whose POPs have reported; none of `{region}` has")
            }
        };
        let detail = format!("{expected}. Nothing was changed; GET /v1/fleet lists POPs and their regions");
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, detail)
    }

    /// Adds `Connection: close`, so that the rest of the body need not be read.
    #[must_use]
    pub fn that_closes(self) -> Self {
        self.with_header(CONNECTION, "close")
    }

    fn with_header(self, name: HeaderName, value: &'static str) -> Self {
        Self { header: Some((name, value)), ..self }
    }

    /// Adds an extension member (RFC 9457, section 3.2).
    fn with(mut self, name: &str, value: Value) -> Self {
        self.body[name] = value;
        self
    }

    /// The complete response.
    pub fn response(&self) -> Response<Full<Bytes>> {
        let mut response = json(self.status, "application/problem+json", &self.body);
        if let Some((name, value)) = &self.header {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        response
    }
}

/// Text for the log.
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
                "there are no tokens for operators here: set admin_token_file (or WEIR_SYNC_ADMIN_TOKEN) for this weir-sync".into()
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
                format!(
                    "the token `{name}` may only read: expected one with the role `write` in admin_token_file"
                )
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
        match error {
            ChangeError::Store(error) => error.into(),
            ChangeError::Conflict(current) => {
                let detail = match current {
                    0 => "there is no rule set yet: expected `If-None-Match: *`".to_owned(),
                    current => format!("the current version is {current}"),
                };
                Self::new(StatusCode::PRECONDITION_FAILED, detail).with("version", current.into())
            }
            ChangeError::None => Self::new(
                StatusCode::CONFLICT,
                "there is no rule set to change: POPs run their own configuration's. PUT one to /v1/rules first",
            ),
            ChangeError::NotKept(version) => Self::not_kept(version),
            ChangeError::Override(errors) => {
                let detail = format!(
                    "the rule set with this override would have {} errors; nothing was changed",
                    errors.len()
                );
                Self::invalid(detail, &errors)
            }
            ChangeError::Full => Self::new(
                StatusCode::CONFLICT,
                format!(
                    "{error}: GET /v1/overrides lists them; lift one, or ban a network instead of its addresses"
                ),
            ),
            ChangeError::NoOverride => {
                Self::new(StatusCode::NOT_FOUND, "there is no such override: GET /v1/overrides lists all")
            }
            ChangeError::Canary(id) => {
                Self::new(StatusCode::CONFLICT, format!("a canary runs; nothing was changed. {CANARY_ENDS}"))
                    .with("canary", id.into())
            }
            ChangeError::OtherCanary(id) => {
                let detail = format!("the canary that runs is {id}; nothing was changed. {CANARY_ENDS}");
                Self::new(StatusCode::PRECONDITION_FAILED, detail).with("canary", id.into())
            }
            ChangeError::NoCanary => Self::new(
                StatusCode::NOT_FOUND,
                "no canary runs: PUT /v1/rules?pops=A,B or ?region=R begins one",
            ),
            ChangeError::Unheard(audience) => Self::unheard(&audience),
            ChangeError::Strict(errors) => {
                let detail = format!(
                    "the canary has other terms for {} strict rules; nothing was changed",
                    errors.len()
                );
                Self::invalid(detail, &errors)
            }
            ChangeError::Invalid(errors) => {
                let detail = format!("the rule set has {} errors; nothing was changed", errors.len());
                Self::invalid(detail, &errors)
            }
        }
    }
}

/// JSON response that must not be cached.
pub fn json(status: StatusCode, content_type: &'static str, value: &Value) -> Response<Full<Bytes>> {
    text(status, content_type, value.to_string())
}

/// Text response that must not be cached.
pub fn text(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
