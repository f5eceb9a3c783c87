//! The fleet's rule set: versions in the store, and the edition that POPs are told to run.
//!
//! An edition is a version with the [orders](crate::orders) that change it; its number names both. What is current is asked for
//! each interval, and composed before any POP is told of it: so a POP that is told of an edition can fetch it here, whether
//! the store answers or not.
//!
//! ```text
//! change.rs    who changes something, and why
//! follow.rs    hears from the store, tells POPs; followed.rs, what it heard; edition.rs, what it tells
//! known.rs     the rules that POPs may run
//! orders.rs    puts, drops and lists orders
//! kill_switch.rs   switches all rules off, and on
//! offline.rs   changes that the store has not heard of
//! canary.rs    begins, promotes and takes back a canary; audience.rs, what it is and which POPs run it; fleet.rs, what each runs
//! ```

pub mod audience;
mod canary;
mod change;
mod edition;
pub mod fleet;
mod follow;
mod followed;
mod kill_switch;
mod known;
pub mod offline;
mod orders;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use prometheus_client::metrics::gauge::Gauge;
use thiserror::Error;
use tokio::time::{Instant, timeout};
use weir_budget::claims::KnownRule;
use weir_rules::RuleSet;
use weir_rules::reading::ConfigError;

use crate::changes::Changes;
use crate::claims::known_rules;
use crate::document::{Document, Form};
use crate::store::orders::ORDERS_MAX;
use crate::store::rules::{Kept, Put, Stored};
use crate::store::{Store, StoreError};
use crate::trail::Trail;
use crate::trail::event::Changed;
use audience::Audience;
pub use audience::Canary;
pub use change::Change;
use edition::Told;
use followed::Followed;
use known::Known;

/// The header with what the author of a change says of it, and the most bytes of that.
pub const COMMENT: &str = "weir-comment";
/// See [`COMMENT`].
pub const COMMENT_BYTES_MAX: usize = 500;
/// How long a report waits until the version that its POP runs is known here, ...
const HEAR_MAX: Duration = Duration::from_millis(100);
/// ... and how often that is tried.
const HEAR_PAUSE: Duration = Duration::from_secs(1);
/// A version or an edition, and its document, as JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Its number.
    pub version: u64,
    /// What it says.
    pub document: Bytes,
}

/// Why a rule set was not changed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ChangeError {
    /// The store did not take it.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Another version than the expected one is current, 0 if there is none.
    #[error("the current version is {0}")]
    Conflict(u64),
    /// There is no rule set to change.
    #[error("there is no rule set yet")]
    None,
    /// The version to go back to is not kept.
    #[error("version {0} is not kept")]
    NotKept(u64),
    /// A kept document is not valid any more.
    #[error("the document is not valid")]
    Invalid(Vec<ConfigError>),
    /// The rule set with an order would not be valid.
    #[error("the rule set with this order is not valid")]
    Order(Vec<ConfigError>),
    /// There are as many orders as there may be.
    #[error("there are {ORDERS_MAX} orders, the most")]
    Full,
    /// There is no such order.
    #[error("there is no such order")]
    NoOrder,
    /// A canary runs, of this number.
    #[error("a canary runs")]
    Canary(u64),
    /// No canary runs.
    #[error("no canary runs")]
    NoCanary,
    /// Another canary runs than the expected one, of this number.
    #[error("the canary that runs is {0}")]
    OtherCanary(u64),
    /// No POP of the canary's audience has reported, or not all that it names.
    #[error("no such POPs have reported: {0:?}")]
    Unheard(Audience),
    /// The canary has other terms for strict rules.
    #[error("the canary has other terms for strict rules")]
    Strict(Vec<ConfigError>),
}

/// What a rule set would do if it were put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tried {
    /// The version that it would replace, 0 if there is none.
    pub current: u64,
    /// Its own version; nobody knows the first one beforehand.
    pub next: Option<u64>,
    /// Whether it says just what the current one says.
    pub is_same: bool,
    /// What it changes.
    pub changes: Changes,
    /// The same, a line each, for people.
    pub lines: Vec<String>,
}

