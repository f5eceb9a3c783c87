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
/// Requests of a visit before it is measured: what ran before has left its own data in the caches.
const WARM_UP: usize = 300;
/// A header that Weir's answers carry where they tell the quota.
const QUOTA_HEADER: &str = "\r\nratelimit: ";

/// What visits have measured.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// All connections at once.
    pub busy: Used,
    /// One after the other.
    pub alone: Used,
    /// How long those sent one after the other waited, in microseconds.
    pub waited_us: Vec<f64>,
}

/// CPU time, and the requests that used it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Used {
    time_ns: u64,
    requests: u32,
}

impl Used {
    /// Of one request, in microseconds.
    pub fn per_request_us(self) -> f64 {
        Duration::from_nanos(self.time_ns).as_secs_f64() * 1e6 / f64::from(self.requests.max(1))
    }

    fn add(&mut self, time_ns: u64, requests: u32) {
        self.time_ns += time_ns;
        self.requests += requests;
    }
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
            if Case::TWO_WORKERS.contains(&case) {
                site.generator.count_only(&site.meter, &site.callers).await?;
            }
            Ok(())
        };
        ready.await.map_err(|e: String| format!("{}: {e}", case.name()))?;
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
            if status == 200 && told != matches!(self.case, Case::WeirHeaders | Case::ModuleHeaders) {
                return Err(format!("quota headers where there should be none, or none: {head}"));
            }
        }
        Ok(())
    }

    async fn prepare(&mut self) -> Result<(), String> {
        let callers = usize::try_from(self.case.callers()).unwrap_or(usize::MAX);
        let answers = self.generator.load(callers.max(10 * WARM_UP), &self.callers).await?;
        self.admitted += u64::from(answers.admitted);
        // What is limited lets one request through before.
        if self.case.status() == 429 && answers.admitted == 1 && answers.others == 0 {
            return Ok(());
        }
        answers.all(self.case.status()).map(|_| ())
    }

    /// Measures it once, and adds that to `tally`. An error if an answer is not what it must be.
    pub async fn visit(&mut self, plan: Plan, tally: &mut Tally) -> Result<(), String> {
        self.measure(plan, tally).await.map_err(|e| format!("{}: {e}", self.case.name()))
    }

    async fn measure(&mut self, plan: Plan, tally: &mut Tally) -> Result<(), String> {
        let status = self.case.status();
        let warm = self.generator.load(WARM_UP, &self.callers).await?.all(status)?;
        let start = self.settled().await?;
        let busy = self.generator.load(plan.requests, &self.callers).await?.all(status)?;
        let between = self.settled().await?;
        tally.busy.add(between.saturating_sub(start), busy.counted);
        let alone = self.generator.alone(plan.alone, &self.callers).await?.all(status)?;
        tally.alone.add(self.settled().await?.saturating_sub(between), alone.counted);
        self.admitted += u64::from(warm.admitted + busy.admitted + alone.admitted);
        tally.waited_us.extend(alone.waited_us);
        Ok(())
    }

    /// The CPU time so far, once those who used it sleep.
    async fn settled(&self) -> Result<u64, String> {
        tokio::time::sleep(SETTLES).await;
        self.meter.read()
    }
}
