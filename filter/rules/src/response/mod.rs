//! The response to a limited request: status, headers, body.

pub mod template;

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use serde_json::{Map, Value};

use self::template::Template;
use crate::reading::{Item, is_token, joined};

pub const BODY_BYTES_MAX: usize = 8 * 1_024;
pub const SET_HEADERS_MAX: usize = 20;
const HEADER_NAME_BYTES_MAX: usize = 128;
const HEADER_VALUE_BYTES_MAX: usize = 1_024;
const CONTENT_TYPE_BYTES_MAX: usize = 256;
pub const JITTER_S_MAX: u32 = 3_600;

/// Headers that frame a message. Only the host sets them.
const FRAMING: [&str; 3] = ["content-length", "transfer-encoding", "connection"];

/// The response to a limited request, and the quota headers of allowed ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// Status of a limited request, 400 to 599.
    pub status: u16,
    pub headers: HeaderFamilies,
    pub on_allowed: bool,
    /// True if a header names the rule while it is in shadow and would have refused the request.
    pub on_shadow: bool,
    pub reset: Reset,
    /// Body of a limited response; `None` stands for a problem document (RFC 9457).
    pub body: Option<Template>,
    /// Media type of the body; `None` stands for plain text with a `body`, else for a problem document's type.
    pub content_type: Option<String>,
    /// Further headers of a limited response; they replace others. Names are in lower case, each at most once.
    pub set_headers: Vec<(String, Template)>,
    /// Upper limit of the random addition to Retry-After, in seconds.
    pub retry_after_jitter_s: u32,
}

impl Default for Response {
    fn default() -> Self {
        let headers = HeaderFamilies { retry_after: true, ratelimit: true, x_ratelimit: true };
        Self {
            status: 429,
            headers,
            on_allowed: false,
            on_shadow: false,
            reset: Reset::Delta,
            body: None,
            content_type: None,
            set_headers: Vec::new(),
            retry_after_jitter_s: 0,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeaderFamilies {
    /// `Retry-After` (RFC 9110, 10.2.3), on limited responses only.
    pub retry_after: bool,
    /// `RateLimit` and `RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers-10).
    pub ratelimit: bool,
    /// `X-RateLimit-Limit`, `-Remaining` and `-Reset`.
    pub x_ratelimit: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reset {
    /// Seconds from now.
    Delta,
    /// Seconds since 1970.
    Epoch,
}

impl Response {
    pub fn sends_status(&self) -> bool {
        self.on_allowed && (self.headers.ratelimit || self.headers.x_ratelimit)
    }

    pub(crate) fn read(item: &Item<'_>) -> Option<Self> {
        let (mut fields, default) = (item.fields()?, Self::default());
        let response = Self {
            status: fields.number("status", 400..=599).and_then(|n| u16::try_from(n).ok()).unwrap_or(default.status),
            on_allowed: fields.boolean("on_allowed").unwrap_or(default.on_allowed),
            on_shadow: fields.boolean("on_shadow").unwrap_or(default.on_shadow),
            reset: fields.choice("reset", &[("delta", Reset::Delta), ("epoch", Reset::Epoch)]).unwrap_or(default.reset),
            headers: fields.take("headers").map_or(default.headers, |item| families(&item)),
            body: fields.take("body").and_then(|item| template(item.text(BODY_BYTES_MAX)?, &item)),
            content_type: fields.take("content_type").and_then(|item| content_type(&item)),
            set_headers: fields.take("set_headers").map(|item| set_headers(&item)).unwrap_or_default(),
            retry_after_jitter_s: fields.number("retry_after_jitter_s", 0..=JITTER_S_MAX).unwrap_or_default(),
        };
        fields.finish();
        Some(response)
    }
}

fn families(list: &Item<'_>) -> HeaderFamilies {
    let names = ["retry_after", "ratelimit", "x_ratelimit"].map(|name| (name, name));
    let chosen: Vec<_> = list.items().filter_map(|item| item.choice(&names)).collect();
    let [retry_after, ratelimit, x_ratelimit] = names.map(|(name, _)| chosen.contains(&name));
    HeaderFamilies { retry_after, ratelimit, x_ratelimit }
}

fn template(text: &str, item: &Item<'_>) -> Option<Template> {
    Template::parse(text).map_err(|problem| item.record(problem)).ok()
}

fn content_type(item: &Item<'_>) -> Option<String> {
    let text = item.text(CONTENT_TYPE_BYTES_MAX)?;
    // A type and a subtype, then parameters (RFC 9110, 8.3.1).
    let media = text.split(';').next().unwrap_or_default().trim_ascii_end();
    let is_media = media.split_once('/').is_some_and(|(kind, sub)| is_token(kind) && is_token(sub));
    if !is_media || !is_value(text) {
        item.record("expected a media type, as in text/plain; charset=utf-8");
        return None;
    }
    Some(text.to_owned())
}

fn set_headers(item: &Item<'_>) -> Vec<(String, Template)> {
    let mut set: Vec<(String, Template)> = Vec::new();
    let fits = |object: &&Map<String, Value>| (1..=SET_HEADERS_MAX).contains(&object.len());
    let Some(object) = item.value().as_object().filter(fits) else {
        item.record_unexpected(format_args!("1 to {SET_HEADERS_MAX} headers, as in {{x-why: limited}}"));
        return set;
    };
    for (written, value) in object {
        let shown: String = written.chars().take(HEADER_NAME_BYTES_MAX).collect();
        let item = item.within(&shown, value);
        let name = written.to_ascii_lowercase();
        let is_known = set.iter().any(|(known, _)| *known == name);
        let value = item.text(HEADER_VALUE_BYTES_MAX).filter(|value| {
            let fits = is_value(value);
            if !fits {
                item.record("expected visible ASCII characters, and spaces only between them");
            }
            fits
        });
        let value = value.and_then(|value| template(value, &item));
        let wrong = if written.len() > HEADER_NAME_BYTES_MAX || !is_token(&name) {
            format!("expected a header's name: 1 to {HEADER_NAME_BYTES_MAX} letters, digits or !#$%&'*+-.^_`|~")
        } else if FRAMING.contains(&name.as_str()) {
            format!("expected another header than {}", joined(FRAMING, ", "))
        } else if is_known {
            format!("expected {name} once, in whatever case")
        } else {
            set.extend(value.map(|value| (name, value)));
            continue;
        };
        item.record(wrong);
    }
    set
}

/// True for a field value (RFC 9110, 5.5) of visible ASCII characters and spaces between them.
fn is_value(text: &str) -> bool {
    text.bytes().all(|b| matches!(b, b' '..=b'~')) && text.trim_ascii() == text
}
