//! A condition, and the tests it consists of.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use super::addresses::AddressSet;
use super::cookie::cookies;
use super::duplicates::{Duplicates, of_header};
use super::holds::Holds;
use super::host::Hosts;
use super::path::PathMatch;
use super::query::{QUERY_BYTES_MAX, parameters};
use super::value::Test;
use crate::request::{AttributeId, Fetched};

/// A condition on a request: every part must hold. The default holds for every request.
///
/// An attribute that the host does not have passes only a test for its absence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    /// What must hold.
    pub all: Clause,
    /// One of these must hold as well; empty: nothing more is asked.
    pub any: Vec<Clause>,
    /// And this must not.
    pub not: Option<Box<Clause>>,
}

/// Tests on a request: all that are given must hold. Without any, it always holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Clause {
    /// One of these hosts.
    pub hosts: Option<Hosts>,
    /// One of these methods, as they are written in requests; empty: any.
    pub methods: Vec<String>,
    /// One of these paths, without the query; empty: any.
    pub paths: Vec<PathMatch>,
    /// Every one of these headers.
    pub headers: Vec<AttributeTest>,
    /// Every one of these cookies.
    pub cookies: Vec<CookieTest>,
    /// Every one of these query parameters.
    pub query: Vec<QueryTest>,
    /// Every one of these claims.
    pub claims: Vec<AttributeTest>,
    /// The client's address is in one of these networks.
    pub addresses: Option<AddressSet>,
    /// One of these routes; empty: any.
    pub routes: Vec<String>,
}

/// A test of a header's value, or a claim's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttributeTest {
    /// The header (the host joins several of one name) or the claim.
    pub attribute: AttributeId,
    /// Which of several headers counts.
    pub duplicates: Duplicates,
    /// What its value must be.
    pub test: Test,
}

/// A test of a cookie's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CookieTest {
    /// The header that cookies are in.
    pub header: AttributeId,
    /// The cookie.
    pub name: String,
    /// Which of several of this name counts.
    pub duplicates: Duplicates,
    /// What its value, undecoded, must be.
    pub test: Test,
}

/// A test of a query parameter's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryTest {
    /// The parameter.
    pub name: String,
    /// Which of several of this name counts.
    pub duplicates: Duplicates,
    /// What its value must be, percent-decoded.
    pub test: Test,
}

impl Condition {
    /// Whether the request meets the condition. Cheap tests come first.
    pub fn holds(&self, request: &mut Fetched<'_>) -> Holds {
        let any = |request: &mut Fetched<'_>| {
            if self.any.is_empty() {
                Holds::Yes
            } else {
                Holds::any(&self.any, |clause| clause.holds(request))
            }
        };
        let all = self.all.cheap_tests(request);
        if !all.may() {
            return all;
        }
        all.and(|| any(request))
            .and(|| self.not.as_ref().map_or(Holds::Yes, |clause| !clause.holds(request)))
            .and(|| self.all.dear_tests(request))
    }

    /// Whether any of its tests is expensive.
    pub fn is_dear(&self) -> bool {
        self.all.is_dear() || self.any.iter().chain(self.not.as_deref()).any(Clause::is_dear)
    }
}

impl Clause {
    /// Whether the request passes every test.
    fn holds(&self, request: &mut Fetched<'_>) -> Holds {
        self.cheap_tests(request).and(|| self.dear_tests(request))
    }

    #[inline(never)]
    fn cheap_tests(&self, request: &mut Fetched<'_>) -> Holds {
        Holds::of(self.method_holds(request))
            .and(|| self.path_holds(request))
            .and(|| {
                Holds::of(
                    self.host_holds(request) && self.route_holds(request) && self.address_holds(request),
                )
            })
            .and(|| self.values_hold(request, false))
    }

    /// Whether the request passes the expensive tests.
    fn dear_tests(&self, request: &mut Fetched<'_>) -> Holds {
        self.values_hold(request, true)
    }

    fn is_dear(&self) -> bool {
        self.headers.iter().chain(&self.claims).any(|test| test.test.is_dear())
            || self.cookies.iter().any(|test| test.test.is_dear())
            || self.query.iter().any(|test| test.test.is_dear())
    }

    fn method_holds(&self, request: &mut Fetched<'_>) -> bool {
        self.methods.is_empty()
            || request
                .get(AttributeId::METHOD)
                .is_some_and(|method| self.methods.iter().any(|m| m.as_bytes() == method))
    }

    fn path_holds(&self, request: &mut Fetched<'_>) -> Holds {
        if self.paths.is_empty() { Holds::Yes } else { Holds::any(&self.paths, |test| test.holds(request)) }
    }

    fn host_holds(&self, request: &mut Fetched<'_>) -> bool {
        self.hosts.as_ref().is_none_or(|hosts| request.host_backwards().is_some_and(|host| hosts.holds(host)))
    }

    fn route_holds(&self, request: &mut Fetched<'_>) -> bool {
        self.routes.is_empty()
            || request
                .get(AttributeId::ROUTE)
                .is_some_and(|route| self.routes.iter().any(|r| r.as_bytes() == route))
    }

    fn address_holds(&self, request: &mut Fetched<'_>) -> bool {
        self.addresses
            .as_ref()
            .is_none_or(|set| request.client_address().is_some_and(|address| set.contains(address)))
    }

    /// Whether the request passes the expensive tests of values if `is_dear`, else the cheap ones.
    #[inline(never)]
    fn values_hold(&self, request: &mut Fetched<'_>, is_dear: bool) -> Holds {
        Holds::all(&self.headers, |test| test.holds(request, is_dear))
            .and(|| Holds::all(&self.cookies, |test| test.holds(request, is_dear)))
            .and(|| Holds::all(&self.query, |test| test.holds(request, is_dear)))
            .and(|| Holds::all(&self.claims, |test| test.holds(request, is_dear)))
    }
}

// `is_dear` asks either for the expensive tests or for the cheap ones; a test of the other kind holds.
impl AttributeTest {
    fn holds(&self, request: &mut Fetched<'_>, is_dear: bool) -> Holds {
        let Self { attribute, duplicates, test } = self;
        if test.is_dear() != is_dear {
            return Holds::Yes;
        }
        match request.get(*attribute) {
            Some(value) if *duplicates != Duplicates::Unsaid => duplicates.holds(test, &mut of_header(value)),
            value => test.holds(value),
        }
    }
}

impl CookieTest {
    fn holds(&self, request: &mut Fetched<'_>, is_dear: bool) -> Holds {
        let Self { header, name, duplicates, test } = self;
        if test.is_dear() != is_dear {
            return Holds::Yes;
        }
        let header = request.get(*header).unwrap_or_default();
        duplicates.holds(test, &mut cookies(header, name.as_bytes()))
    }
}

impl QueryTest {
    fn holds(&self, request: &mut Fetched<'_>, is_dear: bool) -> Holds {
        let Self { name, duplicates, test } = self;
        if test.is_dear() != is_dear {
            return Holds::Yes;
        }
        let target = request.get(AttributeId::PATH).unwrap_or_default();
        duplicates.holds(test, &mut parameters(target, name, QUERY_BYTES_MAX))
    }
}
