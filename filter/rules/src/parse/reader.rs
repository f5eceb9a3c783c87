//! What all reading of a rule set shares.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;

use weir_wire::messages::RULE_NAME_MAX;

use crate::reading::{Errors, Fields};
use crate::request::Attributes;

/// What is shared by all that a rule set is made of.
#[derive(Default)]
pub(crate) struct Reader {
    /// What is asked of a request.
    pub(crate) attributes: Attributes,
    /// What regular expressions take so far, compiled, in bytes.
    pub(super) programs_bytes: usize,
    /// Wildcards of globs so far.
    pub(super) wildcards: usize,
}

/// The field `name`, which is `expected`.
pub(crate) fn rule_name(fields: &mut Fields<'_>, expected: &str, errors: &mut Errors) -> Option<String> {
    let place = fields.place("name");
    let value = fields.require("name", expected, errors)?;
    let fits = |name: &&str| {
        (1..=RULE_NAME_MAX).contains(&name.len())
            && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_')
    };
    let name = value.as_str().filter(fits);
    if name.is_none() {
        let expected = format!("1 to {RULE_NAME_MAX} characters from a-z, 0-9, - and _");
        errors.note_found(&place, expected, value);
    }
    name.map(ToOwned::to_owned)
}
