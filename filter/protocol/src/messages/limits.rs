//! Transport of messages, and the limits that both ends enforce.

/// Media type of both messages.
pub const CONTENT_TYPE: &str = "application/vnd.weir.sync";
/// Path of reports, sent by POST.
pub const REPORT_PATH: &str = "/v1/report";
/// Longest name of a POP, in bytes.
pub const POP_NAME_MAX: usize = 64;
/// Longest name of a rule, in bytes.
pub const RULE_NAME_MAX: usize = 64;
/// Longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 64;
/// Maximum number of rules in one report.
pub const RULES_MAX: usize = 1_000;
/// Maximum number of keys in one report; the rest wait for the next.
pub const KEYS_MAX: usize = 1_000;
/// Largest message that either end accepts, in bytes.
pub const MESSAGE_BYTES_MAX: usize = 256 * 1024;
/// Largest rate divisor in a grant.
pub const PARTS_MAX: u32 = 4_095;
/// Maximum number of bans in one message; the rest wait for the next.
pub const BANS_MAX: usize = 250;
/// Longest ban, in milliseconds: one week.
pub const BAN_MS_MAX: u32 = 7 * 86_400_000;
/// Longest time for which one report can state that a request holds an epoch, in milliseconds. It can be
/// renewed.
pub const HELD_MS_MAX: u32 = 600_000;
/// Path of rule sets, fetched by GET with `?version=N`.
pub const RULES_PATH: &str = "/v1/rules";
/// Maximum number of POPs in a fleet.
pub const POPS_MAX: u32 = 10_000;
/// Maximum number of workers that share the report limits of their POP.
pub const WORKERS_MAX: u32 = 128;
/// Maximum number of rules with decision counts in one report; the others follow in turn.
pub const COUNTED_MAX: usize = 64;
/// Longest version of a POP's module, in bytes.
pub const MODULE_MAX: usize = 32;
/// Longest reason of a refused rule set, in bytes.
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
