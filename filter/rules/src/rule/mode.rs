//! Enforcement of a rule's decisions.

use crate::key::KeyValue;
use crate::key::fleet_secret::FleetSecret;
use crate::reading::Fields;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    #[default]
    Enforce,
    /// Decisions are only counted. They have no other effect, not even on other rules.
    Shadow,
    /// The rule is not evaluated.
    Off,
}

/// A rule's mode, and the part of its keys that the rule is enforced for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enforcement {
    pub mode: Mode,
    /// Percentage of keys, chosen by hash, for which the rule is enforced. For the others it is in shadow.
    pub percent: u8,
}

impl Default for Enforcement {
    fn default() -> Self {
        Self { mode: Mode::Enforce, percent: 100 }
    }
}

impl Enforcement {
    pub(super) fn read(fields: &mut Fields<'_>) -> Self {
        let modes = [("enforce", Mode::Enforce), ("shadow", Mode::Shadow), ("off", Mode::Off)];
        // YAML 1.1 reads a bare `off` as false.
        let is_off = fields.take("mode").is_some_and(|mode| mode.value().as_bool() == Some(false));
        let mode = if is_off { Mode::Off } else { fields.choice("mode", &modes).unwrap_or_default() };
        let percent = fields.number("enforced_percent", 0..=100);
        Self { mode, percent: percent.and_then(|n| u8::try_from(n).ok()).unwrap_or(100) }
    }

    /// True if the rule is enforced for this key. All POPs with the same secret choose the same keys.
    pub fn holds_for(self, key: &KeyValue, secret: &FleetSecret) -> bool {
        let is_drawn = || {
            let mut hash = secret.begin(b"enforced_percent");
            hash.put(key.as_bytes());
            u128::from_le_bytes(hash.finish()) % 100 < u128::from(self.percent)
        };
        self.mode == Mode::Enforce && (self.percent == 100 || is_drawn())
    }
}
