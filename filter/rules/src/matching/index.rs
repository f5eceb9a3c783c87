//! Finds the few conditions, out of many, that a request can meet.
//!
//! Bit vectors per dimension (Lakshman and Stiliadis, "High-speed policy-based packet forwarding using efficient
//! multi-dimensional range matching", 1998): for the method, the path, the host and the route, a request's value
//! selects a set of conditions, those that ask for this value or for none at all. A condition can hold only if it
//! is in every such set. The sets are made when configuration arrives, so a request costs one search per dimension
//! and a few words of AND, and then a check of the conditions that are left.
//!
//! However many values share a set, it is kept once: the index takes one set, of a bit per condition, for each
//! combination of conditions that a value selects.

use alloc::collections::BinaryHeap;
use alloc::string::String;
use alloc::vec::Vec;

use super::bits::Bits;
use super::condition::{Clause, Condition, Test};
use super::hosts::Backwards;
use super::path::Written;
use crate::request::{AttributeId, Fetched, Folding};

/// An index over a list of conditions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Index {
    every: Bits,
    methods: Option<Dimension>,
    paths: Option<Dimension>,
    hosts: Option<Dimension>,
    routes: Option<Dimension>,
}

/// What the conditions ask of one attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Dimension {
    /// The conditions that ask nothing of it.
    open: Bits,
    /// Whole values, sorted, each with the number of its set.
    exact: Vec<(Vec<u8>, u32)>,
    /// Heads (prefixes) of values, sorted.
    heads: Vec<Head>,
    sets: Vec<Bits>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Head {
    text: Vec<u8>,
    set: u32,
    /// The longest other head that this one begins with.
    parent: Option<u32>,
}

impl Index {
    /// Indexes the conditions by their places.
    pub fn new<'a>(conditions: impl Iterator<Item = &'a Condition> + Clone) -> Self {
        let len = conditions.clone().count();
        let clauses: Vec<&Clause> = conditions.map(|condition| &condition.all).collect();
        let dimension = |add: fn(&Test, &mut Postings)| Postings::dimension(&clauses, add);
        Self {
            every: Bits::all(len),
            methods: dimension(|test, postings| {
                if let Test::Methods(methods) = test {
                    postings.texts(methods);
                }
            }),
            paths: dimension(|test, postings| {
                let Test::Paths(paths) = test else { return };
                for path in paths {
                    // By all that a path which passes is, or begins with, when all that can be is folded.
                    match path.written() {
                        Written::Exact(exact) => postings.exact(Folding::ALL.of(exact.as_bytes())),
                        Written::Prefix(head) => postings.head(Folding::ALL.of_head(head)),
                        Written::Glob(glob) => {
                            postings.head(Folding::ALL.of_head(glob.split('*').next().unwrap_or_default()));
                        }
                    }
                }
            }),
            hosts: dimension(|test, postings| {
                let Test::Hosts(hosts) = test else { return };
                for host in hosts.backwards() {
                    match host {
                        Backwards::Exact(name) => postings.exact(name.clone()),
                        Backwards::Suffix(suffix) => postings.head(suffix.clone()),
                    }
                }
            }),
            routes: dimension(|test, postings| {
                if let Test::Routes(routes) = test {
                    postings.texts(routes);
                }
            }),
        }
    }

    /// Writes to `out` the conditions that the request can meet: every one that holds or may, and few others.
    ///
    /// Fetches an attribute only if one of the conditions left needs it.
    pub fn candidates(&self, request: &mut Fetched<'_>, out: &mut Bits) {
        out.copy_from(&self.every);
        narrow(self.methods.as_ref(), out, |dimension, out| {
            dimension.meet(request.get(AttributeId::METHOD), out);
        });
        narrow(self.paths.as_ref(), out, |dimension, out| {
            dimension.meet(request.path(Folding::ALL), out);
        });
        narrow(self.hosts.as_ref(), out, |dimension, out| {
            dimension.meet(request.host_backwards(), out);
        });
        narrow(self.routes.as_ref(), out, |dimension, out| {
            dimension.meet(request.get(AttributeId::ROUTE), out);
        });
    }
}

fn narrow(dimension: Option<&Dimension>, out: &mut Bits, meet: impl FnOnce(&Dimension, &mut Bits)) {
    if let Some(dimension) = dimension.filter(|dimension| !out.is_within(&dimension.open)) {
        meet(dimension, out);
    }
}

impl Dimension {
    /// Keeps in `out` only the conditions that a request with this value can meet.
    fn meet(&self, value: Option<&[u8]>, out: &mut Bits) {
        let set = value.and_then(|value| self.set_of(value));
        out.intersect(set.and_then(|set| self.sets.get(set as usize)).unwrap_or(&self.open));
    }

