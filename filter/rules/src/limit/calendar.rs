//! `algorithm: quota`: a number of tokens for each hour, day, week or month of the calendar.

use serde_json::Value;

use super::Limit;
use crate::reading::Fields;
use weir_protocol::calendar::Calendar;
use weir_protocol::quota::{Period, Quota, TOKENS_MAX};
use weir_protocol::refill_policy::RefillPolicy;
use weir_protocol::sharing::Sharing;

/// Fields that such a rule may not have: its quota is full at the start of each window, and always strict.
const ELSEWHERE: [&str; 4] = ["burst", "strict", "local_burst", "min_share"];

/// Reads the limit and its sharing, for windows in local time `east` minutes ahead of UTC. A token is worth
/// an equal part of the longest window.
pub(crate) fn terms(fields: &mut Fields<'_>, east: i32) -> Option<(Limit, Sharing)> {
    for name in ELSEWHERE {
        if let Some(item) = fields.take(name) {
            item.record("expected no such field beside `algorithm: quota`");
        }
    }
    let item = fields.require("rate", "a rate, as in 10000/day")?;
    let Some((count, unit, calendar)) = rate(item.value()) else {
        item.record_unexpected(format_args!(
            "a whole number from 1 to {TOKENS_MAX}, then /hour, /day, /week or /month, as in \"10000/day\", for `algorithm: quota`"
        ));
        return None;
    };
    item.is_text_for(&format_args!("{count}/{unit}"));
    let token_ns = (calendar.longest_us() * 1_000).div_ceil(u64::from(count));
    let quota = Quota::from_token_ns(token_ns, count).ok()?;
    let refill_policy = RefillPolicy::Window(calendar.east(east));
    Some((Limit::of(quota, None), Sharing { strict: true, refill_policy, ..Sharing::of(quota) }))
}

