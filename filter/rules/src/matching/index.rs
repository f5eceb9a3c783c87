//! Index that finds the few conditions, out of many, that a request can meet.
//!
//! Bit vectors per dimension (Lakshman and Stiliadis, "High-speed policy-based packet forwarding using efficient
//! multi-dimensional range matching", 1998). The dimensions are the method, the path, the host, the route, and each
//! header or claim that many conditions compare with whole values. In each, a request's value selects the conditions
//! that require this value or none. A condition can hold only if every dimension selects it. Each distinct set of
//! conditions, one bit for each, is kept once.

use alloc::vec::Vec;

use super::condition::{Clause, Condition, Test};
use super::hosts::is_suffix;
use super::path::{PathMatch, Written};
use super::value::{Texts, ValueTest};
use crate::request::{AttributeId, Duplicates, Fetched, Folding, HostRead, Lines, Source, ValueOf};
use crate::sorting::sorted;

/// Minimum number of values that conditions compare a header or claim with, for it to become a dimension.
const COMPARED_MIN: usize = 8;
const TEXTS_MAX: usize = 100;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Index {
    every: Bits,
    dimensions: Vec<(Of, Dimension)>,
}

/// The value that a dimension searches by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    Attribute(AttributeId),
    Path,
    Host,
}

/// One dimension: the conditions that each value selects.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Dimension {
    /// The conditions that require no value in this dimension.
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
    /// The longest other head that is a prefix of this one.
    parent: Option<u32>,
}

impl Index {
    pub fn new<'a>(conditions: impl Iterator<Item = &'a Condition> + Clone) -> Self {
        let clauses: Vec<&Clause> = conditions.map(|condition| &condition.all).collect();
        let mut index = Self { every: Bits::all(clauses.len()), dimensions: Vec::new() };
        for of in [Of::Attribute(AttributeId::METHOD), Of::Path, Of::Host, Of::Attribute(AttributeId::ROUTE)] {
            index.add(of, &clauses, 1);
        }
        for clause in &clauses {
            for (id, _) in clause.tests().filter_map(compared) {
                index.add(Of::Attribute(id), &clauses, COMPARED_MIN);
            }
        }
        index
    }

    /// Adds a dimension unless it exists already or conditions require fewer than `values_min` values in it.
    #[inline(never)]
    fn add(&mut self, of: Of, clauses: &[&Clause], values_min: usize) {
        if !self.dimensions.iter().any(|(known, _)| *known == of) {
            self.dimensions.extend(Dimension::of(clauses, of, values_min).map(|made| (of, made)));
        }
    }

    /// Writes to `out` each condition that may hold, and few others. Fetches only attributes that may exclude any.
    pub fn candidates(&self, request: &mut Fetched<'_>, out: &mut Bits) {
        out.0.clone_from(&self.every.0);
        for (of, dimension) in &self.dimensions {
            if out.is_within(&dimension.open) {
                continue;
            }
            // If the whole value does not decide the tests, their conditions must be evaluated.
            let value = match of {
                Of::Attribute(id) => match request.lines(*id) {
                    Some(lines) if lines.are_several() || lines.may_be_joined() => continue,
                    lines => lines.map(Lines::joined),
                },
                Of::Path => match request.folded_path(Folding::ALL) {
                    Some((_, true)) => continue,
                    path => path.map(|(path, _)| path),
                },
                Of::Host => match request.host().map(HostRead::backwards) {
                    Some(None) => continue,
                    host => host.flatten(),
                },
            };
            dimension.find_matches(value, out);
        }
    }
}

fn compared(test: &Test) -> Option<(AttributeId, &Texts)> {
    match test {
        Test::Value(ValueOf { source: Source::Attribute(id), duplicates: Duplicates::Unset }, ValueTest::In(texts))
            if texts.iter().nth(TEXTS_MAX).is_none() =>
        {
            Some((*id, texts))
        }
        _ => None,
    }
}

