//! State that all parts of a rule set share while it is read.

use alloc::borrow::ToOwned;
use alloc::string::String;

use weir_protocol::messages::RULE_NAME_MAX;

use super::fields::Fields;
use crate::request::Attributes;

/// State that all parts of a rule set share: its attributes, and the limits that hold for their sum.
#[derive(Default)]
pub(crate) struct Reader {
    /// The attributes that the rules read.
    pub(crate) attributes: Attributes,
    /// Size of all compiled regular expressions so far, in bytes.
    pub(crate) programs_bytes: usize,
    /// Number of wildcards in all globs so far.
    pub(crate) wildcards: usize,
}

/// Reads the required field `name`. If it is missing, the error names `expected`.
pub(crate) fn rule_name(fields: &mut Fields<'_>, expected: &str) -> Option<String> {
    let item = fields.require("name", expected)?;
    let fits = |name: &&str| {
        (1..=RULE_NAME_MAX).contains(&name.len())
            && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_')
    };
    let name = item.value().as_str().filter(fits);
    if name.is_none() {
        item.record_unexpected(format_args!("1 to {RULE_NAME_MAX} characters from a-z, 0-9, - and _"));
    }
    name.map(ToOwned::to_owned)
}
