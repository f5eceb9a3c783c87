//! The host of a request.

use alloc::vec::Vec;

/// Longest host in a condition (RFC 1035, 2.3.4), in bytes.
pub const HOST_BYTES_MAX: usize = 253;

/// The host of an authority, in the form that conditions compare, kept for the next request.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostRead {
    authority: Vec<u8>,
    backwards: Vec<u8>,
    is_ambiguous: bool,
}

impl HostRead {
    /// Reads `authority`. A longer host is cut to [`HOST_BYTES_MAX`] + 1 bytes, so that it equals no whole name.
    #[inline(never)]
    pub(crate) fn read(&mut self, authority: &[u8]) {
        if authority == self.authority {
            return;
        }
        self.authority.clear();
        self.authority.extend_from_slice(authority);
        self.backwards.clear();
        let host = host_of(authority);
        self.is_ambiguous = host.is_none();
        let host = host.unwrap_or_default();
        let end = host.get(host.len().saturating_sub(HOST_BYTES_MAX + 1)..).unwrap_or_default();
        self.backwards.extend_from_slice(end);
        self.backwards.make_ascii_lowercase();
        self.backwards.reverse();
    }

    /// The host in lower case, reversed; `None` if it cannot be determined.
    pub(crate) fn backwards(&self) -> Option<&[u8]> {
        (!self.is_ambiguous).then_some(&self.backwards)
    }
}

/// The host of an authority, without its port, a final dot, and the brackets of an IPv6 address. `None` for a text such
/// as `a..` or `user@a`, from which upstreams derive different hosts.
pub(crate) fn host_of(authority: &[u8]) -> Option<&[u8]> {
    let (host, port) = if let Some(rest) = authority.strip_prefix(b"[") {
        rest.split_at_checked(rest.iter().position(|&b| b == b']')? + 1)?
    } else {
        let end = authority.iter().position(|&b| b == b':').unwrap_or(authority.len());
        authority.split_at_checked(end)?
    };
    let is_port = |port: &[u8]| port.strip_prefix(b":").is_some_and(|port| port.iter().all(u8::is_ascii_digit));
    if !port.is_empty() && !is_port(port) {
        return None;
    }
    if let Some(address) = host.strip_suffix(b"]") {
        let is_of_address = |b: &u8| b.is_ascii_hexdigit() || matches!(b, b':' | b'.');
        return address.iter().all(is_of_address).then_some(address);
    }
    let name = host.strip_suffix(b".").unwrap_or(host);
    let mut is_behind_dot = true;
    let are_labels = name.iter().all(|&b| {
        let was_behind_dot = core::mem::replace(&mut is_behind_dot, b == b'.');
        if b == b'.' { !was_behind_dot } else { is_of_name(b) }
    });
    // An empty `Host` is valid where there is no authority (RFC 9110, 7.2).
    (host.is_empty() || are_labels && !is_behind_dot).then_some(name)
}

pub(crate) fn is_of_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_') || !byte.is_ascii()
}
