//! `weir-sync check FILE`: judges a file of rules without a fleet, and explains it.

pub mod explain;
mod place;
mod table;
pub mod warn;

use clap::builder::RangedU64ValueParser;
use clap::{Arg, ArgMatches, Command};
use place::Places;
use weir_budget::bound::{Fleet, bound};
use weir_rules::Rule;
use weir_rules::algorithm::Algorithm;
use weir_rules::mode::Mode;
use weir_rules::reading::ConfigError;
use weir_wire::messages::{POPS_MAX, RULES_MAX};
use weir_wire::sharing::WhenUnsynced;
use weir_wire::time::SECOND_NS;

use crate::document::{Document, FILE_BYTES_MAX, Form};
use crate::rules_file;

/// The command's name.
pub const NAME: &str = "check";
/// The most new keys a second, of one POP, that a table is worked out for.
const NEWCOMERS_MAX: u64 = 10_000_000;
/// A millisecond, in nanoseconds.
const MS_NS: u64 = SECOND_NS / 1_000;

/// What the command line looks like.
pub fn command() -> Command {
    let number = |name: &'static str, value: &'static str, default: &'static str, max: u64| {
        let range = RangedU64ValueParser::<u64>::new().range(1..=max);
        Arg::new(name).long(name).value_name(value).default_value(default).value_parser(range)
    };
    let pops_max = u64::from(POPS_MAX);
    Command::new(NAME)
        .about("Judges a file of rules, explains each, and says how far a fleet can get above its quota")
        .arg(
            Arg::new("file")
                .value_name("FILE")
                .required(true)
                .help("The rules, or a plugin configuration, as YAML or JSON"),
        )
        .arg(number("pops", "N", "3", pops_max).help("POPs in each region of the fleet"))
        .arg(number("regions", "M", "1", pops_max).help("Regions of the fleet"))
        .arg(number("interval-ms", "MS", "250", 60_000).help("How often a POP reports"))
        .arg(number("trip-ms", "MS", "100", 60_000).help("From a POP to weir-sync, to Redis, and back"))
        .arg(number("timeout-ms", "MS", "1000", 60_000).help("After which a POP gives up a report"))
        .arg(
            number("newcomers", "PER_SECOND", "1000", NEWCOMERS_MAX)
                .help("New keys a second that the table is to take"),
        )
}

/// What to print; an error if the file or the fleet is no good: a line for each thing that is wrong.
pub fn run(matches: &ArgMatches) -> Result<String, String> {
    let number = |name| matches.get_one::<u64>(name).copied().unwrap_or(1);
    let (each, regions) = (number("pops"), number("regions"));
    let pops = u32::try_from(each * regions).ok().filter(|pops| *pops <= POPS_MAX);
    let pops =
        pops.ok_or(format!("--pops, --regions: expected at most {POPS_MAX} POPs, found {}", each * regions))?;
    let fleet = Fleet {
        pops,
        interval_ns: number("interval-ms") * MS_NS,
        trip_ns: number("trip-ms") * MS_NS,
        timeout_ns: number("timeout-ms") * MS_NS,
        failures: 1,
    };
    let path = matches.get_one::<String>("file").map_or("", String::as_str);
    let document = read(path)?;
    let of = if regions == 1 { String::new() } else { format!(", {each} in each of {regions} regions") };
    Ok(page(path, &document, &fleet, &format!("a fleet of {pops} POPs{of}"), number("newcomers")))
}

/// The document in a file, which may be a plugin configuration; an error is a line for each thing that is wrong, with
/// its line in the file and its rule.
pub fn read(path: &str) -> Result<Document, String> {
    let bytes = rules_file::read(path, FILE_BYTES_MAX);
    let bytes = bytes.map_err(|error| format!("{path}: cannot be read: {error}"))?;
    Document::read_either(&bytes, Form::Either).map_err(|errors| {
        let places = Places::of(&bytes);
        let line = |error: &ConfigError| {
            let ConfigError { place, problem } = error;
            let line = places.line(place).filter(|_| !place.is_empty());
            let line = line.map_or_else(String::new, |line| format!(":{line}"));
            match places.rule(place) {
                Some(rule) => format!("{path}{line}: {place} ({rule}): {problem}"),
                None => format!("{path}{line}: {error}"),
            }
        };
        errors.iter().map(line).collect::<Vec<_>>().join("\n")
    })
}

fn page(path: &str, document: &Document, fleet: &Fleet, called: &str, newcomers: u64) -> String {
    let set = document.rules();
    let rules = set.rules();
    let written = rules.iter().filter(|rule| rule.is_written()).count();
    let mut lines = vec![format!("{path}: {written} rules, good")];
    if written < rules.len() {
        lines.push(format!("With those that tiers and wider make, {} of at most {RULES_MAX}.", rules.len()));
    }
    lines.extend(explain::lists(set));
    for rule in rules {
        let mut sentences = explain::sentences(rule, set).into_iter();
        lines.push(String::new());
        lines.extend(sentences.next());
        lines.extend(sentences.map(|sentence| format!("  {sentence}")));
        // How many newcomers a key for all has, or a wider key for many clients, nobody can say.
        let has_many = rule.is_written() && !rule.key.is_all();
        let needed = table::needed(rule, newcomers).filter(|_| has_many);
        lines.extend(needed.map(|needed| format!("  {needed}")));
        lines.extend(worst_case(rule, fleet).map(|worst| format!("  Worst case in {called}: {worst}")));
    }
    lines.push(String::new());
    lines.push(
        "The worst case holds while no POP's exchange fails twice in a row. A quota is the burst, and the rate times \
         the time. What several rules need of a POP's table adds up."
            .into(),
    );
    let warnings = warn::warnings(set);
    if !warnings.is_empty() {
        lines.push(String::new());
    }
    lines.extend(warnings.into_iter().map(|warning| format!("warning: {warning}")));
    lines.join("\n") + "\n"
}

/// How much a key can get above what the rule says; none if the rule limits nothing.
fn worst_case(rule: &Rule, fleet: &Fleet) -> Option<String> {
    if rule.variant.is_unlimited() || rule.enforcement.mode != Mode::Enforce {
        return None;
    }
    let later = match rule.after {
        Some(_) if rule.reserves => " What responses cost beyond what is reserved comes on top.",
        Some(_) => " What responses cost comes on top.",
        None => "",
    };
    let pops = u64::from(fleet.pops);
    let at_all = u64::from(rule.algorithm.limit()) * pops;
    let told = match &rule.algorithm {
        Algorithm::TokenBucket(_) => match bound(rule.quota, &rule.sharing, fleet) {
            0 if rule.when_unsynced == WhenUnsynced::Deny => "no key gets above its quota.".into(),
            0 => "no key gets above its quota, while its POPs are in touch.".into(),
            tokens => format!("a key gets {tokens} above its quota for a while, and pays it back."),
        },
        Algorithm::LeakyBucket(_) => {
            format!("a key gets {pops} times the rate, as each POP counts for itself.")
        }
        Algorithm::Concurrency(_) => {
            format!("a key has {at_all} in flight at once, as each POP counts for itself.")
        }
        _ => format!("a key gets {at_all} in the same time, as each POP counts for itself."),
    };
    Some(told + later)
}
