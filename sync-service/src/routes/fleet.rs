//! Route of the fleet: the POPs, with the rule set and the status of each.

use std::collections::BTreeMap;

use hyper::StatusCode;
use serde_json::{Value, json};
use tokio::join;
use weir_budget::pops::PopStatus;
use weir_limiter::sync::connectivity::{Connectivity, FALLBACK_NS, STALE_NS};
use weir_protocol::time::SECOND_NS;
use weir_store::fleet::Seen;

use super::rules::canary;
use super::{Answered, Call, JSON, Routes};
use crate::keys::page::parts;
use crate::problem::json as response;
use crate::rules::follow::FleetState;

impl Routes {
    /// Returns the POPs of the fleet.
    pub(super) async fn fleet(&self, _: Call<'_>) -> Answered {
        let (fleet, (_, statuses)) = join!(self.exchange.fleet(), self.exchange.rates_and_statuses());
        let fleet = fleet?;
        let pops: Vec<Value> = fleet.pops.iter().map(|seen| pop(seen, &fleet)).collect();
        let mut answer = json!({
            "version": fleet.revision, "rule_set": fleet.version, "lost": fleet.lost(), "canary": canary(&fleet),
            "offline": fleet.offline.as_ref().map(ToString::to_string), "pops": pops,
        });
        add_statuses(&mut answer["pops"], &statuses);
        Ok(response(StatusCode::OK, JSON, &answer))
    }
}

/// JSON for operators about a POP of `fleet`.
pub(super) fn pop(seen: &Seen, fleet: &FleetState) -> Value {
    json!({
        "name": seen.pop,
        "region": seen.region,
        "replica": seen.replica,
        "silent_s": parts(seen.age_us / 1_000),
        "version": seen.version,
        "refused": seen.refused,
        "is_canary": fleet.is_canary(seen),
        "is_current": fleet.is_current(seen),
    })
}

/// Adds its reported status to each of `pops`, which have the fields `name` and `silent_s`.
pub(super) fn add_statuses(pops: &mut Value, statuses: &BTreeMap<String, PopStatus>) {
    for pop in pops.as_array_mut().into_iter().flatten() {
        let status = pop["name"].as_str().and_then(|name| statuses.get(name));
        let step = connectivity(status.map(|status| status.step), pop["silent_s"].as_f64().unwrap_or_default());
        #[allow(clippy::cast_precision_loss, reason = "for people")]
        let clock_s = status.and_then(|status| status.clock_ms).map(|ms| ms as f64 / 1_000.0);
        pop["connectivity"] = step.map(name).into();
        pop["clock_s"] = clock_s.into();
        pop["module"] = json!(status.map(|status| &status.module));
        // The refusal concerns a rule set that the POP does not run yet, and may have refused before.
        let refusal = status.map(|status| &status.refusal).filter(|why| !why.is_empty() && pop["refused"] != 0);
        pop["refusal"] = json!(refusal);
    }
}

/// Connectivity of a POP: the state it reported, or the one its silence implies if that is worse. None if it
/// reported no state and is not silent.
#[allow(clippy::cast_precision_loss, reason = "seconds")]
fn connectivity(reported: Option<u8>, silent_s: f64) -> Option<Connectivity> {
    let after = |ns: u64| silent_s >= ns as f64 / SECOND_NS as f64;
    let implied = match (after(FALLBACK_NS), after(STALE_NS)) {
        (true, _) => Some(Connectivity::Fallback),
        (_, true) => Some(Connectivity::Stale),
        _ => None,
    };
    let reported = reported.map(|step| match step {
        0 => Connectivity::Fresh,
        1 => Connectivity::Stale,
        _ => Connectivity::Fallback,
    });
    reported.max(implied)
}

fn name(step: Connectivity) -> &'static str {
    match step {
        Connectivity::Fresh => "fresh",
        Connectivity::Stale => "stale",
        Connectivity::Fallback => "fallback",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connectivity_is_the_worse_of_status_and_silence() {
        for (reported, silent_s, expected) in [
            (Some(0), 0.2, Some(Connectivity::Fresh)),
            (Some(0), 1.5, Some(Connectivity::Stale)),
            (Some(1), 0.2, Some(Connectivity::Stale)),
            (Some(2), 1.6, Some(Connectivity::Fallback)),
            (Some(0), 5.0, Some(Connectivity::Fallback)),
            (None, 0.2, None),
            (None, 7.0, Some(Connectivity::Fallback)),
        ] {
            assert_eq!(connectivity(reported, silent_s), expected, "{reported:?} {silent_s}");
        }
        let status = PopStatus {
            pop: "a".into(),
            step: 0,
            clock_ms: Some(-1_500),
            module: "0.1.0".into(),
            refusal: "rules[0]: wrong".into(),
            age_ms: 5,
        };
        let mut pops = json!([{"name": "a", "silent_s": 0.1, "refused": 7}, {"name": "b", "silent_s": 0.1}]);
        add_statuses(&mut pops, &BTreeMap::from([("a".into(), status)]));
        let expected = json!([
            {"name": "a", "silent_s": 0.1, "refused": 7, "connectivity": "fresh", "clock_s": -1.5, "module": "0.1.0",
             "refusal": "rules[0]: wrong"},
            {"name": "b", "silent_s": 0.1, "connectivity": null, "clock_s": null, "module": null, "refusal": null}
        ]);
        assert_eq!(pops, expected);
    }
}
