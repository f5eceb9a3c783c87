//! Responses to refused gRPC clients: trailers-only, with the HTTP status 200 and the gRPC status in headers. They are
//! complete, so that Envoy's `grpc_web` passes them on unchanged; it would assign another gRPC status to a plain 429.
//!
//! * `grpc-status-details-bin`: a `google.rpc.Status`, in base64 without padding. Its details are a `RetryInfo` and, if
//!   a quota is exhausted, a `QuotaFailure` that names the rule.
//! * `grpc-retry-pushback-ms`: the time until the next attempt (gRPC proposal A6). Clients with a retry policy obey it.

use alloc::borrow::ToOwned as _;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::Header;

const TYPES: &str = "type.googleapis.com/google.rpc.";

pub(crate) const GRPC_HTTP_STATUS: u16 = 200;

/// The gRPC status for this HTTP status: `PERMISSION_DENIED`, `UNAVAILABLE` or `RESOURCE_EXHAUSTED`.
pub const fn grpc_status(status: u16) -> u8 {
    match status {
        403 => 7,
        503 => 14,
        _ => 8,
    }
}

/// The headers of a refusal. `message` must have no letter that `grpc-message` escapes.
pub(super) fn grpc_refusal<'a>(status: u16, message: &str) -> [Header<'a>; 3] {
    [
        ("content-type", "application/grpc".into()),
        ("grpc-status", grpc_status(status).to_string().into()),
        ("grpc-message", message.to_owned().into()),
    ]
}

/// [`grpc_refusal`] with details: the rule whose quota is exhausted, and the time until the next attempt.
pub(super) fn grpc_headers<'a>(
    status: u16,
    message: &str,
    exhausted: Option<&str>,
    retry_after_s: Option<u64>,
) -> impl Iterator<Item = Header<'a>> + use<'a> {
    let mut details = Message::default();
    details.number(1, grpc_status(status).into());
    details.bytes(2, message.as_bytes());
    if let Some(seconds) = retry_after_s {
        let (mut delay, mut info) = (Message::default(), Message::default());
        delay.number(1, seconds);
        info.bytes(1, &delay.0);
        details.any("RetryInfo", &info);
    }
    if let Some(name) = exhausted {
        let (mut violation, mut failure) = (Message::default(), Message::default());
        violation.bytes(1, name.as_bytes());
        failure.bytes(1, &violation.0);
        details.any("QuotaFailure", &failure);
    }
    // Clients parse this as a 32-bit `int`.
    let pushback_ms = retry_after_s.map(|seconds| seconds.saturating_mul(1_000).min(i32::MAX.unsigned_abs().into()));
    let pushback = pushback_ms.map(|ms| ("grpc-retry-pushback-ms", ms.to_string().into()));
    let details = ("grpc-status-details-bin", base64(&details.0).into());
    grpc_refusal(status, message).into_iter().chain([details]).chain(pushback)
}

#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn number(&mut self, field: u8, number: u64) {
        self.0.push(field << 3);
        self.varint(number);
    }

    fn bytes(&mut self, field: u8, bytes: &[u8]) {
        self.0.push(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn any(&mut self, name: &str, message: &Self) {
        let mut any = Self::default();
        any.bytes(1, format!("{TYPES}{name}").as_bytes());
        any.bytes(2, &message.0);
        self.bytes(3, &any.0);
    }

    #[allow(clippy::cast_possible_truncation, reason = "seven bits at a time")]
    fn varint(&mut self, mut number: u64) {
        while number > 0x7f {
            self.0.push(0x80 | (number & 0x7f) as u8);
            number >>= 7;
        }
        self.0.push(number as u8);
    }
}

pub(super) fn base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let bits = (0..3).fold(0, |bits, i| bits << 8 | u32::from(three.get(i).copied().unwrap_or(0)));
        text.extend((0..=three.len()).map(|i| letter(bits >> (18 - 6 * i) & 0x3f)));
    }
    text
}

#[allow(clippy::cast_possible_truncation, reason = "six bits")]
fn letter(six: u32) -> char {
    let (first, from) = match six {
        0..=25 => (b'A', 0),
        26..=51 => (b'a', 26),
        52..=61 => (b'0', 52),
        62 => return '+',
        _ => return '/',
    };
    char::from(first.wrapping_add(six.wrapping_sub(from) as u8))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_has_no_padding() {
        // RFC 4648, section 10, without the padding.
        for (bytes, text) in
            [("", ""), ("f", "Zg"), ("fo", "Zm8"), ("foo", "Zm9v"), ("foob", "Zm9vYg"), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
        assert_eq!(base64(&[0xfb, 0xff, 0xbf, 0x00, 0x10, 0x83]), "+/+/ABCD");
    }

    #[test]
    fn too_long_a_wait_is_cut_to_the_longest() {
        let values = |seconds| -> Vec<String> {
            grpc_headers(429, "m", None, Some(seconds)).map(|(_, value)| value.into_owned()).collect()
        };
        assert_eq!(values(3)[4], "3000");
        assert_eq!(values(u64::MAX)[4], "2147483647");
    }
}
