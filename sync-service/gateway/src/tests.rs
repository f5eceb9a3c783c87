//! A gateway over a store in memory, without a port.

use std::slice;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use weir_budget::divide::GrantSettings;
use weir_budget::hub::{Hub, HubSettings, StoreReplies};
use weir_budget::report_limits::ReporterKind;
use weir_protocol::messages::Message as _;
use weir_store::memory::MemoryStore;
use weir_store::rules::{NewVersion, RulesChange, RulesResult};
use weir_store::{ChargeBatch, Store, StoreError};

use super::*;
use crate::metrics::{Happened, OfRule};

/// Far above what anything takes here.
const DEADLINE: Duration = Duration::from_mins(2);
/// The weir-sync's name in the store.
const REPLICA: &str = "fra/a";

/// A weir-sync over a store in memory, with one version of the rules.
struct Region {
    store: MemoryStore,
    hub: Mutex<Hub>,
    version: u64,
    charged: AtomicU64,
    started: Instant,
}

impl Region {
    async fn begun(document: &Value) -> Self {
        let store = MemoryStore::new(1_000, Duration::from_mins(1));
        let put = NewVersion { document: &document.to_string(), expected: None, note: "", from_file: false };
        let put = store.change_rules(&RulesChange::Put(put)).await.unwrap();
        let RulesResult::Put(version) = put else { panic!("a new version") };
        let (replica, terms) = (REPLICA.into(), GrantSettings::default());
        let settings = HubSettings { replica, terms, pop_ttl_ns: 60_000_000_000, pops_expected: 0 };
        let (hub, charged) = (Mutex::new(Hub::new(settings)), AtomicU64::new(0));
        Self { store, hub, version, charged, started: Instant::now() }
    }

    fn now(&self) -> Time {
        Time::from_nanos(u64::try_from(self.started.elapsed().as_nanos()).unwrap())
    }

    async fn answer(&self, reporter: ReporterKind, report: Report) -> Vec<u8> {
        let unix_us = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros();
        let unix_us = u64::try_from(unix_us).unwrap();
        let pending = self.hub.lock().unwrap().report(reporter, self.now(), unix_us, report);
        let batch = ChargeBatch { replica: REPLICA, pop: &pending.report.pop, entries: pending.entries() };
        let accounts = self.store.charge(&batch).await;
        let acquired = self.store.acquire(&pending.report.pop, pending.acquires()).await;
        let pops = self.store.register(&pending.report.pop).await;
        let answers = StoreReplies::<StoreError> { accounts, acquired, pops };
        let settled = self.hub.lock().unwrap().settle(self.now(), self.version, pending, answers);
        self.charged.fetch_add(settled.facts.tokens, Ordering::Relaxed);
        settled.reply.encode()
    }
}

impl SyncService for Region {
    fn report(&self, report: Report) -> Pin<Box<dyn Future<Output = Vec<u8>> + Send + '_>> {
        Box::pin(self.answer(ReporterKind::Gateway, report))
    }

    fn take<'a>(
        &'a self,
        pop: &'a str,
        acquire: &'a AcquireRequest,
        _within: Duration,
    ) -> StoreFuture<'a, AcquireResult> {
        Box::pin(async move { self.store.acquire(pop, slice::from_ref(acquire)).await.remove(0) })
    }

    fn acquire<'a>(&'a self, pop: &'a str, acquires: &'a [AcquireRequest]) -> Each<'a, AcquireResult> {
        self.store.acquire(pop, acquires)
    }

    fn revision_of(&self, _pop: &str) -> u64 {
        self.version
    }

    fn has_no_rules(&self) -> bool {
        false
    }

    fn rules(&self, revision: u64) -> StoreFuture<'_, Option<Bytes>> {
        Box::pin(async move { Ok(self.store.get_rules(revision).await?.map(Bytes::from)) })
    }
}

/// A gateway whose store has this document as its rules.
struct Tried {
    gateway: Arc<Gateway>,
    region: Arc<Region>,
    metrics: GatewayMetrics,
    running: JoinHandle<()>,
}

impl Tried {
    /// One of a fleet with two other POPs; it has just been started.
    async fn begun(document: &Value) -> Self {
        let region = Arc::new(Region::begun(document).await);
        for pop in ["ams1", "iad1"] {
            let report = Report { pop: pop.into(), worker: 1, sequence: 1, table: 1, ..Report::default() };
            region.answer(ReporterKind::Pop, report).await;
        }
        let (timeout, metrics) = (Duration::from_secs(1), GatewayMetrics::default());
        let pop = "gateway/fra/a".into();
        let settings = GatewaySettings { pop, keys: 1_000, key_secret: None, timeout, has_rules_file: false };
        let gateway = Arc::new(Gateway::new(settings, region.clone(), metrics.clone()).unwrap());
        let running = tokio::spawn(Arc::clone(&gateway).run());
        Self { gateway, region, metrics, running }
    }

    /// The same, once it is ready.
    async fn ready(rules: Value) -> Self {
        let tried = Self::begun(&json!({"rules": rules})).await;
        tried.until(Gateway::is_ready).await;
        tried
    }

