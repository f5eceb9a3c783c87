//! HTTP API client of the commands: address, credentials, and errors.

mod client;

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use clap::{Arg, ArgMatches, Command};
use http_body_util::Full;
use hyper::header::{
    ACCEPT, AUTHORIZATION, CONTENT_TYPE, ETAG, HOST, HeaderName, HeaderValue, IF_MATCH, IF_NONE_MATCH, USER_AGENT,
};
use hyper::{Method, Request, Response, StatusCode};
use rustls::pki_types::ServerName;
use serde_json::Value;
use tokio_rustls::TlsConnector;
use url::{Host, Url};

use crate::credentials::check_token;
use crate::document::source;
use crate::output::{EXIT_CODES, Failure, text};
use crate::{flag, given, number, option};
use client::{connector, is_gateways, out_of_reach, perhaps_made};

/// Header with the author's comment on a change.
pub const COMMENT: &str = "weir-comment";
pub const COMMENT_BYTES_MAX: usize = 500;

const URL_DEFAULT: &str = "http://127.0.0.1:7878";
const TIMEOUT_S_DEFAULT: &str = "10";
const TIMEOUT_S_MAX: u64 = 600;
const TOKEN_FILE_BYTES_MAX: usize = 4_096;
const TOKEN_VARIABLE: &str = "WEIR_TOKEN";

/// Adds the options of all commands that use the API.
pub(super) fn asking(command: Command) -> Command {
    let url = option("url", "URL").env("WEIR_URL").default_value(URL_DEFAULT);
    let token = option("token-file", "FILE").env("WEIR_TOKEN_FILE");
    let authorities = option("ca-file", "FILE").env("WEIR_CA_FILE");
    let timeout = number("timeout-s", "SECONDS", TIMEOUT_S_MAX).default_value(TIMEOUT_S_DEFAULT);
    let options = [
        url.help("Where weir-sync is: http:// or https://"),
        token.help("A file with an operator's token, one of weir-sync's admin_token_file"),
        authorities.help("Certificates (PEM) to trust with https, in place of the system's"),
        timeout.help("How long an answer may take"),
        flag("json").help("One JSON document, for programs"),
    ];
    command.after_help(EXIT_CODES).args(options.map(|option| option.global(true)))
}

pub(super) fn comment() -> Arg {
    option("comment", "TEXT")
        .help(format!("Why, for those who look at what was changed: at most {COMMENT_BYTES_MAX} bytes"))
}

/// Request without the parts that all requests share.
pub(crate) struct ApiRequest<'a> {
    method: Method,
    path: &'a [&'a str],
    query: Vec<(&'static str, String)>,
    headers: Vec<(HeaderName, HeaderValue)>,
    body: Bytes,
}

