//! Canaries: a rule set that some POPs run beside the current version, until it is promoted or withdrawn. There is at
//! most one at a time. While it runs, no other version can be put, so that the promoted version was tried beside the
//! one that it replaces. The kill switch is the only exception.

use std::sync::Arc;

use serde_json::json;
use weir_cli::document::Document;
use weir_rules::RuleSet;
use weir_rules::reading::ConfigError;
use weir_store::StoreError;
use weir_store::rules::{NewVersion, RulesChange, RulesResult};

use super::change::{Audience, Canary};
use super::{ChangeError, ChangeOrigin, RuleSets, Tried, read, refusal, version_of};
use crate::audit::event::ChangeEvent;

impl RuleSets {
    pub(crate) async fn canary(&self) -> Result<Option<Arc<Canary>>, StoreError> {
        Ok(self.store.canary().await?.and_then(Canary::read).map(Arc::new))
    }

    /// Dry run of [`Self::begin_canary`].
    pub(crate) async fn try_canary(
        &self,
        document: &Document,
        audience: &Audience,
        expected: Option<u64>,
    ) -> Result<Tried, ChangeError> {
        let current = self.current().await?.ok_or(ChangeError::None)?;
        if expected.is_some_and(|expected| expected != current.version) {
            return Err(ChangeError::Conflict(current.version));
        }
        if let Some(canary) = self.canary().await? {
            return Err(ChangeError::Canary(canary.id));
        }
        if let Some(unknown) = audience.unknown(&self.store.fleet().await?) {
            return Err(ChangeError::UnknownPops(unknown));
        }
        let old = read(&current.document)?;
        let errors = strict_errors(old.rules(), document.rules());
        if !errors.is_empty() {
            return Err(ChangeError::Strict(errors));
        }
        Ok(Tried::of(old.value(), document.value(), current.version, None))
    }

    /// Begins a canary for `audience` beside the `expected` version, or any. Returns the canary and the version.
    pub(crate) async fn begin_canary(
        &self,
        document: &Document,
        audience: Audience,
        expected: Option<u64>,
        change: &ChangeOrigin,
    ) -> Result<(Canary, u64), ChangeError> {
        let Tried { current: version, changes, .. } = self.try_canary(document, &audience, expected).await?;
        let ChangeOrigin { author, comment, .. } = change.clone();
        let text = document.text();
        let canary = Canary { id: 0, at_ms: 0, audience, author, comment, document: text.clone().into() };
        // Strings always serialize.
        let kept = serde_json::to_string(&canary).unwrap_or_default();
        let begin = RulesChange::Begin { document: &text, text: &kept, expected: version };
        let lost = ChangeEvent { note: "begin".into(), target: Some(json!(canary.audience)), ..change.event("canary") };
        let result = self.change_rules(&begin, || lost).await?;
        let RulesResult::Begun(id) = result else { return Err(refusal(result)) };
        self.listen_now().await;
        let canary = Canary { id, at_ms: id, ..canary };
        tracing::info!(id, audience = ?canary.audience, author = canary.author, comment = canary.comment, "a canary \
            begins");
        self.audit_log.change(ChangeEvent {
            note: "begin".into(),
            target: Some(canary.json()),
            changes: Some(changes),
            ..change.event("canary")
        });
        Ok((canary, version))
    }

    /// Makes the canary's document the next version. If `id` is given, it must be the canary's.
    pub(crate) async fn promote(&self, id: Option<u64>, change: &ChangeOrigin) -> Result<u64, ChangeError> {
        let canary = self.canary().await?.ok_or(ChangeError::NoCanary)?;
        if id.is_some_and(|id| id != canary.id) {
            return Err(ChangeError::OtherCanary(canary.id));
        }
        let document = read(&canary.document)?;
        let change = change.with_note(format!("promote canary {}", canary.id));
        let promote = RulesChange::Promote { id: canary.id, note: &change.text() };
        let version = version_of(self.change_rules(&promote, || change.event("rules")).await?)?;
        self.is_put(version, &document, &change).await;
        Ok(version)
    }

