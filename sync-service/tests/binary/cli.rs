//! The commands that ask a weir-sync that runs: the real binary asks a real one.

mod canary;
mod explain;
mod fleet;
mod overrides;
mod reach;
mod rules;

use crate::running::{CommandOutput, Running, fed, file, run};

const ALICE: &str = "the-token-of-operator-alice";
const BOARD: &str = "the-token-of-a-dashboard";

/// A weir-sync with an operator and a dashboard that may only read, and the operator's token file.
struct Asked {
    running: Running,
    url: String,
    token: String,
    _files: [tempfile::NamedTempFile; 2],
}

impl Asked {
    fn start() -> Self {
        Self::start_with(&[])
    }

    /// The same with more options.
    fn start_with(options: &[&str]) -> Self {
        let (operators, operators_path) = file(&format!("alice write {ALICE}\nboard read {BOARD}\n"));
        let (own, token) = file(&format!("{ALICE}\n"));
        let running = Running::start(&[&["--admin-token-file", &operators_path], options].concat());
        let url = format!("http://{}", running.address);
        Self { running, url, token, _files: [operators, own] }
    }

    /// Output of the command line for the operator.
    fn run(&self, arguments: &[&str]) -> CommandOutput {
        self.fed(arguments, "")
    }

    /// The same with a standard input.
    fn fed(&self, arguments: &[&str], stdin: &str) -> CommandOutput {
        fed(&[arguments, &["--url", &self.url, "--token-file", &self.token]].concat(), stdin)
    }
}

#[test]
fn shells_can_complete_the_commands() {
    for (shell, expected) in [("bash", "complete -F"), ("zsh", "#compdef weir-sync"), ("fish", "complete -c weir-sync")]
    {
        let page = run(&["completions", shell]).page(0);
        assert!(page.contains(expected) && page.contains("rollback") && page.contains("token-file"), "{page}");
    }
    let wrong = run(&["completions", "cmd"]).wrong(2);
    assert!(wrong.contains("bash"), "{wrong}");
}
