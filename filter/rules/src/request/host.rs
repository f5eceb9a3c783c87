//! The host of a request.

use alloc::vec::Vec;

/// The longest host in a condition (RFC 1035, 2.3.4), in bytes.
pub const HOST_BYTES_MAX: usize = 253;

/// The host of an authority, in the form that conditions compare.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostRead {
    backwards: Vec<u8>,
}

impl HostRead {
    /// Reads `authority`. A host longer than any in a condition is cut to one byte more than those may have.
    #[inline(never)]
    pub(crate) fn read(&mut self, authority: &[u8]) {
        self.backwards.clear();
        let end = host_of(authority).iter().rev().take(HOST_BYTES_MAX + 1);
        self.backwards.extend(end.map(u8::to_ascii_lowercase));
    }

    /// The host in lower case, backwards.
    pub(crate) fn backwards(&self) -> &[u8] {
        &self.backwards
    }
}

/// An authority without its port and the dot of a fully qualified name; an IPv6 address without its
/// brackets.
pub(crate) fn host_of(authority: &[u8]) -> &[u8] {
    if let Some(rest) = authority.strip_prefix(b"[") {
        return rest.split(|&b| b == b']').next().unwrap_or(rest);
    }
    let host = authority.split(|&b| b == b':').next().unwrap_or(authority);
    host.strip_suffix(b".").unwrap_or(host)
}
