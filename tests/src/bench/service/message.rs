//! The few fields of `envoy.service.ratelimit.v3` that a service needs, read and written by hand: protobuf
//! within a gRPC frame (a flag, a length of four bytes, the message).

/// Bytes before the message.
const FRAME_BYTES: usize = 5;

/// `RateLimitResponse { overall_code: OK }`.
pub(super) const OK: &[u8] = &[0, 0, 0, 0, 2, 0x08, 1];
/// `RateLimitResponse { overall_code: OVER_LIMIT }`.
pub(super) const OVER_LIMIT: &[u8] = &[0, 0, 0, 0, 2, 0x08, 2];

/// The key of a request's first descriptor: its domain and the descriptor's entries. `None` where the
/// message is something else.
pub(super) fn key(frame: &[u8]) -> Option<Vec<u8>> {
    let message = frame.get(FRAME_BYTES..)?;
    // RateLimitRequest: domain 1, descriptors 2; RateLimitDescriptor: entries 1; Entry: key 1, value 2.
    let mut key = field(message, 1)?.to_vec();
    let mut entries = field(message, 2)?;
    while let Some((1, entry, rest)) = next(entries) {
        for part in [field(entry, 1)?, field(entry, 2)?] {
            key.push(b'_');
            key.extend_from_slice(part);
        }
        entries = rest;
    }
    Some(key)
}

/// The first field with this number.
fn field(mut message: &[u8], number: u64) -> Option<&[u8]> {
    loop {
        let (found, value, rest) = next(message)?;
        if found == number {
            return Some(value);
        }
        message = rest;
    }
}

/// A field's number, its bytes (none where it is a number itself), and what follows.
fn next(message: &[u8]) -> Option<(u64, &[u8], &[u8])> {
    let (tag, rest) = varint(message)?;
    let (value, rest) = match tag & 7 {
        0 => (&[][..], varint(rest)?.1),
        2 => {
            let (length, rest) = varint(rest)?;
            rest.split_at_checked(usize::try_from(length).ok()?)?
        }
        _ => return None,
    };
    Some((tag >> 3, value, rest))
}

fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0;
    for (i, byte) in bytes.iter().enumerate().take(9) {
        value |= u64::from(byte & 0x7f) << (7 * i);
        if byte & 0x80 == 0 {
            return Some((value, &bytes[i + 1..]));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_the_domain_and_the_entries() {
        let entry = [&[0x0a, 1, b'k', 0x12, 1][..], b"v"].concat();
        let descriptor = [&[0x0a, 6][..], &entry].concat();
        let message = [&[0x0a, 2][..], b"do", &[0x12, 8], &descriptor, &[0x18, 1]].concat();
        let frame = [&[0, 0, 0, 0, 14][..], &message].concat();
        assert_eq!(key(&frame).as_deref(), Some(&b"do_k_v"[..]));
    }

    #[test]
    fn what_is_cut_short_has_no_key() {
        assert_eq!(key(&[]), None);
        assert_eq!(key(&[0, 0, 0, 0, 2, 0x0a, 9]), None);
        assert_eq!(key(&[0, 0, 0, 0, 1, 0xff]), None);
    }
}