/// The fleet's rule set.
pub struct RuleSets {
    store: Arc<dyn Store>,
    trail: Arc<Trail>,
    /// The region whose POPs report here.
    region: String,
    /// What POPs are told to run.
    told: Mutex<Told>,
    /// What that was made of.
    followed: tokio::sync::Mutex<Followed>,
    /// Whether the store, when it was last asked, had no version at all.
    is_missing: AtomicBool,
    /// Whether the store did not answer when a watched file was put last.
    is_file_lost: AtomicBool,
    known: Mutex<Known>,
    /// When the store was last asked because a POP runs a version that is not known here.
    asked_at: tokio::sync::Mutex<Option<Instant>>,
    shown: Shown,
}

/// What metrics show of the rule sets.
#[derive(Clone, Debug, Default)]
pub struct Shown {
    /// The edition that POPs are told to run.
    pub edition: Gauge,
    /// The edition that a canary's POPs are told to run, 0 if none runs.
    pub canary: Gauge,
}

impl std::fmt::Debug for RuleSets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RuleSets").field("edition", &self.edition()).finish_non_exhaustive()
    }
}

impl RuleSets {
    /// The rule sets in `store`, for the POPs of `region`; `shown` says what these are told to run, and `trail` hears of changes.
    pub fn new(store: Arc<dyn Store>, region: &str, shown: Shown, trail: Arc<Trail>) -> Self {
        Self {
            store,
            trail,
            region: region.to_owned(),
            told: Mutex::default(),
            followed: tokio::sync::Mutex::default(),
            is_missing: AtomicBool::new(false),
            is_file_lost: AtomicBool::new(false),
            known: Mutex::default(),
            asked_at: tokio::sync::Mutex::default(),
            shown,
        }
    }

    /// The number of the edition that POPs are told to run that are not a canary's, as last heard from the store; 0 if there
    /// was none.
    pub fn edition(&self) -> u64 {
        self.told().current().map_or(0, |edition| edition.number)
    }

    /// The number of the edition that this POP is told to run, which reports here.
    pub fn edition_of(&self, pop: &str) -> u64 {
        let told = self.told();
        let canary = told.canary().filter(|trial| trial.canary.audience.covers(pop, &self.region));
        canary.map(|trial| &trial.edition).or(told.current()).map_or(0, |edition| edition.number)
    }

    /// The version of the rule set in that edition; 0 if there was none.
    pub fn version(&self) -> u64 {
        self.told().current().map_or(0, |edition| edition.version)
    }

    /// Whether the store answered that it has no rule set.
    pub fn is_missing(&self) -> bool {
        self.is_missing.load(Ordering::Relaxed)
    }

    /// Hears of `version`, which a POP says it runs, if it is not known here: the POP may have heard of it through another
    /// weir-sync. It takes no longer than a moment, whatever the store does and whatever POPs say.
    pub async fn hear_of(&self, version: u64) {
        if version == 0 || self.known().has(version) {
            return;
        }
        let hear = async {
            let mut asked_at = self.asked_at.lock().await;
            if self.known().has(version) || asked_at.is_some_and(|at| at.elapsed() < HEAR_PAUSE) {
                return;
            }
            *asked_at = Some(Instant::now());
            // Without the store, what is claimed of the version waits.
            let _ = self.listen().await;
        };
        let _ = timeout(HEAR_MAX, hear).await;
    }

    /// The newest version or edition that is known and the rules of all that are kept, if there are new ones since the last
    /// call.
    pub fn news(&self) -> Option<(u64, Vec<KnownRule>)> {
        self.known().news()
    }

    /// Looks at the versions that the store has, unless `current` and those before it are known.
    async fn know_kept(&self, current: u64) -> Result<(), StoreError> {
        let is_known = |version| {
            let known = self.known();
            known.is_complete && known.is_version(version)
        };
        if is_known(current) {
            return Ok(());
        }
        for Kept { version, .. } in self.store.kept_rules().await?.into_iter().rev() {
            if is_known(version) {
                continue;
            }
            if let Some(document) = self.store.get_rules(version).await? {
                let rules = rules_of(&document);
                self.known().add(version, rules);
            }
        }
        self.known().is_complete = true;
        Ok(())
    }

