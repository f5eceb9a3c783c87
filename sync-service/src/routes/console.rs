//! The fleet's POPs, and the console: the page at `/`, and its stream of events. The page itself contains no secrets
//! and needs no token; its requests do.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use hyper::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use hyper::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::join;
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};
use tokio::time::Interval;
use weir_budget::pops::PopStatus;
use weir_limiter::sync::connectivity::{FALLBACK_NS, STALE_NS};
use weir_protocol::time::SECOND_NS;
use weir_store::fleet::Seen;

use super::rules::canary;
use super::{Answered, Call, HttpRequest, JSON, Routes};
use crate::access::bearer;
use crate::access::credentials::Role;
use crate::keys::page::{parts, signed_parts};
use crate::problem::{Problem, json as response, text};
use crate::rules::follow::FleetState;
use crate::ticks;

/// Interval at which a stream sends the state, which is computed once for all streams.
const INTERVAL: Duration = Duration::from_secs(1);
/// Tolerance for the age of a state before it is computed again, because ticks may come early.
const SLACK: Duration = Duration::from_millis(100);
/// Maximum number of POPs in an event; those that do not run the current version, or are silent, come first.
const POPS_MAX: usize = 200;

type File = (&'static str, &'static str, &'static str);

macro_rules! files {
    ($($path:literal $type:literal $file:literal,)*) => {
        [$(($path, concat!("text/", $type, "; charset=utf-8"), include_str!(concat!("../../console/", $file))),)*]
    };
}

const FILES: [File; 17] = files! {
    "/" "html" "index.html",
    "/console.css" "css" "console.css",
    "/actions.js" "javascript" "actions.js",
    "/api.js" "javascript" "api.js",
    "/canary.js" "javascript" "canary.js",
    "/console.js" "javascript" "console.js",
    "/dom.js" "javascript" "dom.js",
    "/explain.js" "javascript" "explain.js",
    "/key.js" "javascript" "key.js",
    "/keys.js" "javascript" "keys.js",
    "/overrides.js" "javascript" "overrides.js",
    "/plot.js" "javascript" "plot.js",
    "/question.js" "javascript" "question.js",
    "/status.js" "javascript" "status.js",
    "/versions.js" "javascript" "versions.js",
    "/uplot.css" "css" "uplot/uPlot.min.css",
    "/uplot.js" "javascript" "uplot/uPlot.iife.min.js",
};
/// Content security policy: the page may only run, show and request content from this server.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types \
    'none'";

pub(super) const LIVE_PATH: &str = "/v1/live";
const LISTENERS_MAX: usize = 32;

pub(crate) type EventStream = UnsyncBoxBody<Bytes, Infallible>;

#[derive(Debug)]
pub(crate) struct Live {
    places: Arc<Semaphore>,
    /// Last event and its time. Locked while the next one is computed, once for all streams.
    known: Mutex<Option<(Instant, Bytes)>>,
}

impl Default for Live {
    fn default() -> Self {
        Self { places: Arc::new(Semaphore::new(LISTENERS_MAX)), known: Mutex::default() }
    }
}

struct Listener {
    routes: Arc<Routes>,
    headers: HeaderMap,
    ticks: Interval,
    _place: OwnedSemaphorePermit,
}

impl Routes {
    /// Serves a file of the page. Returns `None` if there is none at this path.
    pub(super) fn file(request: &HttpRequest) -> Option<Answered> {
        let (_, media_type, content) = FILES.iter().find(|(path, ..)| *path == request.uri().path())?;
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return Some(Err(Problem::method_not_allowed("GET, HEAD")));
        }
        let mut response = text(StatusCode::OK, media_type, *content);
        for (name, value) in [
            (CONTENT_SECURITY_POLICY, POLICY),
            (X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (REFERRER_POLICY, "no-referrer"),
            (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        ] {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        Some(Ok(response))
    }

    /// Streams the state for as long as the token is valid and this weir-sync does not drain.
    pub(super) fn live(self: &Arc<Self>, request: &HttpRequest) -> Result<hyper::Response<EventStream>, Problem> {
        if request.method() != Method::GET {
            return Err(Problem::method_not_allowed("GET"));
        }
        let operator = self.operator(request.headers(), Role::Read)?;
        let place = Arc::clone(&self.live.places).try_acquire_owned().map_err(|_| {
            let detail = format!("expected at most {LISTENERS_MAX} streams at a time: close another page");
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail)
        })?;
        let (routes, headers, ticks) = (Arc::clone(self), request.headers().clone(), ticks(INTERVAL));
        let listener = Listener { routes, headers, ticks, _place: place };
        let you = event("you", &json!({"name": operator.name, "role": operator.scope.as_str()}));
        let status = stream::unfold(listener, |mut listener| async move {
            let event = listener.next().await?;
            Some((event, listener))
        });
        let events = stream::once(async { you }).chain(status).map(|event| Ok(Frame::data(event)));
        let mut response = hyper::Response::new(StreamBody::new(events).boxed_unsync());
        for (name, value) in [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-store")] {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        Ok(response)
    }

    async fn status(&self) -> Bytes {
        let mut known = self.live.known.lock().await;
        let age_max = self.config.metrics_interval.saturating_sub(SLACK).max(INTERVAL.saturating_sub(SLACK));
        if let Some((_, event)) = known.as_ref().filter(|(at, _)| at.elapsed() < age_max) {
            return event.clone();
        }
        let event = event("status", &self.found_out().await);
        known.insert((Instant::now(), event)).1.clone()
    }

    async fn found_out(&self) -> Value {
        let exchange = &self.exchange;
        let asked_at = Instant::now();
        // This measures two consecutive round trips to the store.
        let fleet = exchange.fleet().await;
        let took = asked_at.elapsed();
        let trouble = fleet.as_ref().map_or_else(Some, |fleet| fleet.offline.as_ref());
        let (rates, pops) = exchange.rates_and_statuses().await;
        let figures = exchange.figures();
        let rules = figures.rules.iter().filter(|(rule, _)| exchange.rules.has_rule(rule)).map(|(rule, of)| {
            json!({
                "rule": rule, "debt": parts(of.owed.sum_milli), "overshoot": parts(of.owed.deepest_milli),
                "overshoot_max": parts(of.owed.most_milli), "bound": of.bound,
            })
        });
        json!({
            "at_s": SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64()),
            "weir_sync": env!("CARGO_PKG_VERSION"),
            "replica": exchange.replica,
            "store": {
                "is_up": trouble.is_none(),
                "rtt_ms": trouble.is_none().then_some(took.as_secs_f64() * 1_000.0),
                "silence_s": Duration::from_nanos(figures.store_silence_ns).as_secs_f64(),
                "problem": trouble.map(ToString::to_string),
            },
            "budgets": {"count": figures.budgets, "in_debt": figures.in_debt},
            "rules": rules.collect::<Vec<_>>(),
            "anomalies": exchange.observer.under_way(),
            "rates": rates,
            "fleet": fleet.as_ref().ok().map(|fleet| of_fleet(fleet, &pops)),
        })
    }

    pub(super) async fn fleet(&self, _: Call<'_>) -> Answered {
        let (fleet, (_, statuses)) = join!(self.exchange.fleet(), self.exchange.rates_and_statuses());
        let fleet = fleet?;
        let pops: Vec<Value> = fleet.pops.iter().map(|seen| pop(seen, &fleet, &statuses)).collect();
        let answer = json!({
            "version": fleet.revision, "rule_set": fleet.version, "lost": fleet.lost(), "canary": canary(&fleet),
            "offline": fleet.offline.as_ref().map(ToString::to_string), "pops": pops,
        });
        Ok(response(StatusCode::OK, JSON, &answer))
    }
}

impl Listener {
    async fn next(&mut self) -> Option<Bytes> {
        self.ticks.tick().await;
        // The stream ends when its token is removed from the file.
        let may = self.routes.secrets.access.operator(bearer(&self.headers), Role::Read);
        if may.is_err() || self.routes.is_draining() {
            return None;
        }
        Some(self.routes.status().await)
    }
}

/// Encodes a server-sent event. The JSON is one line.
fn event(name: &str, data: &Value) -> Bytes {
    format!("event: {name}\ndata: {data}\n\n").into()
}

/// JSON of the fleet. Of more than [`POPS_MAX`] POPs, those that need attention are included.
fn of_fleet(fleet: &FleetState, statuses: &BTreeMap<String, PopStatus>) -> Value {
    let seen = &fleet.pops;
    let is_current = |pop: &&Seen| fleet.is_current(pop);
    let mut first: Vec<&Seen> = seen.iter().collect();
    if first.len() > POPS_MAX {
        first.sort_by_key(|pop| (is_current(pop), Reverse(pop.age_us)));
        first.truncate(POPS_MAX);
        first.sort_by(|one, other| one.pop.cmp(&other.pop));
    }
    let pops: Vec<Value> = first.into_iter().map(|seen| pop(seen, fleet, statuses)).collect();
    json!({
        "version": fleet.revision,
        "rule_set": fleet.version,
        "canary": canary(fleet),
        "count": seen.len(),
        "current": seen.iter().filter(is_current).count(),
        "pops": pops,
    })
}

fn pop(seen: &Seen, fleet: &FleetState, statuses: &BTreeMap<String, PopStatus>) -> Value {
    let (status, silent_s) = (statuses.get(&seen.pop), parts(seen.age_us / 1_000));
    // Without a refused version, the text is that of an earlier refusal.
    let refusal = status.map(|status| &status.refusal).filter(|why| !why.is_empty() && seen.refused != 0);
    json!({
        "name": seen.pop,
        "region": seen.region,
        "replica": seen.replica,
        "silent_s": silent_s,
        "version": seen.version,
        "refused": seen.refused,
        "is_canary": fleet.is_canary(seen),
        "is_current": fleet.is_current(seen),
        "connectivity": connectivity(status.map(|status| status.step), silent_s),
        "clock_s": status.and_then(|status| status.clock_ms).map(signed_parts),
        "module": status.map(|status| &status.module),
        "refusal": refusal,
    })
}

/// Connectivity that a POP reported (0 is fresh), or that its silence implies if that is worse.
#[allow(clippy::cast_precision_loss, reason = "seconds")]
fn connectivity(reported: Option<u8>, silent_s: f64) -> Option<&'static str> {
    let after = |ns: u64| silent_s >= ns as f64 / SECOND_NS as f64;
    let implied = if after(FALLBACK_NS) { Some(2) } else { after(STALE_NS).then_some(1) };
    reported.max(implied).map(|step| match step {
        0 => "fresh",
        1 => "stale",
        _ => "fallback",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connectivity_is_the_worse_of_status_and_silence() {
        for (reported, silent_s, expected) in [
            (Some(0), 0.2, Some("fresh")),
            (Some(0), 1.5, Some("stale")),
            (Some(1), 0.2, Some("stale")),
            (Some(2), 1.6, Some("fallback")),
            (Some(0), 5.0, Some("fallback")),
            (None, 0.2, None),
            (None, 7.0, Some("fallback")),
        ] {
            assert_eq!(connectivity(reported, silent_s), expected, "{reported:?} {silent_s}");
        }
    }
}
