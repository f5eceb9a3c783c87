//! Requests to the API.

use bytes::Bytes;
use hyper::Method;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue, IF_MATCH, IF_NONE_MATCH};
use serde_json::Value;
use url::Url;

use crate::output::Failure;

/// Header with the author's comment on a change.
pub const COMMENT: &str = "weir-comment";
/// Maximum length of a [`COMMENT`], in bytes.
pub const COMMENT_BYTES_MAX: usize = 500;

/// Request without the parts that all requests share.
#[derive(Debug)]
pub(crate) struct ApiRequest<'a> {
    pub(super) method: Method,
    path: &'a [&'a str],
    query: Vec<(&'static str, String)>,
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    pub(super) body: Bytes,
}

impl<'a> ApiRequest<'a> {
    /// Request for a path below `/v1`, given as segments that are not encoded yet.
    pub(crate) fn new(method: Method, path: &'a [&'a str]) -> Self {
        Self { method, path, query: Vec::new(), headers: Vec::new(), body: Bytes::new() }
    }

    pub(crate) fn get(path: &'a [&'a str]) -> Self {
        Self::new(Method::GET, path)
    }

    /// Adds a query parameter.
    pub(crate) fn query(mut self, name: &'static str, value: &impl ToString) -> Self {
        self.query.push((name, value.to_string()));
        self
    }

    /// Sets a body of this media type.
    pub(crate) fn body(mut self, media_type: &'static str, body: impl Into<Bytes>) -> Self {
        self.headers.push((CONTENT_TYPE, HeaderValue::from_static(media_type)));
        self.body = body.into();
        self
    }

    /// Sets a JSON body.
    pub(crate) fn json(self, body: &Value) -> Self {
        self.body("application/json", body.to_string())
    }

    /// Makes the request conditional on the current version of the rule set; with 0, on there being none.
    pub(crate) fn replacing(mut self, version: u64) -> Self {
        let condition = match version {
            0 => (IF_NONE_MATCH, HeaderValue::from_static("*")),
            version => {
                // Digits are always valid in a header.
                let tag = HeaderValue::try_from(format!("\"{version}\""));
                (IF_MATCH, tag.unwrap_or(HeaderValue::from_static("*")))
            }
        };
        self.headers.push(condition);
        self
    }

    /// Adds an operator's comment, if given.
    pub(crate) fn comment(mut self, comment: Option<&String>) -> Result<Self, Failure> {
        let Some(comment) = comment else { return Ok(self) };
        let value = HeaderValue::from_bytes(comment.as_bytes()).ok();
        let value = value.filter(|_| comment.len() <= COMMENT_BYTES_MAX).ok_or_else(|| {
            Failure::unusable(format!("--comment: expected one line of at most {COMMENT_BYTES_MAX} bytes"))
        })?;
        self.headers.push((HeaderName::from_static(COMMENT), value));
        Ok(self)
    }

    /// Command that shows whether the change was made; none for requests that change nothing.
    pub(super) fn shown_by(&self) -> Option<&'static str> {
        let has = |of: &str| self.query.iter().any(|(name, _)| *name == of);
        if self.method == Method::GET || has("dry_run") {
            return None;
        }
        match self.path {
            // Queries the keys of a request.
            ["keys"] => None,
            ["keys", _, _] => Some("weir-sync keys"),
            ["rules", "canary", ..] => Some("weir-sync rules canary"),
            ["rules"] if has("pops") || has("region") => Some("weir-sync rules canary"),
            ["rules" | "enforcement", ..] => Some("weir-sync rules versions"),
            _ => Some("weir-sync overrides"),
        }
    }

    /// URL of the request at the weir-sync `base`.
    pub(super) fn url(&self, base: &Url) -> Url {
        let mut url = base.clone();
        // The base has a host, so it can have segments.
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().push("v1").extend(self.path);
        }
        if !self.query.is_empty() {
            url.query_pairs_mut().extend_pairs(&self.query);
        }
        url
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_of_a_path_is_encoded() {
        let of = |base: &str, ask: &ApiRequest<'_>| ask.url(&Url::parse(base).unwrap()).to_string();
        let key = ApiRequest::get(&["keys", "login", "2001:db8::/64"]).query("prefix", &"a&b c");
        assert_eq!(of("http://h:1", &key), "http://h:1/v1/keys/login/2001:db8::%2F64?prefix=a%26b+c");
        let rules = ApiRequest::get(&["rules"]);
        for base in ["https://h/weir", "https://h/weir/"] {
            assert_eq!(of(base, &rules), "https://h/weir/v1/rules");
        }
        let odd = ApiRequest::get(&["keys", "r", "%2e?#"]);
        assert_eq!(of("http://h", &odd), "http://h/v1/keys/r/%252e%3F%23");
    }
}