impl<'a> ApiRequest<'a> {
    /// Request for a path below `/v1`, given as unencoded segments.
    pub(crate) fn new(method: Method, path: &'a [&'a str]) -> Self {
        Self { method, path, query: Vec::new(), headers: Vec::new(), body: Bytes::new() }
    }

    pub(crate) fn get(path: &'a [&'a str]) -> Self {
        Self::new(Method::GET, path)
    }

    pub(crate) fn query(mut self, name: &'static str, value: &impl ToString) -> Self {
        self.query.push((name, value.to_string()));
        self
    }

    pub(crate) fn body(mut self, media_type: &'static str, body: impl Into<Bytes>) -> Self {
        self.headers.push((CONTENT_TYPE, HeaderValue::from_static(media_type)));
        self.body = body.into();
        self
    }

    pub(crate) fn json(self, body: &Value) -> Self {
        self.body("application/json", body.to_string())
    }

    /// Makes the request conditional on the rule set's current version being `version`; 0 stands for no rule set.
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

    pub(crate) fn comment(mut self, comment: Option<&String>) -> Result<Self, Failure> {
        let Some(comment) = comment else { return Ok(self) };
        let value = HeaderValue::from_bytes(comment.as_bytes()).ok();
        let value = value.filter(|_| comment.len() <= COMMENT_BYTES_MAX).ok_or_else(|| {
            Failure::unusable(format!("--comment: expected one line of at most {COMMENT_BYTES_MAX} bytes"))
        })?;
        self.headers.push((HeaderName::from_static(COMMENT), value));
        Ok(self)
    }

    /// Command that shows whether the change was made, or `None` for requests that change nothing.
    fn shown_by(&self) -> Option<&'static str> {
        let has = |of: &str| self.query.iter().any(|(name, _)| *name == of);
        if self.method == Method::GET || has("dry_run") {
            return None;
        }
        match self.path {
            // A query: the keys that a request would count under.
            ["keys"] => None,
            ["keys", _, _] => Some("weir-sync keys"),
            ["rules", "canary", ..] => Some("weir-sync rules canary"),
            ["rules"] if has("pops") || has("region") => Some("weir-sync rules canary"),
            ["rules" | "enforcement", ..] => Some("weir-sync rules versions"),
            _ => Some("weir-sync overrides"),
        }
    }

    fn url(&self, base: &Url) -> Url {
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

pub(super) struct Api {
    url: Url,
    /// TLS connector and server name, or `None` for plain HTTP.
    tls: Option<(TlsConnector, ServerName<'static>)>,
    patience: Duration,
    token: Option<HeaderValue>,
}

#[derive(Debug)]
pub(super) struct ApiResponse {
    pub(super) version: Option<u64>,
    pub(super) body: Value,
}

pub(super) enum ApiResult {
    Done(ApiResponse),
    Refused(StatusCode, Value),
}

impl Api {
    pub(super) fn of(matches: &ArgMatches) -> Result<Self, Failure> {
        let url = base(given(matches, "url").unwrap_or(URL_DEFAULT))?;
        let token = token_of(given(matches, "token-file"))?;
        let seconds = matches.get_one::<u64>("timeout-s").copied().unwrap_or(TIMEOUT_S_MAX);
        let tls = match url.scheme() {
            "https" => Some((connector(given(matches, "ca-file"))?, server_name(&url)?)),
            _ => None,
        };
        Ok(Self { url, tls, patience: Duration::from_secs(seconds), token })
    }

    /// Sends a request. A refusal is a failure.
    pub(super) async fn ask(&self, ask: ApiRequest<'_>) -> Result<ApiResponse, Failure> {
        match self.try_ask(ask).await? {
            ApiResult::Done(answer) => Ok(answer),
            ApiResult::Refused(status, problem) => Err(self.refusal(status, &problem)),
        }
    }

    /// Sends a request. Fails only if there is no usable answer.
    pub(super) async fn try_ask(&self, ask: ApiRequest<'_>) -> Result<ApiResult, Failure> {
        let shown_by = ask.shown_by();
        let answer = self.exchange(self.request(ask)?).await;
        let answer = answer.map_err(|error| out_of_reach(&self.url, &error, shown_by))?;
        self.accepted(&answer, shown_by)
    }

    fn request(&self, ask: ApiRequest<'_>) -> Result<Request<Full<Bytes>>, Failure> {
        let url = ask.url(&self.url);
        let path = match url.query() {
            Some(query) => format!("{}?{query}", url.path()),
            None => url.path().to_owned(),
        };
        let mut request = Request::builder().method(ask.method).uri(path);
        let port = url.port().map_or_else(String::new, |port| format!(":{port}"));
        request = request
            .header(HOST, format!("{}{port}", url.host_str().unwrap_or_default()))
            .header(ACCEPT, "application/json")
            .header(USER_AGENT, concat!("weir-sync/", env!("CARGO_PKG_VERSION")));
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, token);
        }
        for (name, value) in ask.headers {
            request = request.header(name, value);
        }
        request.body(Full::new(ask.body)).map_err(|error| Failure::unusable(format!("cannot be asked: {error}")))
    }

    /// Classifies an answer. `shown_by` is the command that shows whether a change was made.
    fn accepted(&self, answer: &Response<Bytes>, shown_by: Option<&str>) -> Result<ApiResult, Failure> {
        let (status, body) = (answer.status(), serde_json::from_slice::<Value>(answer.body()));
        let Some(body) = body.ok().filter(|body| status.is_success() || !text(&body["detail"]).is_empty()) else {
            if is_gateways(status) {
                let sentence = format!(
                    "{}: a proxy answers {status}: does weir-sync run behind it?{}",
                    self.url,
                    perhaps_made(shown_by)
                );
                return Err(Failure::out_of_reach(sentence));
            }
            let sentence = format!(
                "{}: answered {status}, but not as a weir-sync does: is the address right (--url, WEIR_URL)?",
                self.url
            );
            return Err(Failure::unusable(sentence));
        };
        if status.is_server_error() {
            let (status, perhaps) = (status.as_u16(), perhaps_made(shown_by));
            let sentence = format!("{}: weir-sync answers {status}: {}{perhaps}", self.url, text(&body["detail"]));
            return Err(Failure::out_of_reach(sentence));
        }
        if !status.is_success() {
            return Ok(ApiResult::Refused(status, body));
        }
        let tag = answer.headers().get(ETAG).and_then(|tag| tag.to_str().ok());
        let version = tag.and_then(|tag| tag.trim_matches('"').parse().ok());
        Ok(ApiResult::Done(ApiResponse { version, body }))
    }
}