    /// The current version, from the store.
    pub async fn current(&self) -> Result<Option<Held>, StoreError> {
        match self.store.rules_version().await? {
            Some(version) => self.kept_version(version).await,
            None => Ok(None),
        }
    }

    /// What POPs fetch: an edition, or a version that is kept.
    pub async fn get(&self, number: u64) -> Result<Option<Held>, StoreError> {
        if let Some(held) = self.told_of(number) {
            return Ok(Some(held));
        }
        let kept = self.kept_version(number).await?;
        if kept.is_none() && number > self.edition() {
            // The POP was told by another weir-sync, which has heard of it a moment earlier.
            self.listen().await?;
            return Ok(self.told_of(number));
        }
        Ok(kept)
    }

    /// What POPs are told to run, with what orders change: one rule set, and a second one while a canary runs. None if there is
    /// no rule set, or it cannot be read.
    pub async fn in_force(&self) -> Result<Vec<Arc<RuleSet>>, StoreError> {
        if self.edition() == 0 {
            // Nothing was heard from the store yet.
            self.listen().await?;
        }
        let told = self.told();
        let editions = told.current().into_iter().chain(told.canary().map(|trial| &trial.edition));
        Ok(editions.filter_map(|edition| edition.rule_set.clone()).collect())
    }

    /// Whether POPs are told to run a rule of this name, or nothing is known of what they run.
    pub fn has_rule(&self, name: &str) -> bool {
        let told = self.told();
        let editions = told.current().into_iter().chain(told.canary().map(|trial| &trial.edition));
        let mut sets = editions.filter_map(|edition| edition.rule_set.as_ref()).peekable();
        sets.peek().is_none() || sets.any(|set| set.rules().iter().any(|rule| rule.name == name))
    }

    fn told_of(&self, number: u64) -> Option<Held> {
        // A canary that was taken back may have had the number of a version that was put since.
        let is_version = self.known().is_version(number);
        let told = self.told();
        let edition = told.find(number).filter(|edition| edition.version == number || !is_version)?;
        Some(Held { version: number, document: edition.document.clone() })
    }

    /// A version that is kept, as it was put.
    async fn kept_version(&self, version: u64) -> Result<Option<Held>, StoreError> {
        let document = self.store.get_rules(version).await?;
        Ok(document.map(|document| Held { version, document: document.into() }))
    }

    /// The versions that are kept, the newest first.
    pub async fn kept(&self) -> Result<Vec<Kept>, StoreError> {
        self.store.kept_rules().await
    }

    /// Puts `document` as a new version, if the current one is `expected` (0: if there is none; `None`: in any
    /// case); returns the new one.
    pub async fn put(
        &self,
        document: &Document,
        expected: Option<u64>,
        change: &Change,
    ) -> Result<u64, ChangeError> {
        self.catch_up_first().await;
        let version = self.put_in_store(document, expected, change).await?;
        self.is_put(version, document, change).await;
        Ok(version)
    }

    /// The same, and nobody is told.
    async fn put_in_store(
        &self,
        document: &Document,
        expected: Option<u64>,
        change: &Change,
    ) -> Result<u64, ChangeError> {
        let text = document.text();
        let put = Put { document: &text, expected, note: &change.text(), from_file: false };
        let stored = self.store.put_rules(&put).await;
        match stored.inspect_err(|error| self.tell_of_lost(error, change))? {
            Stored::New(version) | Stored::Same(version) => Ok(version),
            Stored::Conflict(version) => Err(ChangeError::Conflict(version)),
            Stored::Canary(id) => Err(ChangeError::Canary(id)),
        }
    }

