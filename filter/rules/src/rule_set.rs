//! The rules of one configuration, and the selection of those that count a request.

use alloc::vec::Vec;

use weir_protocol::messages::RULES_MAX;

use crate::matching::{Bits, Condition, Holds, Index, conditions};
use crate::reading::{Fields, Reader};
use crate::request::{Attributes, Fetched};
use crate::rule::{Rule, list};

/// The rules of one configuration in their written order, and the lists that precede them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleSet {
    rules: Vec<Rule>,
    index: Index,
    /// The rules without an expensive condition; `None` if all rules are without one, or none are.
    cheap: Option<Bits>,
    /// The rules that count a request, if they are the same for every request.
    always: Option<Vec<u16>>,
    allow: Conditions,
    deny: Conditions,
    is_enforced: bool,
    has_unlimited: bool,
    attributes: Attributes,
}

/// A list of conditions, of which a request must meet only one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Conditions {
    list: Vec<Condition>,
    index: Index,
}

/// Result of the `allow` and `deny` lists for a request, before any bucket is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listed {
    Off,
    /// The request meets the `allow` list: no rule counts it.
    Allowed,
    /// The request meets the `deny` list: it is refused.
    Blocked,
    /// Neither list applies: the rules decide.
    No,
}

impl RuleSet {
    pub(crate) fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let mut reader = Reader::default();
        let rules = fields.require("rules", "a list of rules");
        let rules = rules.and_then(|item| list::rules(&item, &mut reader));
        let is_enforced = fields.boolean("enforce").unwrap_or(true);
        let [allow, deny] = ["allow", "deny"].map(|name| {
            let list = conditions(fields, name, &mut reader);
            Conditions { index: Index::new(list.iter()), list }
        });
        let rules = rules?;
        let is_open = |rule: &Rule| rule.matches.is_open() && rule.variant.is_alone();
        let all = || (0..rules.len()).filter_map(|place| u16::try_from(place).ok()).collect();
        Some(Self {
            index: Index::new(rules.iter().map(|rule| &*rule.matches)),
            cheap: cheap(&rules),
            always: rules.iter().all(is_open).then(all),
            allow,
            deny,
            is_enforced,
            has_unlimited: rules.iter().any(|rule| rule.variant.is_unlimited()),
            attributes: reader.attributes,
            rules,
        })
    }

    pub fn is_enforced(&self) -> bool {
        self.is_enforced
    }

    /// True if the rules are in force, and there are no conditions and no lists.
    pub fn counts_all_alike(&self) -> bool {
        let has_lists = !(self.allow.list.is_empty() && self.deny.list.is_empty());
        self.is_enforced && self.always.is_some() && !has_lists
    }

    pub fn has_unlimited(&self) -> bool {
        self.has_unlimited
    }

    /// The `allow` list. No rule counts a request that meets one of these conditions, and it is never refused.
    pub fn allow(&self) -> &[Condition] {
        &self.allow.list
    }

    /// The `deny` list. A request that meets one of these conditions, and none of [`RuleSet::allow`], is refused.
    pub fn deny(&self) -> &[Condition] {
        &self.deny.list
    }

    /// Evaluates both lists. An unsure result does not match `allow`, but matches `deny`. `room` is scratch space.
    pub fn listed(&self, request: &mut Fetched<'_>, room: &mut Bits) -> Listed {
        match self.allowed(request, room) {
            Listed::No => self.blocked(request, room),
            listed => listed,
        }
    }

    /// Evaluates the `deny` list alone, for a request that the `allow` list does not match.
    pub fn blocked(&self, request: &mut Fetched<'_>, room: &mut Bits) -> Listed {
        if self.deny.any_holds(request, room, Holds::Unsure) { Listed::Blocked } else { Listed::No }
    }

    pub fn allowed(&self, request: &mut Fetched<'_>, room: &mut Bits) -> Listed {
        if !self.is_enforced {
            Listed::Off
        } else if self.allow.any_holds(request, room, Holds::Yes) {
            Listed::Allowed
        } else {
            Listed::No
        }
    }

    /// Places of the rules that count the request, and of its unlimited tiers, in order. `room` and `out` are scratch.
    pub fn find_matches<'a>(&'a self, request: &mut Fetched<'_>, room: &mut Bits, out: &'a mut Vec<u16>) -> &'a [u16] {
        if let Some(always) = &self.always {
            return always;
        }
        self.index.candidates(request, room);
        self.choose(room, request, out);
        out
    }

    /// Like [`RuleSet::find_matches`], for the rules without an expensive condition; `None` if all are, or none.
    pub fn find_cheap_matches<'a>(
        &self,
        request: &mut Fetched<'_>,
        room: &mut Bits,
        out: &'a mut Vec<u16>,
    ) -> Option<&'a [u16]> {
        let cheap = self.cheap.as_ref()?;
        self.index.candidates(request, room);
        room.intersect(cheap);
        self.choose(room, request, out);
        Some(out)
    }

    /// Writes one variant of each written rule among those at `places` to `out`: of the first that surely applies to
    /// the request and those before it that may apply, the one that allows the least.
    fn choose(&self, places: &Bits, request: &mut Fetched<'_>, out: &mut Vec<u16>) {
        out.clear();
        // The chosen variant, its index in `out`, and true if a variant that surely applies was found.
        let mut chosen: Option<(&Rule, usize, bool)> = None;
        // The last written rule examined, and the result of its condition.
        let mut matched: Option<(u16, Holds)> = None;
        for place in places.iter() {
            let Some(rule) = self.rules.get(place) else { continue };
            let before = chosen.filter(|(other, ..)| other.variant.group == rule.variant.group);
            let is_more_of_it = before.is_some_and(|(other, ..)| other.variant.number == rule.variant.number);
            if !is_more_of_it {
                if before.is_some_and(|(.., is_sure)| is_sure) {
                    continue;
                }
                // Variants of one rule share its condition.
                if matched.is_none_or(|(group, _)| group != rule.variant.group) {
                    matched = Some((rule.variant.group, rule.matches.holds(request)));
                }
                let holds = match matched {
                    Some((_, holds)) if holds.may() => rule.variant.holds(&rule.key, request),
                    _ => Holds::No,
                };
                let (is_less, begin) =
                    before.map_or((true, out.len()), |(other, begin, _)| (rule.allows_less_than(other), begin));
                match before {
                    _ if !holds.may() => continue,
                    Some((other, ..)) if !is_less => {
                        chosen = Some((other, begin, holds == Holds::Yes));
                        continue;
                    }
                    _ => {
                        out.truncate(begin);
                        chosen = Some((rule, begin, holds == Holds::Yes));
                    }
                }
            }
            out.extend(u16::try_from(place));
        }
    }

    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The earliest future end of a condition, in milliseconds since 1970.
    pub fn next_end_ms(&self) -> Option<u64> {
        self.conditions().iter().filter_map(|condition| condition.end.ms()).min()
    }

    /// Ends the conditions that expire by `now_ms` since 1970, for all holders of the rule set.
    pub fn end(&self, now_ms: u64) {
        self.conditions().iter().for_each(|condition| condition.end.pass(now_ms));
    }

    fn conditions(&self) -> Vec<&Condition> {
        let mut all: Vec<_> = self.allow.list.iter().chain(&self.deny.list).collect();
        for rule in &self.rules {
            all.push(&rule.matches);
            all.extend(rule.variant.tier.as_ref().map(|tier| &tier.when));
        }
        all
    }

    pub fn attributes(&self) -> &Attributes {
        &self.attributes
    }
}

