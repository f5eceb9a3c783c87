//! The fields of a rule that decisions read, in one small struct: rules are large, and cold in the CPU's caches.
//! Also the current request's keys, each built and hashed once for all rules that count by it, and the rules'
//! previous quotas.

use alloc::vec::Vec;
use core::cell::Cell;
use core::net::IpAddr;

use crate::algorithms::{Bucket, deepest_ns};
use crate::table::slot::{Entry, LocalLimits, Placement, Slot, Tag};
use crate::table::{HashSecret, KeyHash};
use weir_protocol::quota::Quota;
use weir_protocol::refill_policy::RefillPolicy;
use weir_protocol::sharing::OnSyncLoss;
use weir_protocol::time::Time;
use weir_rules::algorithm::{Algorithm, Concurrency};
use weir_rules::cost::Cost;
use weir_rules::fleet_secret::{FleetSecret, PartsHash};
use weir_rules::key::{KeySpec, KeyValue, MissingPart};
use weir_rules::mode::Enforcement;
use weir_rules::request::Fetched;
use weir_rules::{Rule, RuleSet};

/// The fields of a rule needed to find and evaluate hits.
#[allow(clippy::struct_excessive_bools, reason = "each is a question that a decision asks")]
pub(crate) struct RuleTerms {
    pub(crate) key: KeyId,
    /// Salt that keeps the rule's buckets apart from those of other rules.
    pub(crate) salt: u64,
    pub(crate) overflow: Tag,
    pub(crate) enforcement: Enforcement,
    pub(crate) cost: Cost,
    pub(crate) algorithm: Algorithm,
    pub(crate) quota: Quota,
    /// Maximum number of tokens that a bucket holds before there is a grant for its key.
    pub(crate) local_burst: u32,
    pub(crate) is_strict: bool,
    /// Maximum number and duration of requests in flight, if the fleet counts them.
    pub(crate) in_flight: Option<Concurrency>,
    /// True if each request acquires its own turn in the fleet's queue.
    pub(crate) has_turns: bool,
    /// True if the budget refills only at the end of a window.
    pub(crate) is_calendar: bool,
    pub(crate) has_penalty: bool,
    /// True if requests take nothing until the response states their cost.
    pub(crate) is_charged_after: bool,
    /// True if requests reserve tokens of a bucket until the response states their cost.
    pub(crate) reserves: bool,
    /// True if the rule has no limit and only counts requests.
    pub(crate) is_unlimited: bool,
    pub(crate) on_sync_loss: OnSyncLoss,
    pub(crate) sends_status: bool,
    /// True if `RateLimit-Policy` names the rule.
    pub(crate) sends_policy: bool,
    /// True if a part of the key may be disclosed.
    pub(crate) is_clear: bool,
    pub(crate) retry_after_jitter_s: u32,
    pub(crate) changes: QuotaChanges,
}

impl RuleTerms {
    pub(crate) fn of(rules: &RuleSet, secret: &HashSecret, is_in_fleet: bool) -> (KeyCache, Vec<Self>) {
        let (keys, ids) = KeyCache::of(rules, secret);
        let of = |(rule, key)| Self::of_rule(rule, key, salt(rule, secret), is_in_fleet);
        let all = rules.rules().iter().zip(ids).map(of).collect();
        (keys, all)
    }

    pub(crate) fn follow(&mut self, other: &Self) {
        let is_bucket = |terms: &Self| matches!(terms.algorithm, Algorithm::TokenBucket(_)) && !terms.is_strict;
        if is_bucket(self) && is_bucket(other) {
            self.changes.follow(&other.changes);
        }
    }

    /// The POP's limits for a key without a grant, at the rate divisor `divisor`.
    #[inline]
    pub(crate) fn local_limits(&self, divisor: u32) -> LocalLimits {
        LocalLimits { quota: self.quota, local_burst: self.local_burst, divisor }
    }

    pub(crate) fn is_enforced(&self) -> bool {
        self.enforcement == Enforcement::default() && !self.is_unlimited
    }

    /// True if a host may reserve tokens under the rule.
    pub(crate) fn may_reserve(&self) -> bool {
        matches!(self.algorithm, Algorithm::TokenBucket(_)) && !self.is_strict
    }

    fn of_rule(rule: &Rule, key: KeyId, salt: u64, is_in_fleet: bool) -> Self {
        Self {
            key,
            salt,
            overflow: Tag::of_overflow(salt),
            enforcement: rule.enforcement,
            cost: rule.cost.clone(),
            algorithm: rule.algorithm,
            quota: rule.quota,
            local_burst: if is_in_fleet { rule.sharing.local_burst } else { rule.quota.burst() },
            is_strict: rule.sharing.strict,
            in_flight: rule.in_flight(),
            has_turns: rule.sharing.refill_policy == RefillPolicy::Queue,
            is_calendar: rule.sharing.refill_policy.is_window(),
            has_penalty: rule.penalty.is_some(),
            is_charged_after: rule.after.is_some() && !rule.reserves,
            reserves: rule.reserves && rule.is_shared() && !rule.sharing.strict,
            is_unlimited: rule.variant.is_unlimited(),
            on_sync_loss: rule.on_sync_loss,
            sends_status: rule.response.sends_status(),
            sends_policy: rule.response.headers.ratelimit,
            is_clear: rule.key.is_clear(),
            retry_after_jitter_s: rule.response.retry_after_jitter_s,
            changes: QuotaChanges::none(salt, rule.quota),
        }
    }
}

