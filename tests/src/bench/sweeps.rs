//! The sweeps: each visits every listener once, in another order each time. They are short and many, so
//! that what disturbs the machine for a while meets all listeners, and leaves most visits to each of them undisturbed.

use std::collections::BTreeMap;
use std::time::Instant;

use fastrand::Rng;

use crate::bench::case::Case;
use crate::bench::plan::Plan;
use crate::bench::site::{Site, Visit};

/// One sweep.
pub type Sweep = BTreeMap<Case, Visit>;

/// Sweeps between two words of progress.
const TOLD_EVERY: usize = 20;

/// Visits all sites; `told` now and then, with all sweeps so far.
pub async fn all(sites: &mut [Site], plan: Plan, told: impl Fn(&[Sweep])) -> Result<Vec<Sweep>, String> {
    let mut sweeps: Vec<Sweep> = vec![];
    let (mut order, mut places) = (Rng::with_seed(0), (0..sites.len()).collect::<Vec<_>>());
    let end = Instant::now() + plan.lasts;
    for number in 0..plan.sweeps {
        if number >= plan.least_sweeps && Instant::now() > end {
            break;
        }
        let mut sweep = Sweep::new();
        // So that a site does not always come after the same one.
        order.shuffle(&mut places);
        for place in &places {
            let Some(site) = sites.get_mut(*place) else { continue };
            sweep.insert(site.case(), site.visit(plan).await?);
        }
        sweeps.push(sweep);
        if sweeps.len().is_multiple_of(TOLD_EVERY) {
            told(&sweeps);
        }
    }
    Ok(sweeps)
}
