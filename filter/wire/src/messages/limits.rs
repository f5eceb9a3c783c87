//! How messages travel, and the limits that each end holds the other to.

/// The media type both messages travel as.
pub const CONTENT_TYPE: &str = "application/vnd.weir.sync";
/// The path a report is sent to, by POST.
pub const REPORT_PATH: &str = "/v1/report";
/// The longest name of a POP, in bytes.
pub const POP_NAME_MAX: usize = 64;
/// The longest name of a rule, in bytes.
pub const RULE_NAME_MAX: usize = 64;
/// The longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 64;
/// The most rules one report may refer to.
pub const RULES_MAX: usize = 1_000;
/// The most keys one report may carry; the rest wait for the next.
pub const KEYS_MAX: usize = 1_000;
/// The largest message either end accepts, in bytes.
pub const MESSAGE_BYTES_MAX: usize = 256 * 1024;
/// The most parts that a grant divides a rate into.
pub const PARTS_MAX: u32 = 4_095;
/// The most bans one message may carry; the rest wait for the next.
pub const BANS_MAX: usize = 250;
/// The longest that a key may be banned, in milliseconds: a week.
pub const BAN_MS_MAX: u32 = 7 * 86_400_000;
/// The longest that a request may be said to hold an epoch, in milliseconds; it may be said again.
pub const HELD_MS_MAX: u32 = 600_000;
/// The path a rule set is fetched from, by GET, with `?version=N`.
pub const RULES_PATH: &str = "/v1/rules";
/// The most POPs that a fleet has.
pub const POPS_MAX: u32 = 10_000;
/// The most workers that share what their POP may report.
pub const WORKERS_MAX: u32 = 128;
/// The most rules of which one report says what was decided; the others follow in turn.
pub const COUNTED_MAX: usize = 64;
/// The longest version of a POP's module, in bytes.
pub const MODULE_MAX: usize = 32;
/// The longest reason for which a POP refuses a rule set, in bytes.
pub const REFUSAL_MAX: usize = 500;

// A report with every field at its limit must fit.
const _: () = assert!(
    KEYS_MAX * (KEY_BYTES_MAX + 72)
        + RULES_MAX * (RULE_NAME_MAX + 24)
        + BANS_MAX * (KEY_BYTES_MAX + 10)
        + COUNTED_MAX * (RULE_NAME_MAX + 41)
        + REFUSAL_MAX
        < MESSAGE_BYTES_MAX
);
