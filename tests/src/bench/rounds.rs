//! The rounds: each starts every process anew. Where a listener's memory happens to lie makes its requests dearer or cheaper
//! by some microseconds, for as long as its Envoy runs: only another Envoy shows how much that is.

use std::net::SocketAddr;
use std::time::Instant;

use fastrand::Rng;

use crate::bench::case::{By, Case, Under};
use crate::bench::cpu::Cpus;
use crate::bench::figures;
use crate::bench::filters::PLENTY;
use crate::bench::plan::Plan;
use crate::bench::proxy::{Behind, Proxy};
use crate::bench::service::Service;
use crate::bench::site::Site;
use crate::bench::sweeps::{self, Sweep};
use crate::bench::upstream;
use crate::redis::Redis;
use crate::weir_sync::WeirSync;

/// The sweeps of one Envoy.
pub type Round = Vec<Sweep>;

/// As many rounds as `plan` says. Progress goes to standard error.
pub async fn all(plan: Plan, cpus: Cpus) -> Result<Vec<Round>, String> {
    let (mut rounds, mut order) = (vec![], Rng::with_seed(0));
    let (upstream, end) = (upstream::start()?, Instant::now() + plan.lasts);
    while rounds.len() < plan.least_rounds || Instant::now() < end {
        let has_rotating = rounds.len().is_multiple_of(plan.rotating_every);
        rounds.push(round(plan, has_rotating, cpus, upstream, &mut order).await?);
        told(&rounds);
    }
    Ok(rounds)
}

/// Starts everything, the listeners in another order each time, and visits it.
async fn round(
    plan: Plan,
    has_rotating: bool,
    cpus: Cpus,
    upstream: SocketAddr,
    order: &mut Rng,
) -> Result<Round, String> {
    let redis = Redis::start().await;
    let service = Service::start(&redis.url(), PLENTY.tokens()).await?;
    let weir_sync = WeirSync::start("bench", "memory").await;
    let behind = Behind {
        upstream: Some(upstream),
        service: Some(service.address()),
        weir_sync: Some(weir_sync.address()),
    };
    let (mut of_one, of_two) = (Case::of_one_worker(plan.all), Case::of_two_workers());
    of_one.retain(|case| has_rotating || case.under != Under::Rotating);
    order.shuffle(&mut of_one);
    let mut one = Proxy::start(&of_one, 1, behind, cpus).await?;
    let mut two = Proxy::start(&of_two, 2, behind, cpus).await?;
    let mut sites = vec![];
    for case in of_one {
        let also = if case.by == By::Central { vec![service.id(), redis.id()] } else { vec![] };
        sites.push(Site::open(case, &one, &also).await?);
    }
    for case in of_two {
        sites.push(Site::open(case, &two, &[]).await?);
    }
    let done = sweeps::all(&mut sites, plan, order).await?;
    one.check()?;
    two.check()?;
    let through: u64 = sites.iter().filter(|site| site.case().by == By::Central).map(Site::admitted).sum();
    let asked: u64 = redis.info("commandstats", "cmdstat_incrby:calls=").await;
    if asked != through {
        return Err(format!("the central service was asked {asked} times for {through} requests"));
    }
    Ok(done)
}

fn told(rounds: &[Round]) {
    let figure = |by| format!("{:.2}", figures::added(rounds, Case::new(by, Under::Many)));
    eprintln!(
        "bench: round {}: added µs so far: nothing {}, empty {}, local_ratelimit {}, wasm {}, module {}, central {}",
        rounds.len(),
        figure(By::NothingAgain),
        figure(By::Empty),
        figure(By::Native),
        figure(By::Wasm),
        figure(By::Module),
        figure(By::Central),
    );
}
