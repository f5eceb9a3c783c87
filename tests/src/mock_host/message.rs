//! weir-sync's answers, and header maps, as bytes.

use weir_protocol::messages::{AdmitRatio, Allowance, Grant, Message, Reply, Report, Settled};

/// A grant: `ratio` of 1000, a level in whole tokens, a lease in milliseconds.
pub fn grant(ratio: u64, level: i64, lease_ms: u32) -> Grant {
    let ratio = AdmitRatio::of(ratio.into(), 1_000);
    Grant { ratio, level_milli: level * 1_000, burst: u32::MAX, divisor: 1, lease_ms }
}

/// A reply to report `sequence`, in a fleet of this number of POPs.
pub fn reply(sequence: u64, pops: u32, grants: Vec<Grant>) -> Vec<u8> {
    let grants = grants.into_iter().map(Allowance::Hot).collect();
    Reply { sequence, pops, settled: Settled::All, grants, rules: vec![], pushed: vec![], ..Reply::default() }.encode()
}

/// A header map in the ABI's form: a count, sizes, then names and values, each ended by NUL.
pub(super) fn serialized(headers: &[(String, impl AsRef<[u8]>)]) -> Vec<u8> {
    let size = |n: usize| u32::try_from(n).unwrap_or(u32::MAX).to_le_bytes();
    let sizes = headers.iter().flat_map(|(name, value)| [size(name.len()), size(value.as_ref().len())]);
    let mut bytes = [size(headers.len())].into_iter().chain(sizes).flatten().collect::<Vec<u8>>();
    for text in headers.iter().flat_map(|(name, value)| [name.as_bytes(), value.as_ref()]) {
        bytes.extend(text);
        bytes.push(0);
    }
    bytes
}

/// The reason why a message of the module is unreadable to the code under test, if it is.
pub(super) fn foreign(sent: &[u8]) -> Option<String> {
    // It asks for a rule set without a body.
    let error = Report::decode(sent).err().filter(|_| !sent.is_empty())?;
    Some(format!("the module is not of this code, or wrong: {error}; build it again with `make wasm`"))
}
