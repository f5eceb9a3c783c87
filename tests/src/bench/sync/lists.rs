//! What the lists cost that all regions share: each is one key of Redis, and every region asks for it every interval.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};
use weir_budget::ban::{BanState, BannedKey};
use weir_budget::budget::BudgetId;
use weir_budget::hot::{HOT_MAX, HotKey};
use weir_budget::pops::PopNote;
use weir_protocol::quota::{Period, Quota, Rate};
use weir_protocol::sharing::Sharing;
use weir_sync::store::Store as _;
use weir_sync::store::address::NodeMap;
use weir_sync::store::dial::LoginFiles;
use weir_sync::store::redis::{Options, PREFIX, Redis as Store};

use super::{Figures, Plan, cpu, progress};
use crate::bench::stats::{float, grouped};
use crate::redis::Redis;

/// How many regions ask.
const REGIONS: u64 = 30;
/// How often each does.
const INTERVAL: Duration = Duration::from_millis(250);
/// Hot keys that the regions name, all together: more than the list keeps.
const HOT: u64 = 10_000;
/// Banned keys.
const BANNED: u64 = 1_000;
/// POPs of the fleet.
const POPS: u64 = 1_000;

/// What Redis says that it has sent, in bytes.
const SENT: &str = "total_net_output_bytes:";

/// What a region asks for.
#[derive(Clone, Copy, Debug)]
enum List {
    Hot,
    Bans,
    Pops,
}

/// A list after the other, by itself.
pub(super) async fn run(plan: Plan, figures: &mut Figures) {
    progress("the lists that regions share");
    for (list, what) in [
        (List::Hot, format!("{} hot keys are named, of which the list keeps {HOT_MAX}", grouped(float(HOT)))),
        (List::Bans, format!("{} keys are banned, and stay so", grouped(float(BANNED)))),
        (
            List::Pops,
            format!("{} POPs are noted, and one in each region is registered", grouped(float(POPS))),
        ),
    ] {
        let (used, bytes) = one(plan, list).await;
        let every = INTERVAL.as_millis();
        let figure = format!(
            "{REGIONS} regions every {every} ms, {what}: Redis's CPU of one core; bytes it sends in a second"
        );
        figures.row(&figure, &format!("{:.1} %; {}", used * 100.0, grouped(bytes)));
    }
}

/// The part of a core that Redis spends on it, and the bytes it sends a second.
async fn one(plan: Plan, list: List) -> (f64, f64) {
    let redis = Redis::start().await;
    let mut regions = JoinSet::new();
    let began = Instant::now();
    let ends = began + Duration::from_secs(2) + plan.fleet / 2;
    for n in 0..REGIONS {
        let url = redis.url();
        regions.spawn(async move { region(&url, list, n, ends).await });
    }
    tokio::time::sleep_until(began + Duration::from_secs(2)).await;
    let (from, before, sent) = (Instant::now(), cpu(&[redis.id()]), redis.info::<f64>("stats", SENT).await);
    tokio::time::sleep_until(ends).await;
    let used = cpu(&[redis.id()]).saturating_sub(before).as_secs_f64() / from.elapsed().as_secs_f64();
    let sent = (redis.info::<f64>("stats", SENT).await - sent) / from.elapsed().as_secs_f64();
    let mut answered = 0;
    while let Some(done) = regions.join_next().await {
        answered += done.unwrap_or_else(|e| panic!("a region failed: {e}"));
    }
    let expected = REGIONS * u64::try_from((ends - began).as_millis() / INTERVAL.as_millis()).unwrap_or(0);
    // A region that was not answered would make the list look cheap.
    assert!(answered * 10 >= expected * 8, "{list:?}: {answered} answers of about {expected}");
    (used, sent)
}

/// Asks every interval until `ends`; returns how often it was answered.
async fn region(url: &str, list: List, region: u64, ends: Instant) -> u64 {
    let options = Options {
        prefix: PREFIX.into(),
        response_timeout: Duration::from_secs(1),
        pop_ttl: Duration::from_secs(10),
        files: LoginFiles::default(),
        nodes: NodeMap::default(),
        wait: None,
        keys_max: 1_000_000,
    };
    let store = Store::new(url, options).unwrap_or_else(|e| panic!("{url}: {e}"));
    let hot: Vec<_> = numbers(region, HOT).map(hot).collect();
    let bans: Vec<_> = numbers(region, BANNED).map(ban).collect();
    let notes: Vec<_> = numbers(region, POPS).map(note).collect();
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut answered, mut is_first) = (0, true);
    while Instant::now() < ends {
        ticks.tick().await;
        let is_answered = match list {
            List::Hot => store.hot(&hot).await.is_ok(),
            // A ban is put once.
            List::Bans => store.bans(if is_first { &bans } else { &[] }).await.is_ok(),
            List::Pops => {
                let member = format!("region-{region}");
                store.note_pops(&member, &notes).await.is_ok() && store.register(&member).await.is_ok()
            }
        };
        is_first &= !is_answered;
        answered += u64::from(is_answered);
    }
    answered
}

/// The numbers of `all` that a region names.
fn numbers(region: u64, all: u64) -> impl Iterator<Item = u64> {
    (region..all).step_by(usize::try_from(REGIONS).unwrap_or(1))
}

fn id(n: u64) -> BudgetId {
    BudgetId::new("per-address".into(), n.to_be_bytes().to_vec())
}

fn hot(n: u64) -> HotKey {
    let quota = Rate::new(60, Period::Minute).and_then(|rate| Quota::new(rate, 600).ok());
    let quota = quota.unwrap_or_else(|| panic!("a quota that is one"));
    HotKey { id: id(n), quota, sharing: Sharing::of(quota), rests: false, rank: 1 }
}

fn ban(n: u64) -> BannedKey {
    BannedKey { id: id(n), for_ms: 600_000, said: BanState::Banned }
}

fn note(n: u64) -> PopNote {
    PopNote { pop: format!("pop-{n}"), version: 1, refused: 0 }
}
