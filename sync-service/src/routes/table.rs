//! Routes of the API: method, path, required token and query. The router, the authorization and the table in
//! docs/reference/http-api.md are made from [`ROUTES`].

use std::pin::Pin;

use hyper::{Method, StatusCode};
use url::form_urlencoded;

use super::{Answered, Call, Routes};
use crate::problem::Problem;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// A POP. Its token or certificate must cover the POP that the report names.
    Pop,
    /// A POP, or an operator with the role `read`.
    Reader,
    Read,
    /// An operator with the role `write`. For a dry run, `read` is enough.
    Write,
    Check,
    Limit,
}

type Handler = for<'a> fn(&'a Routes, Call<'a>) -> Pin<Box<dyn Future<Output = Answered> + Send + 'a>>;

pub struct Route {
    /// Method. `GET` includes `HEAD`.
    pub method: &'static str,
    /// Path, in which a word in capitals stands for any text.
    pub path: &'static str,
    pub needs: Needs,
    /// Parameters that the query may have, each at most once.
    pub query: &'static [&'static str],
    /// Summary for the page of the API.
    pub summary: &'static str,
    pub(super) handler: Handler,
}

macro_rules! routes {
    ($(
        $(#[doc = $summary:literal])+
        $method:literal $path:literal $needs:ident [$($query:literal),*] $handler:ident;
    )+) => {
        /// All routes. The first one that matches a path applies.
        pub const ROUTES: &[Route] = &[$(Route {
            method: $method,
            path: $path,
            needs: Needs::$needs,
            query: &[$($query),*],
            summary: concat!($($summary),+).trim_ascii(),
            handler: |routes, call| Box::pin(routes.$handler(call)),
        },)+];
    };
}

routes! {
    /// Charges a report. The answer is a reply with grants.
    "POST" "/v1/report" Pop [] report;
    /// Shows the rule set as JSON, with `ETag: "N"`.
    "GET" "/v1/rules" Reader ["version"] get_rules;
    /// Puts a rule set as a new version, or begins a canary: [fields](#changes).
    "PUT" "/v1/rules" Write ["dry_run", "pops", "region"] put_rules;
    /// Lists `versions`, at most 20: `version`, `name` (`r12`), `at_s`, `note`, `author`, `comment`.
    "GET" "/v1/rules/versions" Read [] versions;
    /// Compares two versions: `from`, `to`, `is_same`, `changes`, `lines`.
    "GET" "/v1/rules/diff" Read ["from", "to"] differences;
    /// Restores a kept version, `{"version": N}`, as a new one: `version`.
    "POST" "/v1/rules/rollback" Write [] roll_back;
    /// Shows the [canary](#canary), with `ETag: "ID"`.
    "GET" "/v1/rules/canary" Read [] get_canary;
    /// Ends the canary: `id`, `pops` or `region`, `withdrawn`.
    "DELETE" "/v1/rules/canary" Write [] withdraw;
    /// Makes the canary the rule set of all POPs: `version`.
    "POST" "/v1/rules/canary/promote" Write [] promote;
    /// The kill switch, `{"enforce": false}`: `version`, `offline`, `note`. If the store has no rule set, puts one
    /// that limits nobody, which `{"enforce": true}` does not switch on.
    "PUT" "/v1/enforcement" Write [] enforce;
    /// Shows the [POPs](#fleet).
    "GET" "/v1/fleet" Read [] fleet;
    /// Shows each rule's [decisions](#rates) per second.
    "GET" "/v1/rates" Read [] rates;
    /// Lists all [overrides](#overrides), and `lost`.
    "GET" "/v1/overrides" Read [] list_overrides;
    /// Lists bans.
    "GET" "/v1/bans" Read [] list_overrides;
    /// Puts [a ban](#overrides). The answer has the override, `offline` and `note`.
    "PUT" "/v1/bans" Write [] put_override;
    /// Lifts a ban by its `id`, address or network.
    "DELETE" "/v1/bans/WHICH" Write [] lift_override;
    /// Lists allows.
    "GET" "/v1/allows" Read [] list_overrides;
    /// Puts [an allow](#overrides), like a ban.
    "PUT" "/v1/allows" Write [] put_override;
    /// Lifts an allow, like a ban.
    "DELETE" "/v1/allows/WHICH" Write [] lift_override;
    /// Puts [another rate](#overrides) for a key, like a ban.
    "PUT" "/v1/keys/RULE/KEY/override" Write [] put_override;
    /// Restores the rule's rate for a key.
    "DELETE" "/v1/keys/RULE/KEY/override" Write [] lift_override;
    /// Lists the busiest [keys](#keys).
    "GET" "/v1/keys" Read ["rule", "prefix", "sort", "limit"] top_keys;
    /// Shows [the keys of a request](#keys), given as for [a check](gateway.md#a-check). Counts nothing.
    "POST" "/v1/keys" Read [] keys_of;
    /// Shows [one key](#keys).
    "GET" "/v1/keys/RULE/KEY" Read [] one_key;
    /// [Resets](#resets) a key.
    "DELETE" "/v1/keys/RULE/KEY" Write [] forget_key;
    /// Decides [a check, or each check in a list](gateway.md#over-http), by the fleet's rules.
    "POST" "/v1/check" Check [] check;
    /// Settles [reservations](gateway.md#over-http).
    "POST" "/v1/settle" Check [] settle;
    /// Decides [checks](gateway.md#over-http) by the limits in the request.
    "POST" "/ratelimit/check" Limit [] check_limits;
}

const OVERRIDE: &str = "/override";

impl Route {
    /// Parts of `path` in place of the words in capitals, or `None` if the path does not match. The last part may
    /// contain slashes. Parts at the end may be missing.
    fn parts<'a>(&self, path: &'a str) -> Option<Vec<&'a str>> {
        let Some(at) = self.path.find(|c: char| c.is_ascii_uppercase()) else {
            return (self.path == path).then(Vec::new);
        };
        let (begin, words) = self.path.split_at(at);
        let (words, end) = words.strip_suffix(OVERRIDE).map_or((words, ""), |words| (words, OVERRIDE));
        let count = words.split('/').count();
        let parts: Vec<_> = path.strip_prefix(begin)?.strip_suffix(end)?.splitn(count, '/').collect();
        (end.is_empty() || parts.len() == count).then_some(parts)
    }
}

