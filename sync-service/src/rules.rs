//! The fleet's rule set: versions in the store, and the one that POPs are told to run.
//!
//! The current version is asked for each interval, and its document fetched before any POP is told of it: so
//! a POP that is told a version can fetch it here, whether the store answers or not.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use prometheus_client::metrics::gauge::Gauge;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::time::{Instant, timeout};
use weir_budget::claims::KnownRule;
use weir_rules::reading::ConfigError;

use crate::changes::Changes;
use crate::claims::known_rules;
use crate::document::{Document, Form};
use crate::store::rules::{Kept, Put, Stored, VERSIONS_KEPT};
use crate::store::{Store, StoreError};
use crate::trail::Trail;
use crate::trail::event::Changed;

/// How long a report waits until the version that its POP runs is known here, ...
const HEAR_MAX: Duration = Duration::from_millis(100);
/// ... and how often that is tried.
const HEAR_PAUSE: Duration = Duration::from_secs(1);
/// How often a change is tried again after another writer was quicker.
const TRIES_MAX: u32 = 5;

/// A version and its document, as JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Its number.
    pub version: u64,
    /// What it says.
    pub document: Bytes,
}

/// What made a version, kept beside it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct Change {
    /// Which kind of change it was.
    pub note: String,
    /// The name of the token that made it.
    pub author: String,
    /// What its author says of it.
    pub comment: String,
    /// Where the request for it came from; only the trail keeps that.
    #[serde(skip)]
    pub peer: Option<IpAddr>,
}

impl Change {
    /// The same change with another note.
    fn noted(&self, note: String) -> Self {
        Self { note, ..self.clone() }
    }

    /// As a store keeps it.
    fn text(&self) -> String {
        // Strings alone, which can always be written.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// What a store has kept. A version from before authors were kept has a note alone.
    pub fn read(text: &str) -> Self {
        serde_json::from_str(text).unwrap_or_else(|_| Self { note: text.to_owned(), ..Self::default() })
    }
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
}

/// The fleet's rule set.
pub struct RuleSets {
    store: Arc<dyn Store>,
    trail: Arc<Trail>,
    /// The version that POPs are told to run.
    held: Mutex<Option<Held>>,
    /// Whether the store, when it was last asked, had no version at all.
    is_missing: AtomicBool,
    known: Mutex<Known>,
    /// When the store was last asked because a POP runs a version that is not known here.
    asked_at: tokio::sync::Mutex<Option<Instant>>,
    shown: Gauge,
}

/// The rules of the versions that are kept: POPs may run any of them.
#[derive(Default)]
struct Known {
    versions: BTreeMap<u64, Vec<KnownRule>>,
    /// Whether all versions were looked at that the store had at first.
    is_complete: bool,
    /// Whether [`RuleSets::news`] has returned them.
    is_told: bool,
}

impl std::fmt::Debug for RuleSets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RuleSets").field("version", &self.version()).finish_non_exhaustive()
    }
}

impl RuleSets {
    /// The rule sets in `store`; `shown` is set to the version that POPs are told to run, and `trail` hears of changes.
    pub fn new(store: Arc<dyn Store>, shown: Gauge, trail: Arc<Trail>) -> Self {
        Self {
            store,
            trail,
            held: Mutex::default(),
            is_missing: AtomicBool::new(false),
            known: Mutex::default(),
            asked_at: tokio::sync::Mutex::default(),
            shown,
        }
    }

    /// The version that POPs are told to run, as last heard from the store; 0 if none was.
    pub fn version(&self) -> u64 {
        self.held().as_ref().map_or(0, |held| held.version)
    }

    /// Whether the store answered that it has no rule set.
    pub fn is_missing(&self) -> bool {
        self.is_missing.load(Ordering::Relaxed)
    }

