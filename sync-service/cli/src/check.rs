//! `weir-sync check FILE...`: checks rule files without a fleet, and explains them.

mod embedded;
pub(crate) mod explain;
mod page;
mod place;
pub mod warn;

use clap::{Arg, ArgAction, ArgMatches, Command};
use serde::Serialize;
use weir_budget::bound::FleetParameters;
use weir_protocol::messages::POPS_MAX;
use weir_protocol::time::SECOND_NS;

use crate::document::source::{self, FILE_BYTES_MAX, STDIN};
use crate::document::{Document, DocumentError, Form, Whole};
use crate::output::{CommandEnd, CommandOutput, CommandResult, Failure, pretty};
use crate::{flag, number};
use embedded::Embedded;
use page::ExplainParameters;
use place::{FilePart, Finding, Severity};

pub const NAME: &str = "check";
/// Maximum of `--new-keys`: new keys a second at one POP.
const NEWCOMERS_MAX: u64 = 10_000_000;
const MS_NS: u64 = SECOND_NS / 1_000;

pub fn command() -> Command {
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
        .arg(number("pops", "N", pops_max).default_value("3").help("POPs in each region of the fleet"))
        .arg(number("regions", "M", pops_max).default_value("1").help("Regions of the fleet"))
        .arg(number("interval-ms", "MS", 60_000).default_value("250").help("How often a POP reports"))
        .arg(number("rtt-ms", "MS", 60_000).default_value("100").help("From a POP to weir-sync, to Redis, and back"))
        .arg(number("timeout-ms", "MS", 60_000).default_value("1000").help("After which a POP gives up a report"))
        .arg(
            number("new-keys", "PER_SECOND", NEWCOMERS_MAX)
                .default_value("1000")
                .help("New keys a second that the table is to take"),
        )
}

#[derive(Serialize)]
struct CheckReport<'a> {
    is_good: bool,
    errors: usize,
    warnings: usize,
    files: &'a [CheckedFile<'a>],
}

pub(crate) fn run(matches: &ArgMatches) -> CommandResult {
    let parameters = parameters(matches).map_err(Failure::unusable)?;
    let files: Vec<&str> = matches.get_many::<String>("file").into_iter().flatten().map(String::as_str).collect();
    if files.iter().filter(|file| **file == STDIN).count() > 1 {
        return Err(Failure::unusable("expected - once: the standard input can be read only once"));
    }
    let files: Vec<CheckedFile<'_>> = files.into_iter().flat_map(CheckedFile::all).collect();
    let count = |severity| {
        let findings = files.iter().flat_map(|file| &file.findings);
        findings.filter(|finding| finding.severity == severity).count()
    };
    let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
    let forbidden = if matches.get_flag("strict") { warnings } else { 0 };
    let end = match files.iter().all(|file| file.is_read) {
        false => CommandEnd::Unusable,
        true if errors + forbidden > 0 => CommandEnd::Refused,
        true => CommandEnd::Done,
    };
    if matches.get_flag("json") {
        let report = CheckReport { is_good: end == CommandEnd::Done, errors, warnings, files: &files };
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

#[derive(Serialize)]
pub(crate) struct CheckedFile<'a> {
    file: &'a str,
    is_good: bool,
    /// Errors, or the warnings of a good file.
    findings: Vec<Finding>,
    #[serde(skip)]
    is_read: bool,
    #[serde(skip)]
    whole: Option<Whole>,
}

impl<'a> CheckedFile<'a> {
    /// Checks the file at this path, which may contain several configurations; `-` is the standard input.
    fn all(file: &'a str) -> Vec<Self> {
        let bad = |is_read, problem| {
            vec![Self { file, is_good: false, findings: vec![Finding::of_file(problem)], is_read, whole: None }]
        };
        let bytes = match source::read_file(file, FILE_BYTES_MAX) {
            Ok(bytes) => bytes,
            Err(error) => return bad(false, format!("cannot be read: {error}")),
        };
        match embedded::of(&bytes) {
            None => vec![Self::of(file, Whole::read(&bytes, Form::Either), &bytes, FilePart::default())],
            Some(Err(problem)) => bad(true, problem),
            Some(Ok(found)) => {
                let one = |Embedded { document, place, value }: Embedded| {
                    let whole = Whole::of_plugin(value.as_object().cloned().unwrap_or_default());
                    Self::of(file, whole.map_err(DocumentError::Fields), &bytes, FilePart { document, place: &place })
                };
                found.into_iter().map(one).collect()
            }
        }
    }

    fn of(file: &'a str, read: Result<Whole, DocumentError>, bytes: &[u8], part: FilePart<'_>) -> Self {
        let (whole, findings) = match read {
            Ok(whole) => {
                let mut warnings = warn::warnings(whole.document.rules());
                warnings.extend(whole.plugin.as_ref().and_then(warn::of_plugin));
                (Some(whole), Finding::warnings(warnings, bytes, part))
            }
            Err(fault) => (None, Finding::errors(fault, bytes, part)),
        };
        Self { file, is_good: whole.is_some(), findings, is_read: true, whole }
    }

    /// The first document in a valid file; otherwise an error with one line per problem.
    pub(crate) fn document(file: &'a str) -> Result<Document, String> {
        let first = Self::all(file).into_iter().next().ok_or_else(String::new)?;
        let errors = first.errors();
        first.whole.map(|whole| whole.document).ok_or(errors)
    }

    /// Checks the content of a file; returns one line per problem, or `None` if it is valid.
    pub(crate) fn errors_in(file: &'a str, bytes: &[u8]) -> Option<String> {
        let checked = Self::of(file, Whole::read(bytes, Form::Either), bytes, FilePart::default());
        (!checked.is_good).then(|| checked.errors())
    }

    /// Explanation and warnings of a valid file, or `None` if it has errors.
    fn page(&self, parameters: &ExplainParameters) -> Option<String> {
        let page = parameters.page(self.file, self.whole.as_ref()?);
        let gap = if self.findings.is_empty() { "" } else { "\n" };
        let warnings: String = self.findings.iter().map(|warning| warning.line(self.file) + "\n").collect();
        Some(page + gap + &warnings)
    }

    fn errors(&self) -> String {
        let errors = self.findings.iter().filter(|finding| finding.severity == Severity::Error);
        errors.map(|error| error.line(self.file)).collect::<Vec<_>>().join("\n")
    }
}
