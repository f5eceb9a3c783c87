//! The commands that ask a weir-sync that runs: the real binary asks a real one.

mod canary;
mod explain;
mod fleet;
mod overrides;
mod reach;
mod rules;

use std::io::Write as _;
use std::process::{Output, Stdio};

use serde_json::Value;

use crate::running::{Running, file, weir_sync};

const ALICE: &str = "the-token-of-operator-alice";
const BOARD: &str = "the-token-of-a-dashboard";

/// Output of a command, and its exit code.
#[derive(Debug)]
struct CommandOutput {
    code: Option<i32>,
    page: String,
    errors: String,
}

impl CommandOutput {
    fn of(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code(), page: text(output.stdout), errors: text(output.stderr) }
    }

    /// The page, if it ended so.
    fn page(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "{self:?}");
        self.page
    }

    /// Its JSON, if it ended with `code`.
    fn json(self, code: i32) -> Value {
        serde_json::from_str(&self.page(code)).unwrap()
    }

    /// Why it was of no use, if it ended so and printed nothing.
    fn wrong(self, code: i32) -> String {
        assert_eq!((self.code, self.page.as_str()), (Some(code), ""), "{self:?}");
        self.errors
    }
}

/// A weir-sync with an operator and a dashboard that may only read, and the operator's token file.
struct Asked {
    running: Running,
    url: String,
    token: String,
    _files: [tempfile::NamedTempFile; 2],
}

impl Asked {
    fn start() -> Self {
        let (operators, operators_path) = file(&format!("alice write {ALICE}\nboard read {BOARD}\n"));
        let (own, token) = file(&format!("{ALICE}\n"));
        let running = Running::start(&["--admin-token-file", &operators_path]);
        let url = format!("http://{}", running.address);
        Self { running, url, token, _files: [operators, own] }
    }

    /// Output of the command line for the operator.
    fn run(&self, arguments: &[&str]) -> CommandOutput {
        self.fed(arguments, "")
    }

    /// The same with a standard input.
    fn fed(&self, arguments: &[&str], stdin: &str) -> CommandOutput {
        let asked = ["--url", &self.url, "--token-file", &self.token];
        let mut command = weir_sync(&[arguments, &asked[..]].concat()).stdin(Stdio::piped()).spawn().unwrap();
        // It may end before it has read anything.
        let _ = command.stdin.take().unwrap().write_all(stdin.as_bytes());
        CommandOutput::of(command.wait_with_output().unwrap())
    }
}

#[test]
fn shells_can_complete_the_commands() {
    for (shell, expected) in [("bash", "complete -F"), ("zsh", "#compdef weir-sync"), ("fish", "complete -c weir-sync")]
    {
        let page = CommandOutput::of(weir_sync(&["completions", shell]).output().unwrap()).page(0);
        assert!(page.contains(expected) && page.contains("rollback") && page.contains("token-file"), "{page}");
    }
    let wrong = CommandOutput::of(weir_sync(&["completions", "cmd"]).output().unwrap()).wrong(2);
    assert!(wrong.contains("bash"), "{wrong}");
}
