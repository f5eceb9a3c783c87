"""What tests of installed files share: a reader's terminal with the release, and what is to be seen then."""

import glob
import json
import os
import re
import shutil
import tarfile
import unittest

import machine
import page

TOOLS = os.path.join(page.ROOT, ".tools")
_PROGRAMS = {
    "envoy": "envoy/envoy/_bin/envoy",
    "prometheus": "prometheus/prometheus",
    "docker-registry": "registry/docker-registry",
}
HERE = os.uname().machine
REGISTRY = "127.0.0.1:5000"
# Of the bootstraps.
BURST = 100
# They refill ten tokens a minute.
REFILLED_MAX = 10


def prepare():
    """Have a network, and the programs that an operator has."""
    machine.raise_loopback()
    for name, path in _PROGRAMS.items():
        machine.provide(name, os.path.join(TOOLS, path))


def released(pattern):
    """The one file of the release that has this name."""
    (found,) = glob.glob(os.path.join(page.DIST, pattern.replace("VERSION", page.version())))
    return found


class Installed(unittest.TestCase):
    """A test that installs files of the release in a terminal of its own."""

    def setUp(self):
        self.shell = machine.Shell(page.DIST)
        self.addCleanup(self.shell.close)

    def follow(self, section):
        """Type the page's commands under a heading."""
        return [self.shell.run(block) for block in page.commands(section)]

    def starts(self, section):
        """Type the first block under a heading, and wait until Envoy listens."""
        self.shell.run(page.commands(section)[0])
        self.edge_listens()

    def edge_listens(self, seconds=machine.DEADLINE_SECONDS):
        """Wait until requests can be made."""
        ports = (machine.EDGE, machine.UPSTREAM)
        try:
            machine.wait_for(lambda: all(map(machine.listens, ports)), "Envoy listens", seconds)
        except AssertionError as error:
            self.fail(f"{error}:\n{self.shell.output()[-3000:]}")

    def limits(self):
        """A burst of 200s, and then 429s."""
        found = machine.statuses(2 * BURST)
        self.assertEqual(set(found), {200, 429}, self.shell.output())
        self.assertAlmostEqual(found[200], BURST, delta=REFILLED_MAX)

    def reports(self, url="http://127.0.0.1:7878/metrics"):
        """An Envoy reports to the weir-sync, and is answered."""
        answered = re.compile(r'^weir_sync_reports_total\{[^}]*outcome="answered"[^}]*\} [1-9]', re.MULTILINE)
        machine.wait_for(lambda: answered.search(machine.text_of(url)), "weir-sync answers reports")

    def starts_registry(self):
        """One for images, on this machine."""
        config = os.path.join(self.shell.folder, "registry.yml")
        with open(config, "w", encoding="utf-8") as file:
            file.write(f"version: 0.1\nstorage: {{inmemory: {{}}}}\nhttp: {{addr: '{REGISTRY}'}}\n")
        self.shell.start(["docker-registry", "serve", config])
        machine.wait_for(lambda: machine.listens(5000), "the registry listens")

    def runs_image(self, archive, emulator=None):
        """weir-sync runs in the image as in a container, finds its Redis by name, and answers an Envoy."""
        machine.answer_names()
        self.shell.start(["redis-server", "--port", "6379", "--save", "", "--bind", "127.0.0.1"])
        machine.wait_for(lambda: machine.listens(6379), "Redis listens")
        root, config = self._unpacked(archive)
        # As a container has it: no files but the image's, and the name server that its network has.
        with open(os.path.join(root, "etc/resolv.conf"), "w", encoding="utf-8") as file:
            file.write("nameserver 127.0.0.1\n")
        command = config["Entrypoint"]
        if emulator:
            shutil.copy(emulator, os.path.join(root, "emulator"))
            command = ["/emulator", *command]
        user, group = map(int, config["User"].split(":"))
        chroot = ["chroot", f"--userspec={user}:{group}", "--groups=", root]
        self.shell.start([*chroot, *command, "--store", "redis://redis.example"])
        self.starts("The filter")
        self.limits()
        self.reports()
        self.assertRegex(machine.text_of("http://127.0.0.1:7878/metrics"), r"\nweir_sync_store_up(\{[^}]*\})? 1\n")

    def _unpacked(self, archive):
        """The image's files in a folder, and its configuration; read in both of its forms."""
        # skopeo wants a policy, which Debian's package of it has elsewhere.
        copied = os.path.join(self.shell.folder, "image")
        for form, into in (("docker-archive", "of-docker"), ("oci-archive", "image")):
            self.shell.run(f"skopeo --insecure-policy copy {form}:{archive} dir:{self.shell.folder}/{into}")
        with open(os.path.join(copied, "manifest.json"), encoding="utf-8") as file:
            manifest = json.load(file)
        root = os.path.join(self.shell.folder, "root")
        (layer,) = manifest["layers"]
        with tarfile.open(_blob(copied, layer)) as files:
            files.extractall(root)
        os.chmod(self.shell.folder, 0o755)
        with open(_blob(copied, manifest["config"]), encoding="utf-8") as file:
            return root, json.load(file)["config"]


def _blob(folder, described):
    """Where skopeo puts a blob in a folder."""
    return os.path.join(folder, described["digest"].removeprefix("sha256:"))
