//! A POP that lies: reports that could take all from another POP's client.

use weir_budget::report_limits::KnownRule;
use weir_protocol::messages::{Ban, BudgetRule, KEYS_MAX, Key, Report};
use weir_protocol::quota::{Period, Quota, Rate};
use weir_protocol::sharing::Sharing;
use weir_rules::RuleSet;

/// The lying POP's additions to its reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// A count that grows by more than any client asks for.
    Tokens,
    Epochs,
    /// The same, in a new table each time.
    Tables,
    /// A table of its own, whose clock runs ahead.
    Clock,
    /// Little at a time in very many epochs, so that the budget forgets what it has charged, and then all of it again.
    Flush,
    /// It was asked for very much, and admitted none of it.
    Demand,
    /// A thousand other keys before the client's.
    Keys,
    /// More keys than it may claim, and the client's beyond them.
    Crowd,
    Quota,
    /// A ban under a rule that has no penalty.
    Ban,
}

impl Lie {
    pub const ALL: [Self; 10] = [
        Self::Tokens,
        Self::Epochs,
        Self::Tables,
        Self::Clock,
        Self::Flush,
        Self::Demand,
        Self::Keys,
        Self::Crowd,
        Self::Quota,
        Self::Ban,
    ];

    pub fn add_to(self, report: &mut Report, n: u64, rule: &BudgetRule, value: &[u8]) {
        let much = 1 << 40;
        let index = u16::try_from(report.rules.len()).expect("few rules");
        let nth = u32::try_from(n % u64::from(u32::MAX)).expect("below it");
        report.rules.push(rule.clone());
        let key = Key { rule: index, value: value.to_vec(), epoch: 7, span_ms: u32::MAX, ..Key::default() };
        let all = |key: Key, tokens: u64| Key {
            admitted: tokens,
            unconfirmed: tokens,
            asked: tokens,
            asked_recently: tokens,
            ..key
        };
        match self {
            Self::Tokens => report.keys.push(all(key, much * n)),
            Self::Epochs => report.keys.push(all(Key { epoch: nth, ..key }, much)),
            Self::Tables => (report.table, report.keys) = (nth, vec![all(key, much)]),
            Self::Clock => {
                (report.table, report.made_ms) = (77, n * 10_000_000);
                report.keys = vec![all(key, much * n)];
            }
            Self::Flush => {
                let others = (1..500).map(|i| Key { epoch: nth * 500 + i, ..key.clone() });
                report.keys.extend(others);
                report.keys.push(all(key, much));
            }
            Self::Demand => {
                report.keys.push(Key { asked: much * n, asked_recently: much, span_ms: 250, ..key });
            }
            Self::Keys => {
                let others = (0..KEYS_MAX as u64 - 1)
                    .map(|i| Key { value: (n * 1_000 + i).to_be_bytes().to_vec(), ..key.clone() });
                report.keys = others.map(|key| all(key, 1)).collect();
                report.keys.push(all(key, much * n));
            }
            Self::Crowd => {
                let others = (0..KEYS_MAX as u64 - 1)
                    .map(|i| Key { value: (n * 1_000 + i).to_be_bytes().to_vec(), ..key.clone() });
                report.keys = others.map(|key| all(key, much)).collect();
                if n > 20 {
                    report.keys.push(all(key, much * n));
                }
            }
            Self::Quota => {
                let slow = Quota::new(Rate::new(1, Period::Day).expect("a rate"), 100).expect("a quota");
                let rule = BudgetRule { quota: slow, sharing: Sharing::of(slow), ..rule.clone() };
                report.rules.push(rule);
                report.keys.push(all(Key { rule: index + 1, ..key }, 1_000 * n));
            }
            Self::Ban => report.bans.push(Ban { rule: index, value: value.to_vec(), for_ms: 60_000 }),
        }
    }
}

/// The rules as POPs report them.
pub fn known_rules(rules: &RuleSet) -> Vec<KnownRule> {
    let known = rules.rules().iter().map(|rule| KnownRule {
        rule: BudgetRule { name: rule.name.clone(), quota: rule.quota, sharing: rule.sharing.clone() },
        ban_ms: rule.penalty.map_or(0, |penalty| penalty.deny_for_ms),
        cost_max: rule.most_cost(),
    });
    known.collect()
}
