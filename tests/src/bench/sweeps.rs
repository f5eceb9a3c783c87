//! The sweeps: each visits every listener of a round once, in another order each time, so that what disturbs the machine
//! for a while meets all listeners alike.

use std::collections::BTreeMap;

use fastrand::Rng;

use crate::bench::case::Case;
use crate::bench::plan::Plan;
use crate::bench::site::{Site, Visit};

/// One sweep.
pub type Sweep = BTreeMap<Case, Visit>;

/// Visits all sites, as often as `plan` says.
pub async fn all(sites: &mut [Site], plan: Plan, order: &mut Rng) -> Result<Vec<Sweep>, String> {
    let mut sweeps: Vec<Sweep> = vec![];
    for _ in 0..plan.sweeps {
        // So that a site does not always come after the same one.
        order.shuffle(sites);
        let mut sweep = Sweep::new();
        for site in &mut *sites {
            sweep.insert(site.case(), site.visit(plan).await?);
        }
        sweeps.push(sweep);
    }
    Ok(sweeps)
}
