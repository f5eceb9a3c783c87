//! Anomalies that are under way.

use super::event::AnomalyEvent;

/// Maximum number of anomalies that are listed.
const UNDER_WAY_MAX: usize = 50;

/// Anomalies that have begun and not ended, the latest first.
#[derive(Clone, Debug, Default)]
pub(super) struct OngoingAnomalies(Vec<AnomalyEvent>);

impl OngoingAnomalies {
    /// Applies the beginning or the end of an anomaly.
    pub(super) fn note(&mut self, odd: &AnomalyEvent) {
        self.0.retain(|other| about(other) != about(odd));
        if odd.state == "begin" {
            self.0.insert(0, odd.clone());
            self.0.truncate(UNDER_WAY_MAX);
        }
    }

    /// Updates an anomaly with the last minute's reading.
    pub(super) fn update(&mut self, odd: AnomalyEvent) {
        if let Some(known) = self.0.iter_mut().find(|known| about(known) == about(&odd)) {
            *known = odd;
        }
    }

    pub(super) fn list(&self) -> &[AnomalyEvent] {
        &self.0
    }
}

fn about(odd: &AnomalyEvent) -> (&str, &str, Option<&str>, Option<&str>) {
    (odd.anomaly, &odd.rule, odd.pop.as_deref(), odd.key.as_deref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_are_listed_that_have_begun_and_not_ended() {
        let mut under_way = OngoingAnomalies::default();
        let mut note = |rule: &str, pop: Option<&str>, state| {
            let pop = pop.map(str::to_owned);
            under_way.note(&AnomalyEvent {
                anomaly: "rate",
                state,
                rule: rule.into(),
                pop,
                ..AnomalyEvent::default()
            });
            under_way.list().iter().map(|odd| odd.rule.clone()).collect::<Vec<_>>()
        };
        assert_eq!(note("login", None, "begin"), ["login"]);
        assert_eq!(note("api", Some("fra1"), "begin"), ["api", "login"]);
        assert_eq!(note("api", Some("nyc1"), "end"), ["api", "login"]);
        assert_eq!(note("login", None, "end"), ["api"]);
        let found =
            |found, pop: &str| AnomalyEvent { found, pop: Some(pop.into()), ..under_way.list()[0].clone() };
        let (here, elsewhere) = (found(7.0, "fra1"), found(9.0, "nyc1"));
        under_way.update(elsewhere);
        under_way.update(here);
        assert_eq!(under_way.list().iter().map(|odd| odd.found).collect::<Vec<_>>(), [7.0]);
        let mut note = |rule: &str, pop: Option<&str>, state| {
            let pop = pop.map(str::to_owned);
            under_way.note(&AnomalyEvent {
                anomaly: "rate",
                state,
                rule: rule.into(),
                pop,
                ..AnomalyEvent::default()
            });
            under_way.list().iter().map(|odd| odd.rule.clone()).collect::<Vec<_>>()
        };
        for number in 0..2 * UNDER_WAY_MAX {
            note(&number.to_string(), None, "begin");
        }
        assert_eq!(note("last", None, "begin").len(), UNDER_WAY_MAX);
    }
}
