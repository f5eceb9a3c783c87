//! Rule sets with the canary, and overrides, in Redis: a hash each, changed by one script each.

use super::Redis;
use super::exchange::RoutedCommand;
use crate::StoreError;
use crate::rules::{Current, OverrideChange, OverrideResult, StoredOverride, StoredOverrides, Until};
use crate::rules::{NewVersion, RulesChange, RulesResult, StoredCanary, StoredVersion, VERSIONS_KEPT};

const RULES: &str = "rules";

type OverridesRow = (u64, u64, u64, u64, u64, Vec<(String, String)>);

impl Redis {
    pub(super) async fn write_rules(&self, change: &RulesChange<'_>) -> Result<RulesResult, StoreError> {
        let (what, document, expected, note, from_file, id) = match *change {
            RulesChange::Put(NewVersion { document, expected, note, from_file }) => {
                ("put", document, expected, note, from_file, None)
            }
            RulesChange::PutOver(NewVersion { document, expected, note, from_file }) => {
                ("put over", document, expected, note, from_file, None)
            }
            RulesChange::Begin { document, text, expected } => ("begin", document, Some(expected), text, false, None),
            RulesChange::Promote { id, note } => ("promote", "", None, note, false, Some(id)),
            RulesChange::Withdraw { id } => ("withdraw", "", None, "", false, Some(id)),
        };
        let mut call = RoutedCommand::of(&self.scripts.rules, &[self.keys.one(RULES)]);
        call.arg(what).arg(document).arg(or_empty(expected)).arg(note).arg(u8::from(from_file)).arg(or_empty(id));
        match self.send(&self.scripts.rules, call).await? {
            (1, version) => Ok(RulesResult::Put(version)),
            (0, version) => Ok(RulesResult::Same(version)),
            (2, id) => Ok(RulesResult::Begun(id)),
            (3, id) => Ok(RulesResult::Withdrawn(id)),
            (-1, version) => Ok(RulesResult::Conflict(version)),
            (-2, id) => Ok(RulesResult::Runs(id)),
            (-3, 0) => Ok(RulesResult::Missing),
            _ => Err(StoreError::Invalid("another outcome of a change of the rules")),
        }
    }

    /// Reads fields of the rule sets' hash at one moment.
    pub(super) async fn fields<T: redis::FromRedisValue>(&self, fields: &[String]) -> Result<T, StoreError> {
        let rules = self.keys.one(RULES);
        let mut call = RoutedCommand::new("HMGET", &rules);
        call.arg(&rules).arg(fields);
        self.send(&self.scripts.rules, call).await
    }

    pub(super) async fn read_canary(&self) -> Result<Option<StoredCanary>, StoreError> {
        let names = ["canary", "canary:note", "canary:document"].map(String::from);
        let row: (Option<u64>, Option<String>, Option<String>) = self.fields(&names).await?;
        let (Some(id), Some(note), Some(document)) = row else { return Ok(None) };
        let (at_ms, text) = note.split_once(' ').unwrap_or_default();
        let at_ms = at_ms.parse().map_err(|_| StoreError::Invalid("a canary without a time"))?;
        Ok(Some(StoredCanary { id, at_ms, text: text.to_owned(), document }))
    }

    pub(super) async fn read_versions(&self) -> Result<Vec<StoredVersion>, StoreError> {
        let Some(current) = self.read_current().await?.version else { return Ok(Vec::new()) };
        let versions = (0..VERSIONS_KEPT as u64).map_while(|back| current.checked_sub(back));
        let names = versions.clone().map(|version| format!("note:{version}"));
        let names: Vec<String> = [String::from("first")].into_iter().chain(names).collect();
        let mut fields = self.fields::<Vec<Option<String>>>(&names).await?.into_iter();
        let first = fields.next().flatten().and_then(|first| first.parse().ok());
        let kept = |(version, note): (u64, Option<String>)| {
            let (at_s, note) = note.as_deref()?.split_once(' ')?;
            Some(StoredVersion { version, short: 0, at_s: at_s.parse().ok()?, note: note.to_owned() })
        };
        let mut kept: Vec<StoredVersion> = versions.zip(fields).filter_map(kept).collect();
        // Versions are numbered from the first; if that is not known, from the first that is kept.
        let first = first.or(kept.last().map(|oldest| oldest.version)).unwrap_or(current);
        for known in &mut kept {
            known.short = known.version.saturating_sub(first) + 1;
        }
        Ok(kept)
    }

    pub(super) async fn read_current(&self) -> Result<Current, StoreError> {
        let names = ["current", "overrides", "canary"].map(String::from);
        let (version, overrides, canary): (Option<u64>, Option<u64>, Option<u64>) = self.fields(&names).await?;
        Ok(Current { version, overrides: overrides.unwrap_or_default(), canary: canary.unwrap_or_default() })
    }

    pub(super) async fn write_overrides(
        &self,
        change: Option<&OverrideChange<'_>>,
    ) -> Result<StoredOverrides, StoreError> {
        // In one cluster slot.
        let names = [self.keys.one(RULES), self.keys.beside(RULES, "overrides")];
        let mut call = RoutedCommand::of(&self.scripts.overrides, &names);
        match change {
            None => drop(call.arg("").arg("").arg("").arg("").arg("")),
            Some(OverrideChange::Drop(name)) => drop(call.arg("drop").arg(*name).arg("").arg("").arg("")),
            Some(OverrideChange::Put { name, text, until }) => {
                call.arg("put").arg(*name).arg(*text);
                match until {
                    Until::In(for_ms) => call.arg(*for_ms).arg(""),
                    Until::At(until_ms) => call.arg("").arg(*until_ms),
                };
            }
        }
        let row: OverridesRow = self.send(&self.scripts.overrides, call).await?;
        let (version, overrides, canary, now_ms, outcome, rows) = row;
        let outcome = match outcome {
            0 => OverrideResult::Done,
            1 => OverrideResult::Full,
            2 => OverrideResult::Missing,
            _ => return Err(StoreError::Invalid("another outcome of a change of overrides")),
        };
        // Overrides that cannot be parsed are from another program.
        let mut kept: Vec<_> = rows.into_iter().filter_map(|(name, value)| stored_override(name, &value)).collect();
        kept.sort_by_key(|order| order.id);
        let current = Current { version: Some(version).filter(|version| *version > 0), overrides, canary };
        Ok(StoredOverrides { current, now_ms, outcome, kept })
    }
}

fn stored_override(name: String, value: &str) -> Option<StoredOverride> {
    let mut words = value.splitn(4, ' ');
    let mut number = || words.next()?.parse().ok();
    let (id, at_ms, until_ms) = (number()?, number()?, number()?);
    Some(StoredOverride { name, id, at_ms, until_ms, text: words.next()?.to_owned() })
}

fn or_empty(number: Option<u64>) -> String {
    number.map_or_else(String::new, |number| number.to_string())
}
