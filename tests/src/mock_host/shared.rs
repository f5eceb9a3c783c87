//! Shared data: one map for all workers of a proxy, with a compare-and-swap number for each value.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// The meaning of a write with the compare-and-swap number 0. The ABI leaves it open; hosts differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZeroCas {
    /// Writes whatever is there (Envoy).
    Overwrites,
    /// Writes only what is not there yet (MOSN).
    Inserts,
}

/// Shared data; a clone is the same map.
#[must_use]
#[derive(Clone)]
pub struct SharedData(Rc<RefCell<Values>>);

struct Values {
    zero_cas: ZeroCas,
    map: BTreeMap<Vec<u8>, Value>,
    last_cas: u32,
    /// Maximum number of keys; a write of another one is refused, as by proxy-wasm-host.
    room: usize,
    /// Workers so far.
    workers: u64,
}

struct Value {
    bytes: Vec<u8>,
    cas: u32,
}

/// The reason why a value was not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unwritten {
    /// The number is not the value's.
    Mismatch,
    /// There is no room for it.
    Full,
}

impl Default for SharedData {
    fn default() -> Self {
        Self::new(ZeroCas::Overwrites)
    }
}

impl SharedData {
    /// Without a value yet, and without an end.
    pub fn new(zero_cas: ZeroCas) -> Self {
        let (map, room) = (BTreeMap::new(), usize::MAX);
        Self(Rc::new(RefCell::new(Values { zero_cas, map, last_cas: 0, room, workers: 0 })))
    }

    /// The same with room for `keys` keys.
    pub fn with_room(self, keys: usize) -> Self {
        self.0.borrow_mut().room = keys;
        self
    }

    /// Every key.
    pub fn keys(&self) -> Vec<Vec<u8>> {
        self.0.borrow().map.keys().cloned().collect()
    }

    /// Changes every value whose key begins with `prefix` behind the workers' backs: no number changes.
    pub fn tamper(&self, prefix: &[u8], mut change: impl FnMut(&mut Vec<u8>)) {
        let map = &mut self.0.borrow_mut().map;
        let tampered = map.iter_mut().filter(|(key, _)| key.starts_with(prefix));
        tampered.for_each(|(_, value)| change(&mut value.bytes));
    }

    /// Writes a value, whatever is there; whether there was room for it.
    pub fn put(&self, key: &[u8], bytes: &[u8]) -> bool {
        let cas = self.get(key).map_or(0, |(_, cas)| cas);
        self.set(key.to_vec(), bytes.to_vec(), cas).is_ok()
    }

    /// Counts the proxy's workers, from 1.
    pub(super) fn next_worker(&self) -> u64 {
        let workers = &mut self.0.borrow_mut().workers;
        *workers += 1;
        *workers
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<(Vec<u8>, u32)> {
        let values = self.0.borrow();
        values.map.get(key).map(|value| (value.bytes.clone(), value.cas))
    }

    pub(super) fn set(&self, key: Vec<u8>, bytes: Vec<u8>, cas: u32) -> Result<(), Unwritten> {
        let mut values = self.0.borrow_mut();
        let current = values.map.get(&key).map(|value| value.cas);
        let fits = match (values.zero_cas, current) {
            (ZeroCas::Overwrites, Some(current)) => cas == 0 || cas == current,
            (ZeroCas::Overwrites, None) => true,
            (ZeroCas::Inserts, current) => cas == current.unwrap_or(0),
        };
        if !fits {
            return Err(Unwritten::Mismatch);
        }
        if current.is_none() && values.map.len() >= values.room {
            return Err(Unwritten::Full);
        }
        values.last_cas += 1;
        let value = Value { bytes, cas: values.last_cas };
        values.map.insert(key, value);
        Ok(())
    }
}
