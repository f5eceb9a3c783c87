//! The fleet's rule set: its versions in the store, and the revision that POPs run.
//!
//! A revision is a version with the [overrides](crate::overrides) that change it, and its number identifies both.
//! The current revision is read from the store every interval, and composed before any POP learns its number.
//! So a POP can fetch each revision that it learns of here, even if the store does not answer.
//!
//! ```text
//! change.rs     authors, errors and canaries; revision.rs, what the store has and what POPs run
//! follow.rs     reads the store and notifies POPs; the revision of each POP
//! overrides.rs  sets, lifts and lists overrides; canary.rs, begins, promotes and withdraws a canary
//! offline.rs    the kill switch, and changes that have not reached the store yet
//! file.rs       watches a rule file
//! ```

mod canary;
mod change;
pub(crate) mod file;
pub(crate) mod follow;
mod offline;
mod overrides;
mod revision;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use prometheus_client::metrics::gauge::Gauge;
use tokio::time::{Instant, timeout};
use weir_budget::report_limits::KnownRule;
use weir_cli::document::{Document, Form};
use weir_rules::RuleSet;
use weir_store::rules::{NewVersion, RulesChange, RulesResult, StoredVersion};
use weir_store::{Store, StoreError};

use crate::audit::AuditLog;
use crate::audit::event::ChangeEvent;
use crate::changes::Differences;
use crate::lock;
use revision::{Followed, NumberedRules, RecentRevisions, known_rules};

pub(crate) use change::{Audience, Canary, NumberedDocument, POPS_MAX, Tried};
pub use change::{ChangeError, ChangeOrigin};

/// Maximum delay of a report that names a version that is not known here yet.
const LOOK_UP_MAX: Duration = Duration::from_millis(100);
/// Minimum interval between such look-ups in the store.
const LOOK_UP_PAUSE: Duration = Duration::from_secs(1);

pub struct RuleSets {
    store: Arc<dyn Store>,
    audit_log: Arc<AuditLog>,
    region: String,
    recent: Mutex<RecentRevisions>,
    /// State of the store from which `recent` was composed.
    followed: tokio::sync::Mutex<Followed>,
    /// True if the store had no version at all when it was last read.
    is_missing: AtomicBool,
    /// True if the store failed the last time a watched file was put.
    is_file_lost: AtomicBool,
    known: Mutex<NumberedRules>,
    /// Time of the last look-up of an unknown version that a POP runs.
    asked_at: tokio::sync::Mutex<Option<Instant>>,
    /// Metrics of the revisions that POPs, and the POPs of a canary, have to run.
    shown: [Gauge; 2],
}

impl RuleSets {
    /// Rule sets in `store` for the POPs of `region`. Shows their revisions in `shown`, and changes in `audit_log`.
    pub fn new(store: Arc<dyn Store>, region: &str, shown: [Gauge; 2], audit_log: Arc<AuditLog>) -> Self {
        Self {
            store,
            audit_log,
            region: region.to_owned(),
            recent: Mutex::default(),
            followed: tokio::sync::Mutex::default(),
            is_missing: AtomicBool::new(false),
            is_file_lost: AtomicBool::new(false),
            known: Mutex::default(),
            asked_at: tokio::sync::Mutex::default(),
            shown,
        }
    }

    /// Current revision for POPs outside the canary, as last read from the store; 0 if there is none.
    pub(crate) fn revision(&self) -> u64 {
        lock(&self.recent).current.as_ref().map_or(0, |revision| revision.number)
    }

    /// Revision that this POP of the region is to run.
    pub(crate) fn revision_of(&self, pop: &str) -> u64 {
        let recent = lock(&self.recent);
        let canary = recent.canary.as_ref().filter(|trial| trial.canary.audience.covers(pop, &self.region));
        canary.map(|trial| &trial.revision).or(recent.current.as_ref()).map_or(0, |revision| revision.number)
    }

    /// Version of the rule set in the current revision; 0 if there is none.
    pub fn version(&self) -> u64 {
        lock(&self.recent).current.as_ref().map_or(0, |revision| revision.version)
    }

    /// True if the store answered that it has no rule set.
    pub fn is_missing(&self) -> bool {
        self.is_missing.load(Ordering::Relaxed)
    }

    /// Reads the store if `version`, which a POP runs, is not known here: the POP may have it from another weir-sync.
    /// Takes at most 100 ms, and reads the store at most once per second, whatever POPs report.
    pub(crate) async fn observe_version(&self, version: u64) {
        if version == 0 || lock(&self.known).has(version) {
            return;
        }
        let look_up = async {
            let mut asked_at = self.asked_at.lock().await;
            if lock(&self.known).has(version) || asked_at.is_some_and(|at| at.elapsed() < LOOK_UP_PAUSE) {
                return;
            }
            *asked_at = Some(Instant::now());
            // Without an answer, claims under this version's rules wait.
            let _ = self.listen().await;
        };
        let _ = timeout(LOOK_UP_MAX, look_up).await;
    }

