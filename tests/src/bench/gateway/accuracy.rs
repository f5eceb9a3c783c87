//! What the services let through: two replicas of each, which Envoy asks in turn, and one client that asks for three
//! times its limit, evenly.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::contender::Contender;
use crate::bench::generator::Generator;
use crate::bench::proxy::Proxy;

/// What the client may have in a second.
pub(super) const LIMIT: u32 = 100;
/// Replicas of each service.
pub(super) const REPLICAS: usize = 2;
/// How many times its limit it asks for.
const TIMES: u32 = 3;
/// A service that lets more of it through than this times the limit counts nothing, and what its checks cost says
/// nothing.
const TIMES_MAX: f64 = 2.0;
/// Connections that it asks over in turn.
const CONNECTIONS: u32 = 10;
/// The client.
const CLIENT: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);

/// What a service let through.
#[derive(Clone, Copy, Debug)]
pub(super) struct Admitted {
    /// In all, as a part of the limit over that time.
    pub(super) part: f64,
    /// The most within any second.
    pub(super) in_a_second: usize,
}

/// Asks all services at once.
pub(super) async fn all(
    lasts: Duration,
    contenders: &[Contender],
    proxy: &Proxy<Contender>,
) -> Result<BTreeMap<Contender, Admitted>, String> {
    eprintln!("bench-gateway: {} s at {TIMES} times the limit", lasts.as_secs());
    let mut clients = JoinSet::new();
    let begins = Instant::now() + Duration::from_millis(200);
    for contender in contenders {
        for number in 0..CONNECTIONS {
            let generator = Generator::connect(proxy.address(*contender)?, 1).await?;
            let contender = *contender;
            clients.spawn(async move { (contender, asks(generator, begins, number, lasts).await) });
        }
    }
    let mut admitted: BTreeMap<Contender, Vec<Duration>> = BTreeMap::new();
    while let Some(done) = clients.join_next().await {
        let (contender, part) = done.map_err(|e| e.to_string())?;
        admitted.entry(contender).or_default().extend(part.map_err(|e| format!("{contender}: {e}"))?);
    }
    // On a busy machine the last answers come later.
    let lasted = begins.elapsed();
    let judged = |(contender, mut admitted): (Contender, Vec<Duration>)| {
        admitted.sort_unstable();
        let all = f64::from(LIMIT) * lasted.as_secs_f64();
        let part = f64::from(u32::try_from(admitted.len()).unwrap_or(u32::MAX)) / all;
        let judged = Admitted { part, in_a_second: most_in_a_second(&admitted) };
        eprintln!("bench-gateway:   {contender:26} {judged:?}");
        (contender, judged)
    };
    let admitted: BTreeMap<Contender, Admitted> = admitted.into_iter().map(judged).collect();
    match admitted.iter().find(|(_, admitted)| admitted.part > TIMES_MAX) {
        Some((contender, Admitted { part, .. })) => {
            Err(format!("{contender} let {part:.2} times the limit through: it does not limit"))
        }
        None => Ok(admitted),
    }
}

/// When requests of one connection were let through.
async fn asks(
    mut generator: Generator,
    begins: Instant,
    number: u32,
    lasts: Duration,
) -> Result<Vec<Duration>, String> {
    let between = Duration::from_secs(1) / (LIMIT * TIMES);
    let mut at = between * number;
    let mut admitted = vec![];
    while at < lasts {
        sleep_until(begins + at).await;
        match generator.ask(CLIENT).await?.0 {
            200 => admitted.push(begins.elapsed()),
            429 => {}
            status => return Err(format!("a request was answered {status}")),
        }
        at += between * CONNECTIONS;
    }
    Ok(admitted)
}

/// The most of these times, which are in order, within a second.
fn most_in_a_second(times: &[Duration]) -> usize {
    let within = |(first, from): (usize, &Duration)| {
        times[first..].iter().take_while(|time| time.saturating_sub(*from) < Duration::from_secs(1)).count()
    };
    times.iter().enumerate().map(within).max().unwrap_or_default()
}