    /// Ends the canary; nothing else changes. If `id` is given, it must be the canary's.
    pub(crate) async fn withdraw(&self, id: Option<u64>, change: &ChangeOrigin) -> Result<Arc<Canary>, ChangeError> {
        let canary = self.canary().await?.ok_or(ChangeError::NoCanary)?;
        if id.is_some_and(|id| id != canary.id) {
            return Err(ChangeError::OtherCanary(canary.id));
        }
        let back = RulesChange::Withdraw { id: canary.id };
        let result = self.change_rules(&back, || withdrawn(&canary, change)).await?;
        let RulesResult::Withdrawn(id) = result else { return Err(refusal(result)) };
        self.listen_now().await;
        let ChangeOrigin { author, comment, .. } = change;
        tracing::info!(id, author, comment, "a canary is withdrawn");
        self.audit_log.change(withdrawn(&canary, change));
        Ok(canary)
    }

    /// Stores `document` as the version after `expected`, and ends the canary. Does not notify POPs.
    pub(super) async fn put_over(
        &self,
        document: &Document,
        expected: u64,
        change: &ChangeOrigin,
    ) -> Result<u64, ChangeError> {
        let (document, note) = (document.text(), change.text());
        let put = NewVersion { document: &document, expected: Some(expected), note: &note, from_file: false };
        version_of(self.change_rules(&RulesChange::PutOver(put), || change.event("rules")).await?)
    }
}

pub(super) fn withdrawn(canary: &Canary, change: &ChangeOrigin) -> ChangeEvent {
    ChangeEvent { note: "withdraw".into(), target: Some(canary.json()), ..change.event("canary") }
}

/// Errors for strict rules whose terms differ from those of the rule of the same name in the other rule set. POPs of
/// both rule sets draw on one budget, which can guarantee only one quota.
fn strict_errors(old: &RuleSet, new: &RuleSet) -> Vec<ConfigError> {
    let differs = |rule: &weir_rules::Rule| {
        let before = old.rules().iter().find(|before| before.name == rule.name)?;
        let is_strict = before.sharing.strict || rule.sharing.strict;
        let terms = |rule: &weir_rules::Rule| (rule.quota, rule.sharing.strict, rule.sharing.refill_policy);
        let is_same = terms(before) == terms(rule) && before.key == rule.key;
        (is_strict && !is_same).then(|| ConfigError {
            place: format!("rules[{}]", rule.place()),
            problem: format!(
                "expected the key, the quota and the algorithm that the current version has, as `{}` is strict: POPs \
                 of both rule sets draw on one budget; give the rule another name, or put it for all POPs",
                rule.name
            ),
        })
    };
    new.rules().iter().filter_map(differs).collect()
}

#[cfg(test)]
mod tests {
    use weir_cli::document::Form;

    use super::*;

    /// A rule set of one rule with these fields.
    fn rules(fields: &str) -> Document {
        let key = if fields.contains("\"key\"") { "" } else { r#""key": ["client_address"], "# };
        Document::read(format!(r#"{{"rules": [{{"name": "a", {key}{fields}}}]}}"#).as_bytes(), Form::Json).unwrap()
    }

    /// By another key a client would have the quota twice.
    // I6
    #[test]
    fn a_strict_rule_keeps_its_key_and_its_quota_in_a_canary() {
        let strict = r#""rate": "5/s", "strict": true"#;
        let loose = r#""rate": "5/s""#;
        for (old, new, count) in [
            (loose, r#""rate": "9/s""#, 0),
            (strict, r#""rate": "5/s", "strict": true, "match": {"methods": ["POST"]}"#, 0),
            (strict, r#""rate": "6/s", "burst": 5, "strict": true"#, 1),
            (strict, r#""rate": "5/s", "burst": 9, "strict": true"#, 1),
            (strict, r#""rate": "5/s", "strict": true, "key": [{"header": "x-api-key"}]"#, 1),
            (strict, loose, 1),
            (loose, strict, 1),
        ] {
            let errors = strict_errors(rules(old).rules(), rules(new).rules());
            let is_named = |error: &ConfigError| error.place == "rules[0]" && error.problem.contains("`a` is strict");
            assert!(errors.len() == count && errors.iter().all(is_named), "{old}, {new}: {errors:?}");
        }
    }
}