    fn set_of(&self, value: &[u8]) -> Option<u32> {
        let exact = self.exact.binary_search_by(|(text, _)| text.as_slice().cmp(value)).ok();
        match exact.and_then(|at| self.exact.get(at)) {
            Some((_, set)) => Some(*set),
            None => self.head_at(value).and_then(|at| self.heads.get(at)).map(|head| head.set),
        }
    }

    /// The place of the longest head that the value begins with: the last head not sorted after the value, or
    /// one of that head's own heads.
    fn head_at(&self, value: &[u8]) -> Option<usize> {
        let mut at = self.heads.partition_point(|head| head.text.as_slice() <= value).checked_sub(1)?;
        loop {
            let head = self.heads.get(at)?;
            if value.starts_with(&head.text) {
                return Some(at);
            }
            at = head.parent? as usize;
        }
    }
}

/// Which condition asks for which value: what a dimension is built from.
struct Postings {
    place: usize,
    asks: bool,
    exact: Vec<(Vec<u8>, usize)>,
    heads: Vec<(Vec<u8>, usize)>,
}

impl Postings {
    /// Builds a dimension from the values that `add` finds in each clause's tests; `None` if there are none.
    fn dimension(clauses: &[&Clause], add: fn(&Test, &mut Self)) -> Option<Dimension> {
        let len = clauses.len();
        let mut postings = Self { place: 0, asks: false, exact: Vec::new(), heads: Vec::new() };
        let mut open = Bits::all(len);
        for (place, clause) in clauses.iter().enumerate() {
            (postings.place, postings.asks) = (place, false);
            for test in clause.tests() {
                add(test, &mut postings);
            }
            if postings.asks {
                open.remove(place);
            }
        }
        (!postings.exact.is_empty() || !postings.heads.is_empty()).then(|| postings.build(open, len))
    }

    fn texts(&mut self, values: &[String]) {
        for value in values {
            self.exact(value.as_bytes().to_vec());
        }
    }

    fn exact(&mut self, value: Vec<u8>) {
        self.asks = true;
        self.exact.push((value, self.place));
    }

    fn head(&mut self, value: Vec<u8>) {
        self.asks = true;
        self.heads.push((value, self.place));
    }

    fn build(self, open: Bits, len: usize) -> Dimension {
        let mut sets = Sets::default();
        let mut dimension = Dimension { open, exact: Vec::new(), heads: Vec::new(), sets: Vec::new() };
        let mut full: Vec<Bits> = Vec::new();
        for (text, mut bits) in by_value(self.heads, len) {
            // In order, so the heads that this one begins with are there already.
            let parent = dimension.head_at(&text);
            bits.unite(parent.and_then(|parent| full.get(parent)).unwrap_or(&dimension.open));
            let parent = parent.and_then(|parent| u32::try_from(parent).ok());
            dimension.heads.push(Head { text, set: sets.number(&bits), parent });
            full.push(bits);
        }
        for (text, mut bits) in by_value(self.exact, len) {
            let head = dimension.head_at(&text);
            bits.unite(head.and_then(|head| full.get(head)).unwrap_or(&dimension.open));
            dimension.exact.push((text, sets.number(&bits)));
        }
        dimension.sets = sets.list;
        dimension
    }
}

/// The values in order, each with the set of the places (out of `len`) that ask for it.
fn by_value(postings: Vec<(Vec<u8>, usize)>, len: usize) -> Vec<(Vec<u8>, Bits)> {
    let mut values: Vec<(Vec<u8>, Bits)> = Vec::new();
    // Sorting by a heap compiles to a fraction of the code that sorting a slice does.
    for (value, place) in BinaryHeap::from(postings).into_sorted_vec() {
        match values.last_mut() {
            Some((known, bits)) if *known == value => bits.add(place),
            _ => {
                let mut bits = Bits::none(len);
                bits.add(place);
                values.push((value, bits));
            }
        }
    }
    values
}

/// Distinct sets, numbered.
#[derive(Default)]
struct Sets {
    /// Sorted by set.
    numbers: Vec<(Bits, u32)>,
    list: Vec<Bits>,
}

impl Sets {
    fn number(&mut self, bits: &Bits) -> u32 {
        let at = match self.numbers.binary_search_by(|(known, _)| known.cmp(bits)) {
            Ok(at) => return self.numbers.get(at).map_or(u32::MAX, |(_, number)| *number),
            Err(at) => at,
        };
        let number = u32::try_from(self.list.len()).unwrap_or(u32::MAX);
        self.list.push(bits.clone());
        self.numbers.insert(at, (bits.clone(), number));
        number
    }
}
