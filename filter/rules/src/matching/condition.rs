//! Conditions, and the tests they consist of.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use super::addresses::AddressSet;
use super::holds::Holds;
use super::hosts::Hosts;
use super::path::PathMatch;
use super::value::ValueTest;
use crate::request::{AttributeId, Fetched, ValueOf};

/// A condition on a request: every part must hold. A missing attribute passes only a test for its absence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    pub all: Clause,
    /// At least one of these must hold as well, unless the list is empty.
    pub any: Vec<Clause>,
    pub not: Option<Box<Clause>>,
    /// Time from which the condition holds for no request.
    pub end: End,
}

/// End of a condition's validity. It can pass while the condition is shared.
#[derive(Debug)]
pub struct End(AtomicU64);

impl End {
    const NEVER_MS: u64 = u64::MAX;
    const PAST_MS: u64 = 0;

    pub const fn at(end_ms: u64) -> Self {
        Self(AtomicU64::new(end_ms))
    }

    /// The end in milliseconds since 1970; `None` if it has passed or never comes.
    pub fn ms(&self) -> Option<u64> {
        let end_ms = self.0.load(Ordering::Relaxed);
        (end_ms != Self::NEVER_MS && end_ms != Self::PAST_MS).then_some(end_ms)
    }

    pub fn is_never(&self) -> bool {
        self.0.load(Ordering::Relaxed) == Self::NEVER_MS
    }

    fn is_past(&self) -> bool {
        self.0.load(Ordering::Relaxed) == Self::PAST_MS
    }

    /// Marks the end as passed if it has come by `now_ms` since 1970.
    pub(crate) fn pass(&self, now_ms: u64) {
        if self.ms().is_some_and(|end_ms| end_ms <= now_ms) {
            self.0.store(Self::PAST_MS, Ordering::Relaxed);
        }
    }
}

impl Default for End {
    fn default() -> Self {
        Self::at(Self::NEVER_MS)
    }
}

impl Clone for End {
    fn clone(&self) -> Self {
        Self::at(self.0.load(Ordering::Relaxed))
    }
}

impl PartialEq for End {
    fn eq(&self, other: &Self) -> bool {
        self.0.load(Ordering::Relaxed) == other.0.load(Ordering::Relaxed)
    }
}

impl Eq for End {}

/// A conjunction of tests. Without tests it always holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Clause {
    /// Cheap tests, tried first.
    cheap: Vec<Test>,
    /// Regular expressions, tried last.
    dear: Vec<Test>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Test {
    /// The method is one of these, compared case-sensitively.
    Methods(Vec<String>),
    /// Like `Methods`, but one of these headers may override the method at the upstream.
    OverriddenMethods(Vec<String>, Vec<AttributeId>),
    /// The path, without its query, passes one of these.
    Paths(Vec<PathMatch>),
    Hosts(Hosts),
    Routes(Vec<String>),
    Addresses(AddressSet),
    /// A header, a cookie, a query parameter or a claim passes this test.
    Value(ValueOf, ValueTest),
}

impl Condition {
    pub fn holds(&self, request: &mut Fetched<'_>) -> Holds {
        if self.end.is_past() {
            return Holds::No;
        }
        let any = |request: &mut Fetched<'_>| {
            if self.any.is_empty() { Holds::Yes } else { Holds::any(&self.any, |clause| clause.holds(request)) }
        };
        all_hold(&self.all.cheap, request)
            .and(|| any(request))
            .and(|| self.not.as_ref().map_or(Holds::Yes, |clause| !clause.holds(request)))
            .and(|| all_hold(&self.all.dear, request))
    }

    pub(crate) fn is_open(&self) -> bool {
        let has_tests = self.all.tests().next().is_some() || !self.any.is_empty() || self.not.is_some();
        !has_tests && self.end.is_never()
    }

    /// True if any test is expensive.
    pub fn is_dear(&self) -> bool {
        let clauses = core::iter::once(&self.all).chain(&self.any).chain(self.not.as_deref());
        clauses.into_iter().any(|clause| !clause.dear.is_empty())
    }
}

impl Clause {
    pub(super) fn add(&mut self, test: Option<Test>) {
        let Some(test) = test else { return };
        if test.is_dear() { self.dear.push(test) } else { self.cheap.push(test) }
    }

    pub fn tests(&self) -> impl Iterator<Item = &Test> + Clone {
        self.cheap.iter().chain(&self.dear)
    }

    pub fn holds(&self, request: &mut Fetched<'_>) -> Holds {
        all_hold(&self.cheap, request).and(|| all_hold(&self.dear, request))
    }
}

#[inline]
fn all_hold(tests: &[Test], request: &mut Fetched<'_>) -> Holds {
    Holds::all(tests, |test| test.holds(request))
}

impl Test {
    pub fn holds(&self, request: &mut Fetched<'_>) -> Holds {
        let is_one_of = |texts: &[String], value: Option<&[u8]>| {
            Holds::of(value.is_some_and(|value| texts.iter().any(|text| text.as_bytes() == value)))
        };
        match self {
            Self::Methods(methods) => is_one_of(methods, request.get(AttributeId::METHOD)),
            Self::OverriddenMethods(methods, headers) => {
                let sent = is_one_of(methods, request.get(AttributeId::METHOD));
                let mut is_alike = |header: &AttributeId| {
                    let named = request.get(*header).into_iter().flat_map(|names| names.split(|&b| b == b','));
                    let mut named = named.map(|name| {
                        let is_this = |method: &String| method.as_bytes().eq_ignore_ascii_case(name.trim_ascii());
                        Holds::of(methods.iter().any(is_this))
                    });
                    named.all(|holds| holds == sent)
                };
                if headers.iter().all(&mut is_alike) { sent } else { Holds::Unsure }
            }
            Self::Paths(paths) => Holds::any(paths, |test| test.holds(request)),
            Self::Hosts(hosts) => request.host().map_or(Holds::No, |host| hosts.holds(host)),
            Self::Routes(routes) => is_one_of(routes, request.get(AttributeId::ROUTE)),
            Self::Addresses(set) => Holds::of(request.client_address().is_some_and(|address| set.contains(address))),
            Self::Value(value, test) => test.holds_for(value, request),
        }
    }

    fn is_dear(&self) -> bool {
        matches!(self, Self::Value(_, test) if test.is_dear())
    }
}
