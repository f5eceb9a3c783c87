//! The keys of the current request. Each is built and hashed once, even if several rules count by it.

use alloc::vec::Vec;
use core::net::IpAddr;

use crate::key::{HashSecret, KeyHash};
use weir_rules::RuleSet;
use weir_rules::fleet_secret::{FleetSecret, PartsHash};
use weir_rules::key::{KeySpec, KeyValue, MissingPart};
use weir_rules::request::Fetched;

/// Index of one of the keys that a rule set counts by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyId(u16);

impl KeyId {
    /// The key of requests that lack a part.
    pub(crate) const LACKING: Self = Self(0);
}

/// A cache of the keys' values, each from the last request that needed it.
pub(crate) struct KeyCache {
    list: Vec<CachedKey>,
    /// Number of the current request.
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
        let known = |is_address| CachedKey {
            is_address,
            address: None,
            request: 0,
            begun: None,
            value: lacking,
            hash,
        };
        let of_specs = specs.iter().map(|spec| known(spec.is_address()));
        (Self { list: core::iter::once(known(false)).chain(of_specs).collect(), request: 0 }, ids)
    }

    /// Starts the next request.
    pub(crate) fn next_request(&mut self) {
        self.request = self.request.wrapping_add(1);
    }

    /// Drops all values, because a secret has changed.
    pub(crate) fn forget(&mut self) {
        self.list.iter_mut().for_each(|known| (known.address, known.request, known.begun) = (None, 0, None));
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

    /// The hash of [`KeyId::LACKING`].
    pub(crate) fn hash_of_lacking(&self) -> KeyHash {
        self.list.first().map_or(KeyHash { place: 0, tag: 0 }, |known| known.hash)
    }

    /// The value that was built last.
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
