"""Whether again.py runs again what it should, and nothing else."""

import contextlib
import io
import stat
import subprocess
import sys
import tempfile
import textwrap
import unittest
from pathlib import Path

import again

# A test program: the first of its tests passes from its second run on, the second never does, unless it is not run.
PROGRAM = """\
    #!/bin/sh
    echo "run: $*" >> "$0.runs"
    case "$*" in
      "--test-threads 2") ;;
      "--test-threads 2 --exact slow") echo "test slow ... ok"; exit {later};;
      *) exit 9;;
    esac
    cat <<'END'
    test slow ... FAILED
    test fine ... ok

    failures:

    ---- slow stdout ----
    thread 'slow' panicked at tests/e2e/main.rs:1:1:
    {said}{more}

    failures:
        slow

    test result: FAILED. 1 passed; 1 failed
    END
    exit 101
"""
STOOD = again.MARK + "stood still for 3456 ms"
OTHER = "\n\n    ---- wrong stdout ----\n    assertion failed: 200 is not 429"


class Again(unittest.TestCase):
    def runs(self, said, more="", later=0):
        """The status of the whole, and how the program was called."""
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder, "e2e")
            program.write_text(textwrap.dedent(PROGRAM).format(said=said, more=textwrap.dedent(more), later=later))
            program.chmod(program.stat().st_mode | stat.S_IXUSR)
            command = [sys.executable, "-B", again.__file__, str(program), "--test-threads", "2"]
            status = subprocess.run(command, capture_output=True, check=False).returncode
            return status, Path(f"{program}.runs").read_text().splitlines()

    ONCE = ["run: --test-threads 2"]
    TWICE = [*ONCE, "run: --test-threads 2 --exact slow"]

    def test_a_test_during_which_the_machine_stood_still_is_run_once_more(self):
        self.assertEqual(self.runs(STOOD), (0, self.TWICE))

    def test_one_that_fails_again_fails(self):
        self.assertEqual(self.runs(STOOD, later=101), (101, self.TWICE))

    def test_any_other_failure_is_one(self):
        self.assertEqual(self.runs("assertion failed: 200 is not 429"), (101, self.ONCE))
        self.assertEqual(self.runs(STOOD, more=OTHER), (101, self.ONCE))

    def test_all_that_failed_while_it_stood_still_are_run_together(self):
        lines = ["---- one stdout ----", STOOD, "", "---- two stdout ----", STOOD, "", "failures:", "    one", "    two"]
        self.assertEqual(again.worth_another_try(lines), ["one", "two"])
        self.assertEqual(again.worth_another_try([*lines[:3], lines[3], "it is wrong", *lines[5:]]), [])

    def test_what_ends_without_naming_a_test_has_failed(self):
        with contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO())):
            self.assertEqual(again.main([sys.executable, "-c", "raise SystemExit(7)"]), 7)
            self.assertEqual(again.main([sys.executable, "-c", ""]), 0)

    def test_it_looks_for_what_the_watch_says(self):
        watch = Path(__file__).with_name("src").joinpath("standstill.rs").read_text()
        self.assertIn(f'"{again.MARK}"', watch)
