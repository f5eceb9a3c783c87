//! A listener that is visited: what is sent to it, and what must come back.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use crate::bench::case::Case;
use crate::bench::cpu::Meter;
use crate::bench::generator::{Callers, Generator, SETTLES};
use crate::bench::plan::Plan;
use crate::bench::proxy::Proxy;

/// Connections that load one listener: so many that its worker hardly ever waits.
pub const CONNECTIONS: usize = 32;
/// The first caller; all are of 198.18.0.0/15, which RFC 2544 sets aside for benchmarks.
const CALLERS: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
/// Callers that are only there for the proof that each address is counted by itself.
const OTHERS: [Ipv4Addr; 2] = [Ipv4Addr::new(198, 19, 255, 1), Ipv4Addr::new(198, 19, 255, 2)];
/// Requests that every listener has had before the first visit, if it has fewer callers.
const PREPARING: usize = 3_000;
/// A header that Weir's answers carry where they tell the quota.
const QUOTA_HEADER: &str = "\r\nratelimit: ";

/// What a visit measured.
#[derive(Clone, Debug, Default)]
pub struct Visit {
    /// CPU time per request, in microseconds, all connections at once.
    pub cpu_us: f64,
    /// The same, one request after the other.
    pub alone_us: f64,
    /// How long each of those sent one after the other waited, in microseconds.
    pub waited_us: Vec<f64>,
}

/// Of one request, in microseconds.
fn per_request_us(time_ns: u64, requests: u32) -> f64 {
    Duration::from_nanos(time_ns).as_secs_f64() * 1e6 / f64::from(requests.max(1))
}

/// A case that is ready to be visited.
pub struct Site {
    case: Case,
    generator: Generator,
    callers: Arc<Callers>,
    meter: Meter,
    /// Requests that were answered 200 so far.
    admitted: u64,
}

impl Site {
    /// Connects to the case's listener in `proxy`, sees that it is what it should be, and brings it to where
    /// it stays: all callers known, what is to be empty is empty. `also` are other processes whose CPU
    /// time counts.
    pub async fn open(case: Case, proxy: &Proxy, also: &[u32]) -> Result<Self, String> {
        let mut site = Self {
            case,
            generator: Generator::connect(proxy.address(case)?, CONNECTIONS).await?,
            callers: Callers::new(CALLERS, case.callers()),
            meter: proxy.meter().and(also),
            admitted: 0,
        };
        let ready = async {
            site.prove().await?;
            site.prepare().await?;
            if case.has_two_workers() {
                site.generator.count_only(&site.meter, &site.callers).await?;
            }
            Ok(())
        };
        ready.await.map_err(|e: String| format!("{case}: {e}"))?;
        Ok(site)
    }

    /// Its case.
    pub fn case(&self) -> Case {
        self.case
    }

    /// How many requests it has let through.
    pub fn admitted(&self) -> u64 {
        self.admitted
    }

    /// Each address is counted by itself, and the quota's headers are where they should be.
    async fn prove(&mut self) -> Result<(), String> {
        let second = self.case.status();
        for (turn, caller) in OTHERS.into_iter().chain(OTHERS).enumerate() {
            let expected = if turn < OTHERS.len() { 200 } else { second };
            let (status, head) = self.generator.ask(caller).await?;
            self.admitted += u64::from(status == 200);
            if status != expected {
                return Err(format!("request {turn} was answered {status} instead of {expected}"));
            }
            let told = head.contains(QUOTA_HEADER);
            if status == 200 && told != self.case.tells_quota() {
                return Err(format!("quota headers where there should be none, or none: {head}"));
            }
        }
        Ok(())
    }

    async fn prepare(&mut self) -> Result<(), String> {
        let callers = usize::try_from(self.case.callers()).unwrap_or(usize::MAX);
        let answers = self.generator.load(callers.max(PREPARING), &self.callers).await?;
        self.admitted += u64::from(answers.admitted);
        // What is limited lets one request through before.
        if self.case.status() == 429 && answers.admitted == 1 && answers.others == 0 {
            return Ok(());
        }
        answers.all(self.case.status()).map(|_| ())
    }

    /// Measures it once. An error if an answer is not what it must be.
    pub async fn visit(&mut self, plan: Plan) -> Result<Visit, String> {
        self.measure(plan).await.map_err(|e| format!("{}: {e}", self.case))
    }

    async fn measure(&mut self, plan: Plan) -> Result<Visit, String> {
        let status = self.case.status();
        let warm = self.generator.load(plan.warm_up, &self.callers).await?.all(status)?;
        let start = self.settled().await?;
        let busy = self.generator.load(plan.requests, &self.callers).await?.all(status)?;
        let between = self.settled().await?;
        let alone = self.generator.alone(plan.alone, &self.callers).await?.all(status)?;
        let end = self.settled().await?;
        self.admitted += u64::from(warm.admitted + busy.admitted + alone.admitted);
        Ok(Visit {
            cpu_us: per_request_us(between.saturating_sub(start), busy.counted),
            alone_us: per_request_us(end.saturating_sub(between), alone.counted),
            waited_us: alone.waited_us,
        })
    }

    /// The CPU time so far, once those who used it sleep.
    async fn settled(&self) -> Result<u64, String> {
        tokio::time::sleep(SETTLES).await;
        self.meter.read()
    }
}