    /// Hears from the store which version is current. A store that has lost its data changes nothing.
    pub async fn listen(&self) -> Result<(), StoreError> {
        let before = self.version();
        let current = self.store.rules_version().await?;
        self.is_missing.store(current.is_none(), Ordering::Relaxed);
        if let Some(current) = current {
            self.know_kept(current).await?;
        }
        let Some(version) = current.filter(|version| *version != before) else { return Ok(()) };
        // Dropped since: the next interval hears of a newer one.
        let Some(document) = self.store.get_rules(version).await? else { return Ok(()) };
        let rules = rules_of(&document);
        let mut held = self.held();
        // What was stored through this weir-sync meanwhile is newer.
        if held.as_ref().map_or(0, |held| held.version) == before {
            self.hold(&mut held, version, document, rules);
        }
        Ok(())
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

    /// The newest version that is known and the rules of all that are kept, if there are new ones since the last call.
    pub fn news(&self) -> Option<(u64, Vec<KnownRule>)> {
        let mut known = self.known();
        if !known.is_complete || std::mem::replace(&mut known.is_told, true) {
            return None;
        }
        let newest = known.versions.keys().next_back().copied().unwrap_or_default();
        Some((newest, known.versions.values().flatten().cloned().collect()))
    }

    /// Looks at the versions that the store has, unless `current` and those before it are known.
    async fn know_kept(&self, current: u64) -> Result<(), StoreError> {
        let is_known = |version| {
            let known = self.known();
            known.is_complete && known.has(version)
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
            Some(version) => self.get(version).await,
            None => Ok(None),
        }
    }

    /// A version that is kept.
    pub async fn get(&self, version: u64) -> Result<Option<Held>, StoreError> {
        let held = self.held().clone().filter(|held| held.version == version);
        if held.is_some() {
            return Ok(held);
        }
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
        let text = document.text();
        let put = Put { document: &text, expected, note: &change.text(), from_file: false };
        let before = self.held().clone();
        match self.store.put_rules(&put).await? {
            Stored::New(version) | Stored::Same(version) => {
                let rules = known_rules(document.rules()).collect();
                self.hold(&mut self.held(), version, text, rules);
                let Change { note, author, comment, .. } = change;
                tracing::info!(version, note, author, comment, "new rule set");
                self.tell_of(version, document, before, change).await;
                Ok(version)
            }
            Stored::Conflict(version) => Err(ChangeError::Conflict(version)),
        }
    }

    /// Tells the trail of a new version, which was made of the one before it; `held` may be that.
    async fn tell_of(&self, version: u64, document: &Document, held: Option<Held>, change: &Change) {
        if !self.trail.is_on() {
            return;
        }
        // Each version is the one before it plus 1, except the first.
        let known = held.filter(|held| held.version == version.saturating_sub(1));
        let old = match known {
            Some(held) => Ok(Some(held)),
            None => self.get(version.saturating_sub(1)).await,
        };
        // Without the store's answer it is not known what there was before.
        let (before, changes) = match old {
            Ok(old) => {
                let value = old.as_ref().map(|old| serde_json::from_slice(&old.document).unwrap_or_default());
                let changes = Changes::between(&value.unwrap_or_default(), document.value());
                (Some(old.map_or(0, |old| old.version)), Some(changes))
            }
            Err(_) => (None, None),
        };
        let Change { note, author, comment, peer } = change.clone();
        let after = Some(version);
        self.trail.change(Changed {
            what: "rules",
            author,
            peer,
            comment,
            note,
            before,
            after,
            changes,
            ..Changed::default()
        });
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
        let changes = Changes::between(&old.unwrap_or_default(), document.value());
        Ok(Tried { current: version, next: current.map(|held| held.version + 1), is_same, changes })
    }

    /// Puts what a watched file says, if that is news to the store; then returns the new version.
    pub async fn put_file(&self, document: &Document) -> Result<Option<u64>, StoreError> {
        let text = document.text();
        let change = Change { note: "file".into(), author: "rules_file".into(), ..Change::default() };
        let put = Put { document: &text, expected: None, note: &change.text(), from_file: true };
        let before = self.held().clone();
        let Stored::New(version) = self.store.put_rules(&put).await? else { return Ok(None) };
        let rules = known_rules(document.rules()).collect();
        self.hold(&mut self.held(), version, text, rules);
        self.tell_of(version, document, before, &change).await;
        Ok(Some(version))
    }

    /// Puts the document of the kept version `to` as a new one.
    pub async fn roll_back(
        &self,
        to: u64,
        expected: Option<u64>,
        change: &Change,
    ) -> Result<u64, ChangeError> {
        let old = self.get(to).await?.ok_or(ChangeError::NotKept(to))?;
        self.put(&read(&old)?, expected, &change.noted(format!("rollback to {to}"))).await
    }

    /// Puts the current document with all its rules on or off; if they already are, puts nothing.
    pub async fn enforce(&self, enforce: bool, change: &Change) -> Result<u64, ChangeError> {
        let change = change.noted(format!("kill switch: enforce {enforce}"));
        let mut tries = 0;
        loop {
            let current = self.current().await?.ok_or(ChangeError::None)?;
            let document = read(&current)?;
            if document.is_enforced() == enforce {
                return Ok(current.version);
            }
            tries += 1;
            match self.put(&document.with_enforce(enforce), Some(current.version), &change).await {
                Err(ChangeError::Conflict(_)) if tries < TRIES_MAX => {}
                result => return result,
            }
        }
    }

    fn hold(
        &self,
        held: &mut MutexGuard<'_, Option<Held>>,
        version: u64,
        document: String,
        rules: Vec<KnownRule>,
    ) {
        self.shown.set(i64::try_from(version).unwrap_or(i64::MAX));
        self.known().add(version, rules);
        **held = Some(Held { version, document: document.into() });
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn held(&self) -> MutexGuard<'_, Option<Held>> {
        // Nothing that runs under this lock panics; should it, what it guards is still good.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    /// Adds the rules of a version.
    fn add(&mut self, version: u64, rules: Vec<KnownRule>) {
        self.versions.insert(version, rules);
        while self.versions.len() > VERSIONS_KEPT {
            self.versions.pop_first();
        }
        self.is_told = false;
    }

    /// Whether the rules of `version` are known, or none are known yet.
    fn has(&self, version: u64) -> bool {
        !self.is_complete || self.versions.contains_key(&version)
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