/// Salt for tags: keeps the buckets of one key under several rules apart.
fn salt(rule: &Rule, secret: &HashSecret) -> u64 {
    let is_cell = !matches!(rule.algorithm, Algorithm::TokenBucket(_));
    Tag::salt(secret.hash(&rule.identity()).tag, is_cell)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyId(u16);

impl KeyId {
    /// The key of requests that lack a part.
    pub(crate) const LACKING: Self = Self(0);
}

pub(crate) struct KeyCache {
    list: Vec<CachedKey>,
    request: u64,
}

struct CachedKey {
    /// True if the key is the client's address alone. It then stays valid while the address is the same.
    is_address: bool,
    /// The address that the value was built from, if it is an address key.
    address: Option<IpAddr>,
    /// Number of the last request that the value is valid for; starts at 1.
    request: u64,
    /// Hash state before the key's parts; built on first use.
    begun: Option<PartsHash>,
    value: KeyValue,
    hash: KeyHash,
}

impl KeyCache {
    /// The distinct keys of `rules`, and the key of each rule, in rule order.
    pub(crate) fn of(rules: &RuleSet, secret: &HashSecret) -> (Self, Vec<KeyId>) {
        let mut specs: Vec<&KeySpec> = Vec::new();
        let mut ids = Vec::with_capacity(rules.rules().len());
        for rule in rules.rules() {
            let known = specs.iter().position(|spec| **spec == rule.key);
            if known.is_none() {
                specs.push(&rule.key);
            }
            let place = known.map_or(specs.len(), |place| place + 1);
            // There are no more keys than rules, and fewer than 2^16 rules.
            ids.push(u16::try_from(place).map_or(KeyId::LACKING, KeyId));
        }
        let lacking = KeyValue::LACKING;
        let hash = secret.hash(lacking.as_bytes());
        let known = |is_address| CachedKey { is_address, address: None, request: 0, begun: None, value: lacking, hash };
        let of_specs = specs.iter().map(|spec| known(spec.is_address()));
        (Self { list: core::iter::once(known(false)).chain(of_specs).collect(), request: 0 }, ids)
    }

    pub(crate) fn next_request(&mut self) {
        self.request = self.request.wrapping_add(1);
    }

    /// The hash of the request's key. Fails with the part that the request lacks.
    #[inline]
    pub(crate) fn hash(
        &mut self,
        id: KeyId,
        spec: &KeySpec,
        request: &mut Fetched<'_>,
        secrets: (&FleetSecret, &HashSecret),
    ) -> Result<KeyHash, MissingPart> {
        let Some(known) = self.list.get_mut(usize::from(id.0)) else { return Err(MissingPart::Other) };
        if known.request != self.request {
            let address = if known.is_address { request.client_address() } else { None };
            if address.is_none() || known.address != address {
                known.make(spec, request, secrets)?;
                known.address = address;
            }
            known.request = self.request;
        }
        Ok(known.hash)
    }

    pub(crate) fn hash_of_lacking(&self) -> KeyHash {
        self.list.first().map_or(KeyHash { place: 0, tag: 0 }, |known| known.hash)
    }

    /// The last value built.
    pub(crate) fn value(&self, id: KeyId) -> &KeyValue {
        self.list.get(usize::from(id.0)).map_or(&KeyValue::LACKING, |known| &known.value)
    }
}

impl CachedKey {
    #[inline(never)]
    fn make(
        &mut self,
        spec: &KeySpec,
        request: &mut Fetched<'_>,
        (fleet_secret, secret): (&FleetSecret, &HashSecret),
    ) -> Result<(), MissingPart> {
        // Cleared first: if a part is missing, the cached value belongs to no request.
        (self.address, self.request) = (None, 0);
        let begun = self.begun.get_or_insert_with(|| spec.begin(fleet_secret));
        self.value = spec.value_of(request, begun)?;
        self.hash = secret.hash(self.value.as_bytes());
        Ok(())
    }
}

// Changes of a rule's quota. A client keeps the remaining part of its burst, and its grant.

/// Maximum number of quota changes that a client's level survives if the client makes no request in between.
const CHANGES_MAX: usize = 4;

/// A token bucket's quota, and the previous quotas of its rule.
pub(crate) struct QuotaChanges {
    salt: u64,
    quota: Quota,
    /// The rule's salt and quota before each change, the latest first.
    before: Vec<Before>,
    /// Number of changes since the rule last had this quota; 0 if it never had. Its buckets from then may still exist.
    returned_after: usize,
}

#[derive(Clone)]
struct Before {
    salt: u64,
    quota: Quota,
    /// Time of the first request since the change; zero until then. What a bucket lacked then refills at the new rate.
    at: Cell<Time>,
    /// True once every bucket has refilled what it lacked before the change.
    is_over: bool,
    /// [`QuotaChanges::returned_after`] before the change.
    returned_after: usize,
}

impl Before {
    fn since(&self, now: Time) -> Time {
        if self.at.get() == Time::ZERO {
            self.at.set(now);
        }
        self.at.get()
    }

    /// Time that `ns` of refill before the change take under `quota`: the same fraction of a burst. For a larger burst,
    /// debt beyond one burst keeps its number of tokens, as in the fleet's budget. Never more than a bucket may lack.
    fn scaled_ns(&self, ns: u64, quota: &Quota) -> u64 {
        let scaled = |ns: u64, to: u64, from: u64| u128::from(ns) * u128::from(to) / u128::from(from.max(1));
        let burst_ns = if quota.burst() > self.quota.burst() { ns.min(self.quota.fill_ns()) } else { ns };
        let of_burst = scaled(burst_ns, quota.fill_ns(), self.quota.fill_ns());
        let of_debt = scaled(ns - burst_ns, quota.token_ns(), self.quota.token_ns());
        u64::try_from(of_burst + of_debt).unwrap_or(u64::MAX).min(deepest_ns(quota))
    }

    /// A bucket under `quota` that lacks what `bucket` lacked at the change.
    fn carried(&self, bucket: Bucket, quota: &Quota, now: Time) -> Bucket {
        let at = self.since(now);
        Bucket::full_at(at + self.scaled_ns(bucket.fill_ns(at), quota))
    }
}

impl QuotaChanges {
    fn none(salt: u64, quota: Quota) -> Self {
        Self { salt, quota, before: Vec::new(), returned_after: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.before.is_empty()
    }

    fn follow(&mut self, other: &Self) {
        self.before.clone_from(&other.before);
        if self.salt == other.salt {
            self.returned_after = other.returned_after;
            return;
        }
        let Self { salt, quota, returned_after, .. } = *other;
        self.before.insert(0, Before { salt, quota, at: Cell::new(Time::ZERO), is_over: false, returned_after });
        if let Some(same) = self.before.iter().position(|before| before.salt == self.salt) {
            self.before.remove(same);
            self.returned_after = same;
            for (at, before) in self.before.iter_mut().enumerate().take(same) {
                before.returned_after -= usize::from(at + before.returned_after >= same);
            }
        }
        self.before.truncate(CHANGES_MAX);
    }

    /// Marks a change as over once any bucket from before it would be full.
    pub(super) fn end(&mut self, now: Time) {
        for before in &mut self.before {
            let longest_ns = before.scaled_ns(deepest_ns(&before.quota), &self.quota);
            before.is_over |= now.nanos_since(before.since(now)) >= longest_ns;
        }
    }

    /// The tags that the key `tag` had before each change.
    pub(crate) fn tags_before(&self, tag: Tag) -> impl Iterator<Item = Tag> {
        self.before.iter().map(move |before| tag.under(self.salt, before.salt))
    }

    /// True if a key's bucket may date from before a change that is not over yet.
    pub(super) fn have_returned(&self) -> bool {
        self.before.iter().take(self.returned_after).any(|before| !before.is_over)
    }

    /// Charges a key for the tokens that its bucket lacked when the quota changed. A key without a grant keeps its
    /// previous one, for the same fraction of the rate, until the next.
    pub(super) fn carry_over(&self, placement: &mut Placement, slot: &Slot, now: Time) {
        let mut changes = if placement.has_place() { self.returned_after } else { self.before.len() };
        let mut is_found = placement.has_place();
        for (at, before) in self.before.iter().enumerate().filter(|(_, before)| !before.is_over) {
            if at >= changes {
                break;
            }
            let known = slot.find_or_new(placement.tag.under(self.salt, before.salt), now);
            let bucket = if known.has_place() { known.entry.bucket() } else { known.owed };
            placement.owe(before.carried(bucket, &self.quota, now));
            if !known.has_place() {
                continue;
            }
            // An entry is not changed under other quotas, so it may be older than the quotas between.
            changes = changes.min(at + 1 + before.returned_after);
            // An existing entry keeps its counts.
            if let (false, Entry::Watched(watched)) = (is_found, known.entry)
                && let Some(going_on) = watched.under(&self.quota, &before.quota, placement.entry.bucket(), now)
            {
                placement.entry = Entry::Watched(going_on);
            }
            is_found = true;
        }
    }
}
