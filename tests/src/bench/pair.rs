//! A listener and one without a filter, in an Envoy of their own: what the one adds to the other.

use fastrand::Rng;

use crate::bench::case::{By, Case};
use crate::bench::cpu::Cpus;
use crate::bench::filters::PLENTY;
use crate::bench::plan::Plan;
use crate::bench::proxy::{Behind, Proxy};
use crate::bench::service::Service;
use crate::bench::site::{Site, Visit};
use crate::redis::Redis;
use crate::weir_sync::WeirSync;

/// The visits to both, in turn.
#[derive(Clone, Debug, Default)]
pub struct Pair {
    /// With the filter.
    pub filter: Vec<Visit>,
    /// Without one.
    pub base: Vec<Visit>,
}

impl Pair {
    /// Starts all that `case` needs, and visits it and its base, in an order that changes.
    pub async fn measure(
        case: Case,
        plan: Plan,
        cpus: Cpus,
        mut behind: Behind,
        order: &mut Rng,
    ) -> Result<Self, String> {
        let weir_sync = WeirSync::start("bench", "memory").await;
        behind.weir_sync = Some(weir_sync.address());
        let central = if case.by == By::Central { Some(Central::start().await?) } else { None };
        behind.service = central.as_ref().map(|central| central.service.address());
        let also = central.as_ref().map_or(vec![], |central| vec![central.service.id(), central.redis.id()]);
        let mut cases = [case, case.base()];
        order.shuffle(&mut cases);
        let mut proxy =
            Proxy::start(&cases, if case.has_two_workers() { 2 } else { 1 }, behind, cpus).await?;
        let mut filter = Site::open(case, &proxy, &also).await?;
        let mut base = Site::open(case.base(), &proxy, &[]).await?;
        let mut pair = Self::default();
        for _ in 0..plan.visits {
            let is_first = order.bool();
            if is_first {
                pair.filter.push(filter.visit(plan).await?);
            }
            pair.base.push(base.visit(plan).await?);
            if !is_first {
                pair.filter.push(filter.visit(plan).await?);
            }
        }
        proxy.check()?;
        if let Some(central) = central {
            central.check(filter.admitted()).await?;
        }
        Ok(pair)
    }

    /// A time of a request with the filter, and of one without: each the least of its visits, which was disturbed least.
    pub fn least(&self, part: impl Fn(&Visit) -> f64) -> [f64; 2] {
        [&self.filter, &self.base].map(|visits| visits.iter().map(&part).reduce(f64::min).unwrap_or_default())
    }
}

/// The central service, and its Redis.
struct Central {
    service: Service,
    redis: Redis,
}

impl Central {
    async fn start() -> Result<Self, String> {
        let redis = Redis::start().await;
        Ok(Self { service: Service::start(&redis.url(), PLENTY.tokens()).await?, redis })
    }

    /// An error unless it was asked once for each request that went through.
    async fn check(&self, through: u64) -> Result<(), String> {
        let asked: u64 = self.redis.info("commandstats", "cmdstat_incrby:calls=").await;
        let is_each = asked == through;
        is_each
            .then_some(())
            .ok_or_else(|| format!("the central service was asked {asked} times for {through} requests"))
    }
}