fn rate(value: &Value) -> Option<(u32, &'static str, Calendar)> {
    let (count, unit) = value.as_str()?.split_once('/')?;
    // `/h` and `/d` are accepted as in other rates.
    let unit = match Period::named(unit) {
        Some(Period::Hour) => "hour",
        Some(Period::Day) => "day",
        _ => unit,
    };
    let (unit, calendar) = *Calendar::NAMED.iter().find(|(name, _)| *name == unit)?;
    let count = count.bytes().all(|b| b.is_ascii_digit()).then_some(count)?.parse().ok()?;
    (1..=TOKENS_MAX).contains(&count).then_some((count, unit, calendar))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::ErrorCollector;
    use crate::{Rule, RuleSet};
    use serde_json::json;
    use std::string::{String, ToString};
    use std::vec::Vec;
    use weir_protocol::sharing::OnSyncLoss;

    fn parse(rest: &Value) -> Result<Rule, Vec<String>> {
        let mut rule = json!({"name": "q", "key": ["client_address"], "algorithm": "quota"});
        rule.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        let errors = ErrorCollector::default();
        let rules = RuleSet::parse(&json!([rule]), "rules", &errors);
        let errors_to_text = |errors: Vec<_>| errors.iter().map(ToString::to_string).collect();
        errors.into_result(rules).map(|rules| rules.rules()[0].clone()).map_err(errors_to_text)
    }

    #[test]
    fn a_quota_is_strict_and_its_burst_is_the_count() {
        for (rate, count, calendar) in [
            ("10000/day", 10_000, Calendar::Day),
            ("1/month", 1, Calendar::Month),
            ("1000000/month", 1_000_000, Calendar::Month),
            ("999983/day", 999_983, Calendar::Day),
            ("5/hour", 5, Calendar::NAMED[0].1),
            ("5/week", 5, Calendar::NAMED[2].1),
            ("5/h", 5, Calendar::NAMED[0].1),
            ("10/d", 10, Calendar::Day),
            ("10/days", 10, Calendar::Day),
        ] {
            let rule = parse(&json!({"rate": rate})).unwrap();
            assert_eq!(rule.quota.burst(), count);
            let window_ns = calendar.longest_us() * 1_000;
            assert!((window_ns..window_ns + u64::from(count)).contains(&rule.quota.fill_ns()), "{rate}");
            let whole = Sharing::of(rule.quota);
            assert_eq!(
                rule.sharing,
                Sharing { strict: true, refill_policy: RefillPolicy::Window(calendar), ..whole }
            );
            assert!(rule.sharing.fits(rule.quota));
            assert_eq!(rule.on_sync_loss, OnSyncLoss::Deny);
        }
    }

    #[test]
    fn what_is_no_quota_is_refused_at_its_place() {
        for rate in ["10/m", "10/s", "0/day", "1000001/day", "+1/day", "/day", "1/Day", "1/2day", "day"] {
            let errors = parse(&json!({"rate": rate})).unwrap_err();
            assert!(
                errors.len() == 1 && errors[0].starts_with("rules[0].rate: expected a whole"),
                "{errors:?}"
            );
        }
        assert!(parse(&json!({})).unwrap_err()[0].starts_with("rules[0].rate: missing"));
        let all =
            json!({"rate": "1/day", "burst": 1, "strict": true, "local_burst": 1, "min_share": {"eu": 1}});
        let places: Vec<_> = parse(&all).unwrap_err();
        for (error, field) in places.iter().zip(ELSEWHERE) {
            assert!(error.starts_with(&std::format!("rules[0].{field}: expected no such")), "{error}");
        }
        assert_eq!(places.len(), ELSEWHERE.len());
    }

    #[test]
    fn the_calendars_rates_are_for_quotas_only() {
        assert!(parse(&json!({"algorithm": "token_bucket", "rate": "10/month"})).is_err());
        assert!(parse(&json!({"algorithm": "tokens", "rate": "10/s"})).is_err());
        assert_eq!(
            parse(&json!({"algorithm": "token_bucket", "rate": "10/s"})).unwrap().sharing.refill_policy,
            RefillPolicy::Continuous
        );
    }

    #[test]
    fn an_offset_moves_the_windows_of_a_rule_and_of_its_tiers() {
        for (offset, east) in [
            ("+00:00", 0),
            ("-00:00", 0),
            ("+02:00", 120),
            ("-05:30", -330),
            ("+14:00", 840),
            ("-14:00", -840),
        ] {
            let tiers = json!([{"name": "t", "when": {"methods": ["GET"]}, "rate": "7/month"}]);
            let rule = json!({"rate": "5/day", "utc_offset": offset, "tiers": tiers});
            let tier = parse(&rule).unwrap();
            assert_eq!(
                tier.sharing.refill_policy,
                RefillPolicy::Window(Calendar::Month.east(east)),
                "{offset}"
            );
            let rule = parse(&json!({"rate": "5/day", "utc_offset": offset})).unwrap();
            assert_eq!(
                rule.sharing.refill_policy,
                RefillPolicy::Window(Calendar::Day.east(east)),
                "{offset}"
            );
            assert!(rule.sharing.fits(rule.quota) && tier.sharing.fits(tier.quota));
        }
        for wrong in [
            json!("02:00"),
            json!("+2:00"),
            json!("+02:60"),
            json!("+14:01"),
            json!("+02"),
            json!(2),
            json!("+0a:00"),
        ] {
            let errors = parse(&json!({"rate": "5/day", "utc_offset": wrong})).unwrap_err();
            assert!(
                errors[0].starts_with("rules[0].utc_offset: expected a time zone's offset"),
                "{errors:?}"
            );
        }
        let errors =
            parse(&json!({"algorithm": "token_bucket", "rate": "5/s", "utc_offset": "+02:00"})).unwrap_err();
        assert!(
            errors[0].starts_with("rules[0].utc_offset: expected only with algorithm: quota"),
            "{errors:?}"
        );
    }
}