    /// The highest known version or revision, and all kept rules; `None` if nothing is new since the last call.
    pub(crate) fn news(&self) -> Option<(u64, Vec<KnownRule>)> {
        lock(&self.known).news()
    }

    /// Loads the versions in the store, unless `current` and all earlier ones are known.
    async fn know_kept(&self, current: u64) -> Result<(), StoreError> {
        let is_known = |version| {
            let known = lock(&self.known);
            known.is_complete && known.is_version(version)
        };
        if is_known(current) {
            return Ok(());
        }
        for StoredVersion { version, .. } in self.store.kept_rules().await?.into_iter().rev() {
            if is_known(version) {
                continue;
            }
            if let Some(document) = self.store.get_rules(version).await? {
                let rules = rules_of(&document);
                lock(&self.known).add(version, rules);
            }
        }
        lock(&self.known).is_complete = true;
        Ok(())
    }

    /// Short name of a version, for people; its number if it is not kept.
    pub(crate) async fn name(&self, version: u64) -> String {
        let kept = self.store.kept_rules().await.unwrap_or_default();
        let kept = kept.iter().find(|kept| kept.version == version);
        kept.map_or_else(|| version.to_string(), StoredVersion::name)
    }

    /// Reads the current version from the store.
    pub async fn current(&self) -> Result<Option<NumberedDocument>, StoreError> {
        match self.store.current().await?.version {
            Some(version) => self.kept_version(version).await,
            None => Ok(None),
        }
    }

    /// Document of a revision or of a kept version, for POPs to fetch.
    pub async fn get(&self, number: u64) -> Result<Option<NumberedDocument>, StoreError> {
        if let Some(held) = self.recent_document(number) {
            return Ok(Some(held));
        }
        let kept = self.kept_version(number).await?;
        if kept.is_none() && number > self.revision() {
            // The POP has the number from another weir-sync, which read the store a moment earlier.
            self.listen().await?;
            return Ok(self.recent_document(number));
        }
        Ok(kept)
    }

    /// Rule sets with overrides that POPs run: the current one, and a canary's. Empty if none can be parsed.
    pub(crate) async fn in_force(&self) -> Result<Vec<Arc<RuleSet>>, StoreError> {
        if self.revision() == 0 {
            // Nothing was read from the store yet.
            self.listen().await?;
        }
        Ok(self.rule_sets())
    }

    fn rule_sets(&self) -> Vec<Arc<RuleSet>> {
        let recent = lock(&self.recent);
        let revisions = recent.current.iter().chain(recent.canary.as_ref().map(|trial| &trial.revision));
        revisions.filter_map(|revision| revision.rule_set.clone()).collect()
    }

    /// True if POPs run a rule of this name, or if their rules are unknown.
    pub(crate) fn has_rule(&self, name: &str) -> bool {
        let sets = self.rule_sets();
        sets.is_empty() || sets.iter().any(|set| set.rules().iter().any(|rule| rule.name == name))
    }

    fn recent_document(&self, number: u64) -> Option<NumberedDocument> {
        // A canary that was withdrawn may have had the number of a later version.
        let is_version = lock(&self.known).is_version(number);
        let recent = lock(&self.recent);
        let revision = recent.find(number).filter(|revision| revision.version == number || !is_version)?;
        Some(NumberedDocument { version: number, document: revision.document.clone() })
    }

    async fn kept_version(&self, version: u64) -> Result<Option<NumberedDocument>, StoreError> {
        let document = self.store.get_rules(version).await?;
        Ok(document.map(|document| NumberedDocument { version, document: document.into() }))
    }

    /// Puts `document` as a new version in place of `expected` (0: none), or of any. Returns the new version.
    pub async fn put(
        &self,
        document: &Document,
        expected: Option<u64>,
        change: &ChangeOrigin,
    ) -> Result<u64, ChangeError> {
        self.catch_up_first().await;
        let version = self.put_in_store(document, expected, change).await?;
        self.is_put(version, document, change).await;
        Ok(version)
    }

    /// Puts a version into the store without notifying POPs.
    async fn put_in_store(
        &self,
        document: &Document,
        expected: Option<u64>,
        change: &ChangeOrigin,
    ) -> Result<u64, ChangeError> {
        let (document, note) = (document.text(), change.text());
        let put = NewVersion { document: &document, expected, note: &note, from_file: false };
        version_of(self.change_rules(&RulesChange::Put(put), || change.event("rules")).await?)
    }

