//! Envoy's memory under ever new addresses.

use std::net::Ipv4Addr;
use std::sync::Arc;

use super::Plan;
use super::case::{By, Case, Under};
use crate::bench::cpu::Cpus;
use crate::bench::filters::WEIR_SYNC;
use crate::bench::generator::{Callers, Generator};
use crate::bench::proxy::{Proxy, http};
use crate::bench::visits::CONNECTIONS;
use crate::weir_sync::WeirSync;

/// Requests between two looks at the answers.
const CHUNK: u32 = 50_000;
/// The first caller, of 10.0.0.0/8: there are enough of them.
const CALLERS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
/// All of them that a run may use.
const CALLERS_MAX: u32 = (1 << 24) - 2;

/// Resident memory of an Envoy.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// Before the first request, in KiB.
    pub before_kib: u64,
    /// The number of addresses that came first,
    pub few_addresses: u32,
    /// and the memory then.
    pub few_kib: u64,
    /// The number that had come in the end,
    pub many_addresses: u32,
    /// and the memory then.
    pub many_kib: u64,
}

impl Memory {
    /// After many addresses, as a multiple of after few.
    #[allow(clippy::cast_precision_loss, reason = "far below 2^52 KiB")]
    pub fn ratio(&self) -> f64 {
        self.many_kib as f64 / self.few_kib.max(1) as f64
    }
}

/// The listener that it is measured at.
const LISTENER: Case = Case::new(By::Wasm, Under::Limited);

/// An Envoy of its own, Weir with a rule of one request a day: no bucket may be forgotten, so the table
/// is full of debts, and newcomers share what is left. Envoy answers by itself what goes through.
pub async fn measure(plan: Plan, cpus: Cpus, progress: impl Fn(u32)) -> Result<Memory, String> {
    let weir_sync = WeirSync::start("bench", "memory").await;
    let clusters = vec![http(WEIR_SYNC, weir_sync.address())];
    let mut proxy = Proxy::start([(LISTENER, LISTENER.filters())], 1, clusters, cpus).await?;
    let mut generator = Generator::connect(proxy.address(LISTENER)?, CONNECTIONS).await?;
    let callers = Callers::new(CALLERS, CALLERS_MAX);
    let before_kib = proxy.resident_kib();
    let mut sent = 0;
    send_until(&mut generator, &callers, &mut sent, plan.few_addresses, &progress).await?;
    let few_kib = proxy.resident_kib();
    send_until(&mut generator, &callers, &mut sent, plan.many_addresses, &progress).await?;
    let many_kib = proxy.resident_kib();
    proxy.check()?;
    let (few_addresses, many_addresses) = (plan.few_addresses, plan.many_addresses);
    Ok(Memory { before_kib, few_addresses, few_kib, many_addresses, many_kib })
}

async fn send_until(
    generator: &mut Generator,
    callers: &Arc<Callers>,
    sent: &mut u32,
    addresses: u32,
    progress: &impl Fn(u32),
) -> Result<(), String> {
    while *sent < addresses.min(CALLERS_MAX) {
        let chunk = CHUNK.min(addresses - *sent);
        let answers = generator.load(usize::try_from(chunk).unwrap_or(0), callers).await?;
        if answers.others > 0 {
            return Err(format!("{} answers were neither 200 nor 429", answers.others));
        }
        *sent += chunk;
        progress(*sent);
    }
    Ok(())
}
