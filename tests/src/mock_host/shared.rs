//! Shared data: one map for all workers of a proxy, with a compare-and-swap number for each value.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// What a write with the compare-and-swap number 0 means. The ABI does not say; hosts differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZeroCas {
    /// Writes whatever is there (Envoy).
    Overwrites,
    /// Writes only what is not there yet (nginx, MOSN).
    Inserts,
}

/// Shared data; a clone is the same map.
#[derive(Clone)]
pub struct SharedData(Rc<RefCell<Values>>);

struct Values {
    zero_cas: ZeroCas,
    map: BTreeMap<Vec<u8>, (Vec<u8>, u32)>,
    last_cas: u32,
    /// Workers so far.
    workers: u64,
}

impl SharedData {
    /// Without a value yet.
    pub fn new(zero_cas: ZeroCas) -> Self {
        Self(Rc::new(RefCell::new(Values { zero_cas, map: BTreeMap::new(), last_cas: 0, workers: 0 })))
    }

    /// Every key.
    pub fn keys(&self) -> Vec<Vec<u8>> {
        self.0.borrow().map.keys().cloned().collect()
    }

    /// The size of the value of `key`; none if there is none.
    pub fn size_of(&self, key: &[u8]) -> Option<usize> {
        self.0.borrow().map.get(key).map(|(value, _)| value.len())
    }

    /// Changes every value whose key begins with `prefix` behind the workers' backs: no number changes.
    pub fn tamper(&self, prefix: &[u8], mut change: impl FnMut(&mut Vec<u8>)) {
        let map = &mut self.0.borrow_mut().map;
        map.iter_mut().filter(|(key, _)| key.starts_with(prefix)).for_each(|(_, (value, _))| change(value));
    }

    /// Counts the proxy's workers, from 1.
    pub(super) fn next_worker(&self) -> u64 {
        let workers = &mut self.0.borrow_mut().workers;
        *workers += 1;
        *workers
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<(Vec<u8>, u32)> {
        self.0.borrow().map.get(key).cloned()
    }

    /// Whether the value was written; if not, the number is not the value's.
    pub(super) fn set(&self, key: Vec<u8>, value: Vec<u8>, cas: u32) -> bool {
        let mut inner = self.0.borrow_mut();
        let current = inner.map.get(&key).map(|(_, cas)| *cas);
        let fits = match (inner.zero_cas, current) {
            (ZeroCas::Overwrites, Some(current)) => cas == 0 || cas == current,
            (ZeroCas::Overwrites, None) => true,
            (ZeroCas::Inserts, current) => cas == current.unwrap_or(0),
        };
        if fits {
            inner.last_cas += 1;
            let cas = inner.last_cas;
            inner.map.insert(key, (value, cas));
        }
        fits
    }
}
