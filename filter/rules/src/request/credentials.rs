//! Normalisation of credentials (RFC 9110, 11.4).

use alloc::vec::Vec;

/// Normalises credentials: the scheme in lower case, one blank behind it, and no blanks around (RFC 9110,
/// 11.1 and 11.4). A value without a scheme only loses the blanks around it.
#[inline(never)]
pub(crate) fn normalise_credentials(value: &mut Vec<u8>) {
    let is_blank = |b: &u8| matches!(b, b' ' | b'\t');
    let has_scheme = value.trim_ascii().iter().any(is_blank);
    value.truncate(value.trim_ascii_end().len());
    let (mut is_in_scheme, mut after_blank) = (has_scheme, true);
    value.retain_mut(|byte| {
        let is_kept = !(after_blank && is_blank(byte));
        // Blanks after the first byte of the rest are part of it.
        after_blank &= !is_kept;
        if is_in_scheme && is_kept {
            is_in_scheme = !is_blank(byte);
            after_blank = !is_in_scheme;
            *byte = if is_in_scheme { byte.to_ascii_lowercase() } else { b' ' };
        }
        is_kept
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_have_one_form() {
        for (value, expected) in [
            ("Bearer aB", "bearer aB"),
            ("  BEARER \t aB c ", "bearer aB c"),
            ("bearer\taB", "bearer aB"),
            ("aB", "aB"),
            (" aB\t", "aB"),
            ("", ""),
            ("  ", ""),
        ] {
            let mut bytes = value.as_bytes().to_vec();
            normalise_credentials(&mut bytes);
            assert_eq!(bytes, expected.as_bytes(), "{value:?}");
        }
    }
}
