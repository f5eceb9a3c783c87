//! `weir-sync import ratelimit FILE...`: converts a configuration of envoyproxy/ratelimit ([`config`]) to rules that
//! decide alike ([`rules`]).

mod config;
mod rules;

use clap::{Arg, ArgAction, ArgMatches, Command};

use crate::document::source::{self, FILE_BYTES_MAX};

pub const NAME: &str = "import";
const RATELIMIT: &str = "ratelimit";

pub fn command() -> Command {
    let files = Arg::new("file").value_name("FILE").required(true).action(ArgAction::Append).num_args(1..);
    let ratelimit = Command::new(RATELIMIT)
        .about("Turns a configuration of envoyproxy/ratelimit into rules, and prints them")
        .arg(files.help("Its YAML files, in one go; - is the standard input"));
    Command::new(NAME)
        .about("Turns another rate limiter's configuration into rules")
        .subcommand_required(true)
        .subcommand(ratelimit)
}

/// Returns rules as YAML. An error has one line, with the place, for each thing that rules cannot express.
pub fn run(matches: &ArgMatches) -> Result<String, String> {
    let paths = matches.subcommand_matches(RATELIMIT).and_then(|matches| matches.get_many::<String>("file"));
    let mut files = Vec::new();
    let mut errors = Vec::new();
    for path in paths.into_iter().flatten() {
        match source::read_text(path, FILE_BYTES_MAX) {
            Ok(text) => files.push((path.as_str(), text)),
            Err(error) => errors.push(format!("{path}: {error}")),
        }
    }
    if !errors.is_empty() {
        return Err(errors.join("\n"));
    }
    let files: Vec<_> = files.iter().map(|(path, text)| (*path, text.as_str())).collect();
    ratelimit(&files)
}

/// Like [`run`], for `files` given by name and text.
pub fn ratelimit(files: &[(&str, &str)]) -> Result<String, String> {
    let domains = config::read(files)?;
    rules::write(&domains)
}