impl Dimension {
    /// Builds a dimension from the values that clauses require; `None` if there are fewer than `values_min`.
    fn of(clauses: &[&Clause], of: Of, values_min: usize) -> Option<Self> {
        let len = clauses.len();
        let (mut open, mut exact, mut heads) = (Bits::all(len), Vec::new(), Vec::new());
        for (place, clause) in clauses.iter().enumerate() {
            for asked in clause.tests().flat_map(|test| asked(test, of)) {
                open.remove(place);
                match asked {
                    Asked::Exact(value) => exact.push((value, place)),
                    Asked::Head(value) => heads.push((value, place)),
                }
            }
        }
        if exact.len() + heads.len() < values_min {
            return None;
        }
        let (mut sets, mut full) = (Sets::default(), Vec::<Bits>::new());
        let mut dimension = Self { open, exact: Vec::new(), heads: Vec::new(), sets: Vec::new() };
        for (text, mut bits) in by_value(heads, len) {
            // In sorted order, so all heads that are prefixes of this one have been added.
            let parent = dimension.head_at(&text);
            bits.unite(parent.and_then(|parent| full.get(parent)).unwrap_or(&dimension.open));
            let parent = parent.and_then(|parent| u32::try_from(parent).ok());
            dimension.heads.push(Head { text, set: sets.number(&bits), parent });
            full.push(bits);
        }
        for (text, mut bits) in by_value(exact, len) {
            let head = dimension.head_at(&text);
            bits.unite(head.and_then(|head| full.get(head)).unwrap_or(&dimension.open));
            dimension.exact.push((text, sets.number(&bits)));
        }
        dimension.sets = sets.list;
        Some(dimension)
    }

    /// Keeps only the conditions in `out` that a request with this value can meet.
    fn find_matches(&self, value: Option<&[u8]>, out: &mut Bits) {
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

    /// Index of the longest head of `value`: the last head not sorted after it, or an ancestor of that head.
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

/// A value that a test requires in one dimension: a whole value, or a head.
enum Asked {
    Exact(Vec<u8>),
    Head(Vec<u8>),
}

fn asked(test: &Test, of: Of) -> Vec<Asked> {
    let exact = |text: &str| Asked::Exact(text.as_bytes().to_vec());
    match (test, of) {
        (Test::Methods(texts), Of::Attribute(AttributeId::METHOD))
        | (Test::Routes(texts), Of::Attribute(AttributeId::ROUTE)) => texts.iter().map(|text| exact(text)).collect(),
        (Test::Value(..), Of::Attribute(id)) => {
            let compared = compared(test).filter(|(other, _)| *other == id);
            compared.into_iter().flat_map(|(_, texts)| texts.iter().map(exact)).collect()
        }
        // With all differences folded away, a path that passes equals this text or begins with it.
        (Test::Paths(paths), Of::Path) => {
            let of_path = |path: &PathMatch| match path.written() {
                Written::Exact(exact) => Asked::Exact(Folding::ALL.of(exact.as_bytes())),
                Written::Prefix(head) => Asked::Head(Folding::ALL.of_head(head)),
                Written::Glob(glob) => Asked::Head(Folding::ALL.of_head(glob.split('*').next().unwrap_or_default())),
            };
            paths.iter().map(of_path).collect()
        }
        (Test::Hosts(hosts), Of::Host) => {
            let of_host =
                |name: &Vec<u8>| if is_suffix(name) { Asked::Head(name.clone()) } else { Asked::Exact(name.clone()) };
            hosts.backwards.iter().map(of_host).collect()
        }
        _ => Vec::new(),
    }
}

/// The distinct values in order, each with the set of places (out of `len`) that require it.
fn by_value(postings: Vec<(Vec<u8>, usize)>, len: usize) -> Vec<(Vec<u8>, Bits)> {
    let mut values: Vec<(Vec<u8>, Bits)> = Vec::new();
    for (value, place) in sorted(postings) {
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

#[derive(Default)]
struct Sets {
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

/// A set of places in a list, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bits(Vec<u64>);

impl Bits {
    /// The empty set, with room for `len` places.
    pub(crate) fn none(len: usize) -> Self {
        Self(alloc::vec![0; len.div_ceil(64)])
    }

    fn all(len: usize) -> Self {
        let mut bits = Self::none(len);
        for place in 0..len {
            bits.add(place);
        }
        bits
    }

    pub(crate) fn add(&mut self, place: usize) {
        if let Some(word) = self.0.get_mut(place / 64) {
            *word |= 1 << (place % 64);
        }
    }

    fn remove(&mut self, place: usize) {
        if let Some(word) = self.0.get_mut(place / 64) {
            *word &= !(1 << (place % 64));
        }
    }

    fn unite(&mut self, other: &Self) {
        for (word, other) in self.0.iter_mut().zip(&other.0) {
            *word |= other;
        }
    }

    pub(crate) fn intersect(&mut self, other: &Self) {
        for (word, other) in self.0.iter_mut().zip(&other.0) {
            *word &= other;
        }
    }

    fn is_within(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).all(|(word, other)| word & !other == 0)
    }

    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        (0..).step_by(64).zip(&self.0).flat_map(|(base, &word)| {
            let ones = |left: &u64| Some(left & left.wrapping_sub(1));
            core::iter::successors(Some(word), ones)
                .take_while(|left| *left != 0)
                .map(move |left| base + left.trailing_zeros() as usize)
        })
    }
}
