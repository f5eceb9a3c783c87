//! `weir-sync check FILE...`: checks rule files without a fleet, and explains them.

pub(crate) mod checked_file;
mod embedded;
pub(crate) mod explain;
mod page;
mod place;
pub mod warn;

use clap::builder::RangedU64ValueParser;
use clap::{Arg, ArgAction, ArgMatches, Command};
use serde::Serialize;
use weir_budget::bound::FleetParameters;
use weir_protocol::messages::POPS_MAX;
use weir_protocol::time::SECOND_NS;

use crate::document::source::STDIN;
use crate::output::{CommandEnd, CommandOutput, CommandResult, Failure, pretty};
pub(crate) use checked_file::CheckedFile;
use page::ExplainParameters;
use place::Severity;

/// The command's name.
pub const NAME: &str = "check";
/// Maximum number of new keys a second at one POP that the table's size is computed for.
const NEWCOMERS_MAX: u64 = 10_000_000;
/// A millisecond, in nanoseconds.
const MS_NS: u64 = SECOND_NS / 1_000;

/// Output as JSON.
#[derive(Serialize)]
struct CheckReport<'a> {
    is_good: bool,
    errors: usize,
    warnings: usize,
    files: Vec<checked_file::FileReport<'a>>,
}

/// Command line of the command.
pub fn command() -> Command {
    let number = |name: &'static str, value: &'static str, default: &'static str, max: u64| {
        let range = RangedU64ValueParser::<u64>::new().range(1..=max);
        Arg::new(name).long(name).value_name(value).default_value(default).value_parser(range)
    };
    let flag = |name: &'static str| Arg::new(name).long(name).action(ArgAction::SetTrue);
    let files = Arg::new("file").value_name("FILE").required(true).action(ArgAction::Append).num_args(1..);
    let pops_max = u64::from(POPS_MAX);
    Command::new(NAME)
        .about("Checks files of rules, explains each rule, and shows how far a fleet can get above its quota")
        .after_help(
            "It ends with 0 if all files are good, 1 if one has errors (with --strict: or warnings), 2 if one cannot \
             be read or the command line is wrong.",
        )
        .arg(files.help(
            "Rules, a plugin configuration, or a file of Envoy or Kubernetes with one, as YAML or JSON; - is the \
             standard input",
        ))
        .arg(flag("json").help("Say only what is wrong, for programs: one JSON document"))
        .arg(flag("strict").help("End with 1 where there are warnings, too"))
        .arg(number("pops", "N", "3", pops_max).help("POPs in each region of the fleet"))
        .arg(number("regions", "M", "1", pops_max).help("Regions of the fleet"))
        .arg(number("interval-ms", "MS", "250", 60_000).help("How often a POP reports"))
        .arg(number("rtt-ms", "MS", "100", 60_000).help("From a POP to weir-sync, to Redis, and back"))
        .arg(number("timeout-ms", "MS", "1000", 60_000).help("After which a POP gives up a report"))
        .arg(
            number("new-keys", "PER_SECOND", "1000", NEWCOMERS_MAX).help("New keys a second that the table is to take"),
        )
}

/// Checks the files. Fails if the command line is wrong.
pub(crate) fn run(matches: &ArgMatches) -> CommandResult {
    let parameters = parameters(matches).map_err(Failure::unusable)?;
    let files: Vec<&str> = matches.get_many::<String>("file").into_iter().flatten().map(String::as_str).collect();
    if files.iter().filter(|file| **file == STDIN).count() > 1 {
        let sentence = "expected - once: the standard input can be read only once";
        return Err(Failure::unusable(sentence));
    }
    let files: Vec<CheckedFile<'_>> = files.into_iter().flat_map(CheckedFile::all).collect();
    let count =
        |severity| files.iter().flat_map(CheckedFile::findings).filter(|finding| finding.severity == severity).count();
    let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
    let forbidden = if matches.get_flag("strict") { warnings } else { 0 };
    let end = match files.iter().all(CheckedFile::is_read) {
        false => CommandEnd::Unusable,
        true if errors + forbidden > 0 => CommandEnd::Refused,
        true => CommandEnd::Done,
    };
    if matches.get_flag("json") {
        let files = files.iter().map(CheckedFile::report).collect();
        let report = CheckReport { is_good: end == CommandEnd::Done, errors, warnings, files };
        return Ok(CommandOutput { end, ..CommandOutput::done(pretty(&report)) });
    }
    let mut lines: Vec<_> = files.iter().map(CheckedFile::errors).filter(|lines| !lines.is_empty()).collect();
    if forbidden > 0 {
        lines.push(format!("--strict: expected no warnings, found {forbidden}"));
    }
    let pages: Vec<_> = files.iter().filter_map(|file| file.page(&parameters)).collect();
    Ok(CommandOutput { end, notes: lines.join("\n"), ..CommandOutput::done(pages.join("\n")) })
}

fn parameters(matches: &ArgMatches) -> Result<ExplainParameters, String> {
    let number = |name| matches.get_one::<u64>(name).copied().unwrap_or(1);
    let (each, regions) = (number("pops"), number("regions"));
    let pops = u32::try_from(each * regions).ok().filter(|pops| *pops <= POPS_MAX);
    let pops = pops.ok_or(format!("--pops, --regions: expected at most {POPS_MAX} POPs, found {}", each * regions))?;
    let fleet = FleetParameters {
        pops,
        interval_ns: number("interval-ms") * MS_NS,
        trip_ns: number("rtt-ms") * MS_NS,
        timeout_ns: number("timeout-ms") * MS_NS,
        failures: 1,
    };
    let of = if regions == 1 { String::new() } else { format!(", {each} in each of {regions} regions") };
    Ok(ExplainParameters {
        fleet,
        called: if pops == 1 { "a fleet of one POP".into() } else { format!("a fleet of {pops} POPs{of}") },
        newcomers: number("new-keys"),
    })
}