impl Conditions {
    #[inline]
    fn any_holds(&self, request: &mut Fetched<'_>, room: &mut Bits, least: Holds) -> bool {
        !self.list.is_empty() && self.finds_one(request, room, least)
    }

    #[inline(never)]
    fn finds_one(&self, request: &mut Fetched<'_>, room: &mut Bits, least: Holds) -> bool {
        self.index.candidates(request, room);
        room.iter().any(|place| self.list.get(place).is_some_and(|condition| condition.holds(request) >= least))
    }
}

/// Places of the rules without an expensive condition in any variant; `None` if that is all of them, or none.
fn cheap(rules: &[Rule]) -> Option<Bits> {
    let is_dear = |rule: &&Rule| rule.conditions().any(Condition::is_dear);
    let dear: Vec<u16> = rules.iter().filter(is_dear).map(Rule::place).collect();
    let mut cheap = Bits::none(rules.len());
    for (place, rule) in rules.iter().enumerate() {
        if !dear.contains(&rule.place()) {
            cheap.add(place);
        }
    }
    (!dear.is_empty() && cheap.iter().next().is_some()).then_some(cheap)
}

/// The index that stands for no rule. Reports also refer to rules by 16 bits.
pub const NO_RULE: u16 = u16::MAX;

const _: () = assert!(RULES_MAX <= NO_RULE as usize);
