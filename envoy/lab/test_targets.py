"""Each target of the Makefile names the first program that it lacks, at once, and none that it does not need."""

import os
import shutil
import subprocess
import tempfile
import unittest

import paths
import shipping

# What a target may need. Here they do nothing.
_PROGRAMS = ("python3", "cargo", "cc", "wasm-opt", "redis-server", "node", "valgrind")


class OnANewMachine(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def _make(self, target, without):
        """The output of `make target` where every program is found but `without`."""
        for program in _PROGRAMS:
            path = os.path.join(self.folder, program)
            with open(path, "w", encoding="utf-8") as file:
                # It would be a build.
                file.write(f"#!/bin/sh\necho {program} ran\n")
            os.chmod(path, 0o755)
        os.remove(os.path.join(self.folder, without))
        environment = {"PATH": self.folder, "HOME": self.folder, "CARGO_TARGET_DIR": self.folder}
        made = subprocess.run(
            [shutil.which("make"), "--no-print-directory", target],
            cwd=paths.ROOT, env=environment, capture_output=True, text=True, check=False,
        )
        self.assertNotEqual(made.returncode, 0, made)
        self.assertNotIn("No such file", made.stderr)
        sentences = [line for line in made.stderr.splitlines() if line.startswith("weir: ")]
        self.assertEqual(len(sentences), 1, made)
        return made.stdout, sentences[0]

    def test_a_target_names_a_missing_program_before_it_builds(self):
        for target, program in (
            ("sync", "cargo"),
            ("sync", "cc"),
            ("wasm", "cargo"),
            ("wasm", "wasm-opt"),
            ("bench-quick", "python3"),
            ("bench-envoy", "redis-server"),
            ("bench-sync", "redis-server"),
            ("stores", "redis-server"),
            ("e2e", "redis-server"),
            ("e2e", "python3"),
            ("instructions", "valgrind"),
            ("vectors", "node"),
            ("run", "python3"),
            ("dist", "cargo"),
            ("dist", "wasm-opt"),
            ("try-dist", "redis-server"),
            ("quick", "python3"),
            ("sync-debug", "cargo"),
        ):
            with self.subTest(target=target, program=program):
                stdout, sentence = self._make(target, without=program)
                self.assertNotIn("cargo ran", stdout)
                self.assertRegex(sentence, f"^weir: {program} is missing: install .*, then try again.$")
                others = [name for name in _PROGRAMS if name != program and name in sentence]
                self.assertEqual(others, [], sentence)

    def test_targets_with_prometheus_install_it_first(self):
        for target, begins in (("native", "cargo build"), ("lab", "-m unittest")):
            with self.subTest(target=target):
                environment = {"PATH": os.environ["PATH"], "HOME": self.folder}
                dry_run = subprocess.run(
                    [shutil.which("make"), "--dry-run", target],
                    cwd=paths.ROOT, env=environment, capture_output=True, text=True, check=True,
                )
                before, _, _ = dry_run.stdout.partition(begins)
                self.assertIn("tools prometheus", before)

    def test_a_release_for_this_machine_needs_no_other_compiler(self):
        here = os.uname().machine
        (there,) = {"x86_64", "aarch64"} - {here}
        self.assertEqual(shipping.cross_tools([here]), [])
        self.assertEqual(shipping.cross_tools([here, there]), [f"cross-{there}"])
        for program in ("sync", "module"):
            for architectures in ([here], [here, there]):
                command = shipping.command(program, architectures)
                self.assertEqual([word for word in command if word.endswith("-gnu")],
                                 [f"{name}-unknown-linux-gnu" for name in architectures])


if __name__ == "__main__":
    unittest.main()
