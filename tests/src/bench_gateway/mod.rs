//! What a check at the gateway costs, beside what people would pick instead: `make bench-gateway`.
//!
//! Every service is asked by Envoy's own filter `ratelimit`, about the same descriptors, and has a database of the same
//! Redis. CPU time is what the kernel says each of its threads was given, and so is that of Redis.
//!
//! ```text
//! plan.rs        how long it measures
//! contender.rs   the services: the gateway, a minimal service, limitador
//! proxy.rs       the Envoy that asks them
//! rounds.rs      visits: each service with few keys and with many, round after round
//! accuracy.rs    what two replicas of each let through at three times the limit
//! figures.rs     the tables
//! ```

mod accuracy;
mod contender;
mod figures;
mod plan;
mod proxy;
mod rounds;

use crate::bench::cpu::Cpus;
use crate::bench::page::Part;
use crate::bench::{machine, upstream};
use crate::redis::Redis;

use contender::{Contender, Service};
use proxy::Proxy;

pub use plan::Plan;

/// Measures everything; gives what docs/reference/benchmarks.md is to hold. Progress goes to standard error.
pub async fn run(plan: Plan) -> Result<Part, String> {
    let cpus = Cpus::choose()?;
    let machine = machine::with_envoy();
    cpus.settle()?;
    eprintln!("bench-gateway: {machine}");
    let contenders = contender::there();
    let upstream = upstream::start()?;
    let rounds = {
        let redis = Redis::start().await;
        let services = contender::start(&contenders, &redis, plan.limit, 1).await?;
        let mut proxy = Proxy::start(&services, upstream, cpus).await?;
        let rounds = rounds::all(plan, &redis, &services, &proxy).await?;
        proxy.check()?;
        rounds
    };
    let redis = Redis::start().await;
    let services = contender::start(&contenders, &redis, accuracy::LIMIT, accuracy::REPLICAS).await?;
    let mut proxy = Proxy::start(&services, upstream, cpus).await?;
    let accuracy = accuracy::all(plan, &contenders, &proxy).await?;
    proxy.check()?;
    Ok(figures::part(&machine, plan, &rounds, &accuracy))
}

/// Those of one contender.
fn of(services: &[Service], contender: Contender) -> impl Iterator<Item = &Service> {
    services.iter().filter(move |service| service.contender() == contender)
}
