//! Counting the instructions of one operation.
//!
//! A case runs in a process of its own, under callgrind: once with some operations, once with twice as many.
//! The difference is theirs alone, without what setting up costs. So that it is the same on every run, and on
//! every machine of one architecture:
//!
//! - glibc is set to use its plain `memcpy` and the like, not those that it would choose for the processor
//!   (another version of glibc may still count otherwise, by a little);
//! - the case has a thread to itself, which alone is counted: what the loader does varies, and how long paths and
//!   the environment are moves the first thread's stack;
//! - nothing in a case is random: one that takes a hash map must give it a hasher.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use crate::cases::Case;

/// The argument for [`run`] in the process that is counted; the title of a case and a number follow.
pub const RUN: &str = "--run";
/// Operations of the shorter run.
const OPERATIONS: u32 = 512;
/// The file in which callgrind writes the cost of the case's thread: the second thread of its process.
const THREAD: &str = "out-02";
/// Processor features that glibc is not to use, under the names that its versions since 2.26 know them by.
const PLAIN: &str = "glibc.cpu.hwcaps=-AVX,-AVX2,-AVX2_Usable,-AVX512F,-AVX512VL,-AVX512F_Usable,\
    -AVX_Fast_Unaligned_Load,-ERMS,-FSRM,-SSSE3,-SSE4_1,-SSE4_2";

/// The path of valgrind; the error has the command that installs it.
pub fn find() -> Result<PathBuf, String> {
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path).map(|folder| folder.join("valgrind")).find(|file| file.is_file());
    found.ok_or_else(|| "valgrind is not in PATH: `python3 -B envoy/lab tools valgrind` installs it".into())
}

/// Instructions of one operation of `case`, rounded down.
pub fn count(valgrind: &Path, case: &Case) -> Result<u64, String> {
    let [few, many] = [OPERATIONS, 2 * OPERATIONS].map(|operations| total(valgrind, case, operations));
    let difference = many?.checked_sub(few?).ok_or("twice the operations took fewer instructions")?;
    Ok(difference / u64::from(OPERATIONS))
}

/// Instructions of this number of operations of `case`, and of setting it up.
fn total(valgrind: &Path, case: &Case, operations: u32) -> Result<u64, String> {
    let program = env::current_exe().map_err(|error| format!("this program's path is unknown: {error}"))?;
    let folder = tempfile::tempdir().map_err(|error| format!("no folder for callgrind's output: {error}"))?;
    let output = Command::new(valgrind)
        .args(["--tool=callgrind", "--separate-threads=yes"])
        .arg(format!("--callgrind-out-file={}", folder.path().join("out").display()))
        .arg(program)
        .args([RUN, &case.title(), &operations.to_string()])
        .env_clear()
        .env("GLIBC_TUNABLES", PLAIN)
        .output()
        .map_err(|error| format!("valgrind cannot be run: {error}"))?;
    let counted = fs::read_to_string(folder.path().join(THREAD)).unwrap_or_default();
    let total = counted.lines().find_map(|line| line.strip_prefix("totals: ")?.parse().ok());
    total.filter(|_| output.status.success()).ok_or_else(|| {
        format!("valgrind counted nothing ({}):\n{}", output.status, String::from_utf8_lossy(&output.stderr))
    })
}

/// The work of the counted process: this number of operations of `case`.
pub fn run(case: Case, operations: u32) {
    let thread = thread::spawn(move || {
        let mut operation = case.start();
        (0..operations).for_each(|_| operation());
    });
    thread.join().expect("the case holds");
}