    async fn until(&self, is_so: impl Fn(&Gateway) -> bool) {
        let wait = async {
            while !is_so(&self.gateway) {
                sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(DEADLINE, wait).await.expect("not in time");
    }

    async fn check(&self, path: &str, is_peek: bool) -> CheckReply {
        let purpose = if is_peek { CheckPurpose::Peek } else { CheckPurpose::Take };
        let ask = CheckRequest { path: Some(path.into()), purpose, ..CheckRequest::default() };
        timeout(DEADLINE, self.gateway.check(ask)).await.expect("an answer in time")
    }

    /// Ends it as a server does; what was counted is on the page then.
    async fn end(&self) -> &GatewayMetrics {
        self.running.abort();
        self.gateway.report_rest().await;
        &self.metrics
    }
}

/// A rule for all requests of a path.
fn rule(name: &str, fields: &Value) -> Value {
    let mut rule = json!({"name": name, "key": ["all"], "match": {"path": {"exact": format!("/{name}")}}});
    rule.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    rule
}

#[tokio::test]
async fn counts_not_reported_yet_are_reported_at_the_end() {
    // With a queue, a gateway ticks more often than it reports.
    let queue = rule("queue", &json!({"algorithm": "leaky_bucket", "rate": "10/s", "queue": 1}));
    let tried = Tried::ready(json!([rule("orders", &json!({"rate": "100/d", "burst": 100})), queue])).await;
    tried.running.abort();
    for _ in 0..60 {
        assert_eq!(tried.check("/orders", false).await.decision, CheckDecision::Allow);
    }
    let before = tried.region.charged.load(Ordering::Relaxed);
    tried.end().await;
    let charged = tried.region.charged.load(Ordering::Relaxed) - before;
    assert!(charged >= 60, "{charged}");
}

#[tokio::test]
async fn its_first_answer_knows_the_fleet() {
    let deny = json!({"rate": "100/d", "on_sync_loss": "deny"});
    let tried = Tried::begun(&json!({"rules": [rule("orders", &deny)]})).await;
    let first = async {
        loop {
            let reply = tried.check("/orders", false).await;
            if reply.rule.is_some() {
                return reply.decision;
            }
            assert_eq!(reply.decision, CheckDecision::Deny, "before it knows its rules");
            sleep(Duration::from_millis(1)).await;
        }
    };
    assert_eq!(timeout(DEADLINE, first).await.unwrap(), CheckDecision::Allow);
}

#[tokio::test]
async fn a_peek_is_not_held_against_its_client() {
    let penalty = json!({"rate": "1/m", "burst": 1, "penalty": {"after": 3, "within": "1h", "deny_for": "5h"}});
    let shadow = json!({"rate": "2/d", "burst": 2, "mode": "shadow"});
    let tried = Tried::ready(json!([rule("login", &penalty), rule("shadow", &shadow)])).await;
    assert_eq!(tried.check("/login", false).await.decision, CheckDecision::Allow);
    for _ in 0..20 {
        assert_eq!(tried.check("/login", true).await.decision, CheckDecision::Limit);
        assert_eq!(tried.check("/shadow", true).await.decision, CheckDecision::Allow);
    }
    let wait = tried.check("/login", false).await.quota_status.unwrap().retry_after;
    assert!(wait < Duration::from_mins(2), "{wait:?}");
    for _ in 0..3 {
        tried.check("/shadow", false).await;
    }
    let metrics = tried.end().await;
    let row = |rule: &str| OfRule { rule: rule.into() };
    assert_eq!(metrics.decisions[3].get_or_create(&row("shadow")).get(), 1);
}

// I6
#[tokio::test]
async fn the_status_of_a_strict_quota_is_its_budgets_level() {
    let strict = json!({"rate": "5/h", "burst": 5, "strict": true});
    let tried = Tried::ready(json!([rule("login", &strict)])).await;
    let status = async |is_peek| {
        let quota_status = tried.check("/login", is_peek).await.quota_status.expect("a quota status");
        (quota_status.remaining, quota_status.reset_after.as_secs().div_ceil(60))
    };
    for _ in 0..3 {
        assert_eq!(status(true).await, (4, 12), "a peek at a fresh key");
    }
    for (left, minutes) in [(4, 12), (3, 24), (2, 36), (1, 48), (0, 12), (0, 12)] {
        assert_eq!(status(false).await, (left, minutes));
    }
}

#[tokio::test]
async fn checks_are_in_the_metrics_of_their_rules() {
    let strict = json!({"rate": "2/d", "burst": 2, "strict": true});
    let tried = Tried::ready(json!([rule("login", &strict), rule("quiet", &json!({"rate": "1/s"}))])).await;
    for expected in [CheckDecision::Allow, CheckDecision::Allow, CheckDecision::Limit] {
        assert_eq!(tried.check("/login", false).await.decision, expected);
    }
    let metrics = tried.end().await;
    for (rule, expected) in [("login", [2, 1, 0, 0]), ("quiet", [0; 4])] {
        let row = OfRule { rule: rule.into() };
        let figures = metrics.decisions.each_ref().map(|family| family.get(&row).expect("a row").get());
        assert_eq!(figures, expected, "{rule}");
    }
    assert!(metrics.events.get_or_create(&Happened { event: "strict.paused" }).get() > 0);
    let none = OfRule { rule: "none".into() };
    assert!(metrics.decisions[0].get(&none).is_none(), "its own rule is for nobody");
}

#[tokio::test]
async fn a_request_whose_client_leaves_holds_nothing() {
    let queue = json!({"algorithm": "leaky_bucket", "rate": "10/s", "queue": 10});
    let tried = Tried::ready(json!([rule("queue", &queue)])).await;
    // No turn comes.
    tried.running.abort();
    tried.check("/queue", false).await;
    let held = || -> usize { tried.gateway.workers.iter().map(|worker| worker.state().held.len()).sum() };
    for _ in 0..4 {
        let ask = CheckRequest { path: Some("/queue".into()), ..CheckRequest::default() };
        let left = timeout(Duration::from_millis(20), tried.gateway.check(ask)).await;
        assert!(left.is_err(), "it is held");
    }
    assert_eq!(held(), 0);
}