    /// Makes a change in the store. If the answer is lost, records `event` as a change that may have been made.
    async fn change_rules(
        &self,
        change: &RulesChange<'_>,
        event: impl FnOnce() -> ChangeEvent,
    ) -> Result<RulesResult, StoreError> {
        self.store.change_rules(change).await.inspect_err(|error| self.audit_log.change_failed(error, event()))
    }

    /// Notifies POPs of a new version in the store, and records it in the log and the audit log.
    async fn is_put(&self, version: u64, document: &Document, change: &ChangeOrigin) {
        lock(&self.known).add(version, known_rules(document.rules()).collect());
        self.listen_now().await;
        self.record_version(version, document, change).await;
    }

    async fn record_version(&self, version: u64, document: &Document, change: &ChangeOrigin) {
        let ChangeOrigin { note, author, comment, .. } = change;
        let name = self.name(version).await;
        tracing::info!(version = name, note, author, comment, "new rule set");
        if !self.audit_log.is_on() {
            return;
        }
        // Each version is its predecessor plus 1, except the first.
        let old = self.kept_version(version.saturating_sub(1)).await;
        // If the store does not answer, the previous version is unknown.
        let (before, changes) = match old {
            Ok(old) => {
                let value = old.as_ref().map(NumberedDocument::value).unwrap_or_default();
                let changes = Differences::between(&value, document.value());
                (Some(old.map_or(0, |old| old.version)), Some(changes))
            }
            Err(_) => (None, None),
        };
        self.audit_log.change(ChangeEvent { before, after: Some(version), changes, ..change.event("rules") });
    }

    /// Dry run of [`Self::put`].
    pub(crate) async fn try_put(&self, document: &Document, expected: Option<u64>) -> Result<Tried, ChangeError> {
        let current = self.current().await?;
        let version = current.as_ref().map_or(0, |held| held.version);
        if expected.is_some_and(|expected| expected != version) {
            return Err(ChangeError::Conflict(version));
        }
        let old = current.as_ref().map(NumberedDocument::value);
        let next = current.map(|held| held.version + 1);
        Ok(Tried::of(&old.unwrap_or_default(), document.value(), version, next))
    }

    /// Puts a watched file unless the store has it, and returns the new version. Fails while a canary runs.
    pub async fn put_file(&self, document: &Document) -> Result<Option<u64>, ChangeError> {
        let text = document.text();
        let change = ChangeOrigin { note: "file".into(), author: "rules_file".into(), ..ChangeOrigin::default() };
        let put = NewVersion { document: &text, expected: None, note: &change.text(), from_file: true };
        let stored = self.store.change_rules(&RulesChange::Put(put)).await;
        // The file is put again and again until the store answers; one event is enough.
        let was_lost = self.is_file_lost.swap(stored.is_err(), Ordering::Relaxed);
        let lost = |error: &StoreError| {
            if !was_lost {
                self.audit_log.change_failed(error, change.event("rules"));
            }
        };
        let stored = stored.inspect_err(lost)?;
        if matches!(stored, RulesResult::Same(_)) {
            return Ok(None);
        }
        let version = version_of(stored)?;
        self.is_put(version, document, &change).await;
        Ok(Some(version))
    }

    /// Puts the document of the kept version `to` as a new version.
    pub(crate) async fn roll_back(
        &self,
        to: u64,
        expected: Option<u64>,
        change: &ChangeOrigin,
    ) -> Result<u64, ChangeError> {
        let old = self.kept_version(to).await?.ok_or(ChangeError::NotKept(to))?;
        let note = format!("rollback to {}", self.name(to).await);
        self.put(&read(&old.document)?, expected, &change.with_note(note)).await
    }
}

/// Version that a change has made current, or the reason why it was refused.
fn version_of(result: RulesResult) -> Result<u64, ChangeError> {
    match result {
        RulesResult::Put(version) | RulesResult::Same(version) => Ok(version),
        other => Err(refusal(other)),
    }
}

fn refusal(result: RulesResult) -> ChangeError {
    match result {
        RulesResult::Conflict(version) => ChangeError::Conflict(version),
        RulesResult::Runs(id) => ChangeError::Canary(id),
        RulesResult::Missing => ChangeError::NoCanary,
        RulesResult::Put(_) | RulesResult::Same(_) | RulesResult::Begun(_) | RulesResult::Withdrawn(_) => {
            StoreError::Invalid("another change of the rules was made than was asked for").into()
        }
    }
}

/// Rules of a document. A document that cannot be parsed has none, because no POP can run it either.
fn rules_of(document: &str) -> Vec<KnownRule> {
    let document = Document::read(document.as_bytes(), Form::Json);
    document.map(|document| known_rules(document.rules()).collect()).unwrap_or_default()
}

fn read(document: &[u8]) -> Result<Document, ChangeError> {
    Document::read(document, Form::Json).map_err(ChangeError::Invalid)
}
