//! Short names of versions for people: `r12` is the store's twelfth version.

use clap::ArgMatches;
use serde_json::Value;

use super::api::{Api, ApiRequest};
use super::output::Failure;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Named {
    Number(u64),
    Short(u64),
}

/// Basis of short names: the newest version and the number in its name. Versions are consecutive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Names {
    newest: u64,
    short: u64,
}

impl Named {
    /// Parses `r12` or a number.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let (digits, named): (_, fn(u64) -> Self) = match text.strip_prefix('r') {
            Some(digits) => (digits, Self::Short),
            None => (text, Self::Number),
        };
        let number = digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok()).flatten();
        let number = number.filter(|number| *number > 0);
        number.map(named).ok_or_else(|| "expected a version, as in r12, or its whole number".to_owned())
    }

    pub(super) async fn number(self, api: &Api) -> Result<u64, Failure> {
        match self {
            Self::Number(number) => Ok(number),
            Self::Short(short) => {
                let missing = || Failure::refused(format!("there is no version r{short}: `rules versions` lists them"));
                Names::ask(api).await?.number(short).ok_or_else(missing)
            }
        }
    }
}

impl Names {
    /// Fetches the names from weir-sync. If that fails, versions keep their numbers.
    pub(super) async fn known(api: &Api) -> Self {
        Self::ask(api).await.unwrap_or_default()
    }

    /// Fetches the names, unless the output is JSON, which has only numbers.
    pub(super) async fn for_people(api: &Api, matches: &ArgMatches) -> Self {
        if matches.get_flag("json") { Self::default() } else { Self::known(api).await }
    }

    async fn ask(api: &Api) -> Result<Self, Failure> {
        Ok(Self::of_kept(&api.ask(ApiRequest::get(&["rules", "versions"])).await?.body))
    }

    pub(super) fn of_kept(answer: &Value) -> Self {
        let newest = &answer["versions"][0];
        let number = |field: &str| newest[field].as_u64().unwrap_or_default();
        let short = newest["name"].as_str().and_then(|name| name.strip_prefix('r')?.parse().ok());
        Self { newest: number("version"), short: short.unwrap_or_default() }
    }

    /// Short name of a version; its number if it has none.
    pub(super) fn of(self, version: u64) -> String {
        let back = self.newest.checked_sub(version).filter(|back| *back < self.short);
        back.map_or_else(|| version.to_string(), |back| format!("r{}", self.short - back))
    }

    fn number(self, short: u64) -> Option<u64> {
        self.newest.checked_sub(self.short.checked_sub(short)?)
    }
}

/// Number of the version that the argument `argument` names, if it is given.
pub(super) async fn given_version(api: &Api, matches: &ArgMatches, argument: &str) -> Result<Option<u64>, Failure> {
    match matches.get_one::<Named>(argument) {
        Some(named) => named.number(api).await.map(Some),
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn short_names_go_back_from_the_newest_version() {
        let kept = json!({"versions": [{"version": 1_763_900_000_011_u64, "name": "r12"}]});
        let names = Names::of_kept(&kept);
        for (version, name) in [(1_763_900_000_011, "r12"), (1_763_900_000_000, "r1")] {
            assert_eq!(names.of(version), name);
            assert_eq!(names.number(name[1..].parse().unwrap()), Some(version));
        }
        assert_eq!(
            (names.of(1_763_899_999_999), names.of(2 * 1_763_900_000_011)),
            ("1763899999999".into(), "3527800000022".into())
        );
        assert_eq!((names.number(13), Names::default().of(7)), (None, "7".into()));
        assert_eq!((Named::read("r12"), Named::read("7")), (Ok(Named::Short(12)), Ok(Named::Number(7))));
        for wrong in ["r", "", "r0", "0", "v1", "r-1", "+1"] {
            assert!(Named::read(wrong).is_err(), "{wrong}");
        }
    }
}