    /// A new version is in the store: POPs are told, and the log and the trail.
    async fn is_put(&self, version: u64, document: &Document, change: &Change) {
        self.known().add(version, known_rules(document.rules()).collect());
        self.listen_now().await;
        let Change { note, author, comment, .. } = change;
        tracing::info!(version, note, author, comment, "new rule set");
        self.tell_of(version, document, change).await;
    }

    /// Tells the trail of a new version, which was made of the one before it.
    async fn tell_of(&self, version: u64, document: &Document, change: &Change) {
        if !self.trail.is_on() {
            return;
        }
        // Each version is the one before it plus 1, except the first.
        let old = self.kept_version(version.saturating_sub(1)).await;
        // Without the store's answer it is not known what there was before.
        let (before, changes) = match old {
            Ok(old) => {
                let value = old.as_ref().map(|old| serde_json::from_slice(&old.document).unwrap_or_default());
                let changes = Changes::between(&value.unwrap_or_default(), document.value());
                (Some(old.map_or(0, |old| old.version)), Some(changes))
            }
            Err(_) => (None, None),
        };
        self.trail.change(Changed { before, after: Some(version), changes, ..change.told("rules") });
    }

    /// Tells the trail of a version whose answer was lost.
    fn tell_of_lost(&self, error: &StoreError, change: &Change) {
        self.trail.change_failed(error, change.told("rules"));
    }

    /// What [`Self::put`] would do now; it is not done.
    pub async fn try_put(&self, document: &Document, expected: Option<u64>) -> Result<Tried, ChangeError> {
        let current = self.current().await?;
        let version = current.as_ref().map_or(0, |held| held.version);
        if expected.is_some_and(|expected| expected != version) {
            return Err(ChangeError::Conflict(version));
        }
        let old = current.as_ref().and_then(|held| serde_json::from_slice(&held.document).ok());
        let is_same = old.as_ref() == Some(document.value());
        let old = old.unwrap_or_default();
        let changes = Changes::between(&old, document.value());
        let lines = changes.lines(&old, document.value());
        Ok(Tried { current: version, next: current.map(|held| held.version + 1), is_same, changes, lines })
    }

    /// Puts what a watched file says, if that is news to the store; then returns the new version. Fails while a canary runs.
    pub async fn put_file(&self, document: &Document) -> Result<Option<u64>, ChangeError> {
        let text = document.text();
        let change = Change { note: "file".into(), author: "rules_file".into(), ..Change::default() };
        let put = Put { document: &text, expected: None, note: &change.text(), from_file: true };
        let stored = self.store.put_rules(&put).await;
        // A file is tried again and again; one event will do.
        let was_lost = self.is_file_lost.swap(stored.is_err(), Ordering::Relaxed);
        let lost = |error: &StoreError| {
            if !was_lost {
                self.tell_of_lost(error, &change);
            }
        };
        let version = match stored.inspect_err(lost)? {
            Stored::New(version) => version,
            Stored::Same(_) => return Ok(None),
            Stored::Conflict(version) => return Err(ChangeError::Conflict(version)),
            Stored::Canary(id) => return Err(ChangeError::Canary(id)),
        };
        self.known().add(version, known_rules(document.rules()).collect());
        self.listen_now().await;
        self.tell_of(version, document, &change).await;
        Ok(Some(version))
    }

    /// Puts the document of the kept version `to` as a new one.
    pub async fn roll_back(
        &self,
        to: u64,
        expected: Option<u64>,
        change: &Change,
    ) -> Result<u64, ChangeError> {
        let old = self.kept_version(to).await?.ok_or(ChangeError::NotKept(to))?;
        self.put(&read(&old)?, expected, &change.noted(format!("rollback to {to}"))).await
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        // Nothing that runs under this lock panics; should it, what it guards is still good.
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The rules of a document. One that cannot be read any more, no POP can run either.
fn rules_of(document: &str) -> Vec<KnownRule> {
    let document = Document::read(document.as_bytes(), Form::Json);
    document.map(|document| known_rules(document.rules()).collect()).unwrap_or_default()
}

fn read(held: &Held) -> Result<Document, ChangeError> {
    Document::read(&held.document, Form::Json).map_err(ChangeError::Invalid)
}