/// Route of a request, with the parts of its path. Fails if there is no such path, or if it has other methods.
pub(super) fn find(method: &Method, path: &str) -> Result<(&'static Route, Vec<String>), Problem> {
    let first = ROUTES.iter().find(|route| route.parts(path).is_some()).ok_or_else(unknown)?;
    let at_path = || ROUTES.iter().filter(|route| route.path == first.path);
    let method = if *method == Method::HEAD { &Method::GET } else { method };
    if let Some(route) = at_path().find(|route| route.method == method.as_str()) {
        let parts = route.parts(path).unwrap_or_default();
        return Ok((route, parts.into_iter().map(str::to_owned).collect()));
    }
    let allowed = at_path().map(|route| if route.method == "GET" { "GET, HEAD" } else { route.method });
    Err(Problem::method_not_allowed(&allowed.collect::<Vec<_>>().join(", ")))
}

/// Problem for an unknown path.
pub(super) fn unknown() -> Problem {
    let detail = "weir-sync has no such path: is the address right? docs/reference/http-api.md lists all paths";
    Problem::new(StatusCode::NOT_FOUND, detail)
}

#[derive(Debug, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// Parses a query that may have the parameters `names`. Refuses others, such as a misspelled `dry_run`.
    pub(super) fn read(query: Option<&str>, names: &[&str]) -> Result<Self, Problem> {
        let Some(query) = query else { return Ok(Self::default()) };
        let pairs: Vec<_> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        let is_new = |at: usize| pairs[..at].iter().all(|(name, _)| *name != pairs[at].0);
        let fits = (0..pairs.len()).all(|at| names.contains(&pairs[at].0.as_str()) && is_new(at));
        if fits && !pairs.is_empty() {
            return Ok(Self(pairs));
        }
        let expected = match names {
            [] => "no query".to_owned(),
            names => format!("any of the parameters {}, each once", names.join(", ")),
        };
        Err(Problem::malformed(format!("expected {expected}, found `?{query}`: nothing was changed")))
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Value of the parameter `name`, parsed by `read`, if it is given. `expected` describes it in errors.
    pub(crate) fn read_as<T>(
        &self,
        name: &str,
        expected: &str,
        read: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, Problem> {
        let wrong = |text| Problem::malformed(format!("{name}: expected {expected}, found `{text}`"));
        self.get(name).map(|text| read(text).ok_or_else(|| wrong(text))).transpose()
    }
}

/// Parses digits only: no sign, no blanks.
pub(crate) fn number(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}
