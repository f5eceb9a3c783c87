//! Which requests a rule counts.
//!
//! A [`Condition`] is compiled when configuration arrives; [`Index`] finds the few of many conditions that a
//! request can meet at all.

mod addresses;
mod bits;
mod cookie;
mod glob;
mod host;
mod index;
mod path;
mod query;
#[cfg(test)]
mod tests;
mod value;

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

pub use addresses::{AddressSet, AddressSetError, Range};
pub use bits::Bits;
pub(crate) use cookie::cookie;
pub use glob::{GLOB_BYTES_MAX, GLOB_PATH_BYTES_MAX, Glob};
pub(crate) use host::host_of;
pub use host::{HOST_BYTES_MAX, Hosts};
pub use index::Index;
pub use path::PathMatch;
pub(crate) use path::path_of;
pub use query::QUERY_BYTES_MAX;
pub(crate) use query::parameter;
pub use value::{PATTERN_BYTES_MAX, Pattern, REGEX_VALUE_BYTES_MAX, Test, Texts};

use crate::request::{AttributeId, Fetched};

/// A condition on a request: every part must hold. The default holds for every request.
///
/// An attribute that the host does not have meets no test but that of its absence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    /// What must hold.
    pub all: Clause,
    /// One of these must hold as well; empty: nothing more is asked.
    pub any: Vec<Clause>,
    /// And this must not.
    pub not: Option<Box<Clause>>,
}

/// Tests on a request; all that are given must hold, and none given holds always.
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
    /// The header, of which the host joins several of one name, or the claim.
    pub attribute: AttributeId,
    /// What its value must be.
    pub test: Test,
}

/// A test of a cookie's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CookieTest {
    /// The header that cookies are in.
    pub header: AttributeId,
    /// The cookie; the first of this name counts.
    pub name: String,
    /// What its value must be, as it is.
    pub test: Test,
}

/// A test of a query parameter's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryTest {
    /// The parameter; the first of this name counts.
    pub name: String,
    /// What its value must be, percent-decoded.
    pub test: Test,
}

impl Condition {
    /// Whether the request meets the condition.
    pub fn holds(&self, request: &mut Fetched<'_>) -> bool {
        self.all.holds(request)
            && (self.any.is_empty() || self.any.iter().any(|clause| clause.holds(request)))
            && !self.not.as_ref().is_some_and(|clause| clause.holds(request))
    }
}

impl Clause {
    /// Whether the request passes every test.
    fn holds(&self, request: &mut Fetched<'_>) -> bool {
        self.method_holds(request)
            && self.path_holds(request)
            && self.host_holds(request)
            && self.route_holds(request)
            && self.address_holds(request)
            && attributes_hold(&self.headers, request)
            && self.cookies_hold(request)
            && self.query_holds(request)
            && attributes_hold(&self.claims, request)
    }

    fn method_holds(&self, request: &mut Fetched<'_>) -> bool {
        self.methods.is_empty()
            || request
                .get(AttributeId::METHOD)
                .is_some_and(|method| self.methods.iter().any(|m| m.as_bytes() == method))
    }

    fn path_holds(&self, request: &mut Fetched<'_>) -> bool {
        self.paths.is_empty()
            || request.get(AttributeId::PATH).is_some_and(|target| {
                let path = path_of(target);
                self.paths.iter().any(|test| test.holds(path))
            })
    }

    fn host_holds(&self, request: &mut Fetched<'_>) -> bool {
        self.hosts.as_ref().is_none_or(|hosts| {
            request.get(AttributeId::AUTHORITY).is_some_and(|authority| hosts.holds(host_of(authority)))
        })
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

    fn cookies_hold(&self, request: &mut Fetched<'_>) -> bool {
        self.cookies.iter().all(|CookieTest { header, name, test }| {
            test.holds(request.get(*header).and_then(|header| cookie(header, name.as_bytes())))
        })
    }

    fn query_holds(&self, request: &mut Fetched<'_>) -> bool {
        self.query.iter().all(|query| {
            let target = request.get(AttributeId::PATH).unwrap_or_default();
            query.test.holds(parameter(target, &query.name).as_deref())
        })
    }
}

fn attributes_hold(tests: &[AttributeTest], request: &mut Fetched<'_>) -> bool {
    tests.iter().all(|AttributeTest { attribute, test }| test.holds(request.get(*attribute)))
}
