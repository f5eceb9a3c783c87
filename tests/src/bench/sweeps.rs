//! The sweeps: each visits every listener once, in an order that turns from sweep to sweep. They are short and many, so
//! that what disturbs the machine for a while meets all listeners, and leaves most visits to each of them undisturbed.

use std::collections::BTreeMap;
use std::time::Instant;

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
    let count = sites.len().max(1);
    let end = Instant::now() + plan.lasts;
    for number in 0..plan.sweeps {
        if number >= plan.least_sweeps && Instant::now() > end {
            break;
        }
        let mut sweep = Sweep::new();
        // Steps of three: a site does not always come after the same one.
        let step = if count.is_multiple_of(3) || number.is_multiple_of(2) { 1 } else { 3 };
        for turn in 0..count {
            let Some(site) = sites.get_mut((number + turn * step) % count) else { continue };
            sweep.insert(site.case(), site.visit(plan).await?);
        }
        sweeps.push(sweep);
        if sweeps.len().is_multiple_of(TOLD_EVERY) {
            told(&sweeps);
        }
    }
    Ok(sweeps)
}