impl fmt::Display for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.url.as_str().trim_end_matches('/'))
    }
}

/// Parses the address of a weir-sync. It may have a path, as behind a proxy.
fn base(text: &str) -> Result<Url, Failure> {
    let expected = || {
        Failure::unusable(format!(
            "--url: expected http:// or https://, a host and a port, as in {URL_DEFAULT}, found {text}"
        ))
    };
    let url = Url::parse(text).map_err(|_| expected())?;
    let is_bare = url.username().is_empty() && url.password().is_none() && url.query().is_none();
    let is_good = matches!(url.scheme(), "http" | "https") && url.has_host() && is_bare;
    if is_good { Ok(url) } else { Err(expected()) }
}

fn host(url: &Url) -> String {
    match url.host() {
        Some(Host::Ipv6(address)) => address.to_string(),
        _ => url.host_str().unwrap_or_default().to_owned(),
    }
}

fn server_name(url: &Url) -> Result<ServerName<'static>, Failure> {
    let name = ServerName::try_from(host(url));
    name.map_err(|_| Failure::unusable(format!("--url: expected a host that a certificate can name, found {url}")))
}

/// Header with the token from the file at `path` or from the environment. Ignores a name and a role before the token.
fn token_of(path: Option<&str>) -> Result<Option<HeaderValue>, Failure> {
    let (place, text) = match path {
        Some(path) => {
            let place = format!("--token-file: {path}");
            let text = source::read_text(path, TOKEN_FILE_BYTES_MAX);
            let text = text.map_err(|problem| Failure::unusable(format!("{place}: {problem}")))?;
            (place, text)
        }
        None => match std::env::var(TOKEN_VARIABLE) {
            Ok(text) if !text.is_empty() => (TOKEN_VARIABLE.to_owned(), text),
            _ => return Ok(None),
        },
    };
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let (Some(line), None) = (lines.next(), lines.next()) else {
        return Err(Failure::unusable(format!("{place}: expected one token, and nothing else")));
    };
    let token = line.split_whitespace().next_back().unwrap_or_default();
    check_token(token).map_err(|expected| Failure::unusable(format!("{place}: {expected}")))?;
    let mut header = HeaderValue::try_from(format!("Bearer {token}"))
        .map_err(|_| Failure::unusable("the token does not fit into a header"))?;
    header.set_sensitive(true);
    Ok(Some(header))
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
