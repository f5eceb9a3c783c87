//! Errors as clients see them: `application/problem+json` (RFC 9457).

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HeaderName, HeaderValue, WWW_AUTHENTICATE,
};
use hyper::{Response, StatusCode};

/// Why a request was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// The report cannot be read; says why.
    Malformed(String),
    /// The token is missing or another.
    Unauthorized,
    /// There is nothing at this path.
    NotFound,
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
}

impl Problem {
    /// The response's status.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Malformed(_) | Self::Broken => StatusCode::BAD_REQUEST,
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed(_) => StatusCode::METHOD_NOT_ALLOWED,
            Self::Slow(_) => StatusCode::REQUEST_TIMEOUT,
            Self::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::MediaType(_) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        }
    }

    /// What is wrong and what was expected.
    pub fn detail(&self) -> String {
        match self {
            Self::Malformed(reason) => reason.clone(),
            Self::Unauthorized => "expected `Authorization: Bearer` with the shared token".into(),
            Self::NotFound => "expected /v1/report, /healthz, /readyz or /metrics".into(),
            Self::MethodNotAllowed(allowed) => format!("expected {allowed}"),
            Self::Slow(ms) => format!("expected the whole body within {ms} ms"),
            Self::TooLarge(max) => format!("expected at most {max} bytes"),
            Self::MediaType(expected) => format!("expected `Content-Type: {expected}`"),
            Self::Broken => "the body broke off".into(),
        }
    }

    /// The whole response.
    pub fn response(&self) -> Response<Full<Bytes>> {
        let status = self.status();
        let mut response = json(
            status,
            "application/problem+json",
            &serde_json::json!({
                "type": "about:blank",
                "title": status.canonical_reason().unwrap_or("Error"),
                "status": status.as_u16(),
                "detail": self.detail(),
            }),
        );
        if let Some((name, value)) = self.header() {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        response
    }

    /// What the status asks for beside the body.
    fn header(&self) -> Option<(HeaderName, &'static str)> {
        match self {
            Self::Unauthorized => Some((WWW_AUTHENTICATE, "Bearer")),
            Self::MethodNotAllowed(allowed) => Some((ALLOW, allowed)),
            // What is left of the body is not worth reading.
            Self::Slow(_) | Self::TooLarge(_) | Self::Broken => Some((CONNECTION, "close")),
            Self::Malformed(_) | Self::NotFound | Self::MediaType(_) => None,
        }
    }
}

/// A JSON response that nobody keeps.
pub fn json(
    status: StatusCode,
    content_type: &'static str,
    value: &serde_json::Value,
) -> Response<Full<Bytes>> {
    text(status, content_type, value.to_string())
}

/// A text response that nobody keeps.
pub fn text(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
