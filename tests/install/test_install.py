"""Every file of dist/ is installed as docs/install.md says, and decides requests, or helps to. `make try-dist` runs this, in
a copy of the machine (clean_root.sh)."""

import glob
import json
import os
import re
import subprocess
import tarfile
import unittest
import urllib.request

import helm_python
import kubernetes_validate
import machine
import page
import yaml

_TOOLS = os.path.join(page.ROOT, ".tools")
_PROGRAMS = {
    "envoy": "envoy/envoy/_bin/envoy",
    "prometheus": "prometheus/prometheus",
    "docker-registry": "registry/docker-registry",
}
_REGISTRY = "127.0.0.1:5000"
# Of the bootstraps.
_BURST = 100
# They refill ten tokens a minute.
_REFILLED_MAX = 10
_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"


def setUpModule():
    machine.raise_loopback()
    for name, path in _PROGRAMS.items():
        machine.provide(name, os.path.join(_TOOLS, path))


def _file(pattern):
    """The one file of the release that has this name."""
    (found,) = glob.glob(os.path.join(page.DIST, pattern.replace("VERSION", page.version())))
    return found


class Installed(unittest.TestCase):
    def setUp(self):
        self.shell = machine.Shell(page.DIST)
        self.addCleanup(self.shell.close)

    def follow(self, section):
        """Type what the page says under a heading."""
        return [self.shell.run(block) for block in page.commands(section)]

    def starts(self, section):
        """Type the first block under a heading, and wait until Envoy listens."""
        self.shell.run(page.commands(section)[0])
        self.edge_listens()

    def edge_listens(self):
        try:
            machine.wait_for(lambda: machine.listens(machine.EDGE) and machine.listens(machine.UPSTREAM), "Envoy listens")
        except AssertionError as error:
            self.fail(f"{error}:\n{self.shell.said()[-3000:]}")

    def limits(self):
        """A burst of 200s, and then 429s."""
        found = machine.statuses(2 * _BURST)
        self.assertEqual(set(found), {200, 429}, self.shell.said())
        self.assertAlmostEqual(found[200], _BURST, delta=_REFILLED_MAX)

    def reports(self, url="http://127.0.0.1:7878/metrics"):
        """An Envoy reports to the weir-sync, and is answered."""
        answered = re.compile(r'^weir_sync_reports_total\{[^}]*outcome="answered"[^}]*\} [1-9]', re.MULTILINE)
        machine.wait_for(lambda: answered.search(machine.text_of(url)), "weir-sync answers reports")


class TheFilter(Installed):
    def test_each_file_has_the_hash_that_is_said(self):
        self.follow("Check what you have")
        sums = self.shell.run("cut -d ' ' -f 3 SHA256SUMS; ls -A | grep -v -e SHA256SUMS -e terminal.log | sort")
        lines = sums.split()
        self.assertEqual(sorted(lines[: len(lines) // 2]), sorted(lines[len(lines) // 2 :]))

    def test_the_page_names_each_file(self):
        with open(os.path.join(page.ROOT, "docs", "install.md"), encoding="utf-8") as file:
            named = set(re.findall(r"`([^` ]+)`", file.read().replace("VERSION", page.version())))
        self.assertEqual(set(os.listdir(page.DIST)) - named, set())

    def test_the_wasm(self):
        asks = page.commands("The filter")[1]
        self.starts("The filter")
        said = dict(reversed(line.split()) for line in self.shell.run(asks).splitlines() if re.match(r" *\d+ \d{3}$", line))
        self.assertEqual(set(said), {"200", "429"})
        self.assertAlmostEqual(int(said["200"]), _BURST, delta=_REFILLED_MAX)

    def test_the_lean_wasm(self):
        self.starts("The lean filter")
        self.limits()

    def test_the_dynamic_module(self):
        self.starts("The dynamic module")
        self.limits()

    def test_the_wasm_from_a_registry(self):
        config = os.path.join(self.shell.folder, "registry.yml")
        with open(config, "w", encoding="utf-8") as file:
            file.write(f"version: 0.1\nstorage: {{inmemory: {{}}}}\nhttp: {{addr: '{_REGISTRY}'}}\n")
        self.shell.start(["docker-registry", "serve", config])
        machine.wait_for(lambda: machine.listens(5000), "the registry listens")
        self.follow("The filter from a registry")
        pulled = self._pulled("weir/weir-filter")
        with open(_file("weir_filter.wasm"), "rb") as file:
            self.assertEqual(pulled, file.read())
        with open(os.path.join(self.shell.folder, "weir_filter.wasm"), "wb") as file:
            file.write(pulled)
        self.starts("The filter")
        self.limits()

    def _pulled(self, name):
        """plugin.wasm, fetched as Istio does: the manifest's one layer, unpacked."""
        at = f"http://{_REGISTRY}/v2/{name}"
        accepts = {"Accept": "application/vnd.oci.image.manifest.v1+json"}
        asked = urllib.request.Request(f"{at}/manifests/{page.version()}", headers=accepts)
        with urllib.request.urlopen(asked, timeout=machine.DEADLINE_SECONDS) as response:
            (layer,) = json.load(response)["layers"]
        self.assertEqual(layer["mediaType"], _LAYER)
        with urllib.request.urlopen(f"{at}/blobs/{layer['digest']}", timeout=machine.DEADLINE_SECONDS) as response:
            with tarfile.open(fileobj=response, mode="r|gz") as files:
                for entry in files:
                    if entry.name == "plugin.wasm":
                        return files.extractfile(entry).read()
        return self.fail("the layer has no plugin.wasm")


class WeirSync(Installed):
    def test_the_program(self):
        said = self.follow("weir-sync")
        self.assertIn(f"weir-sync {page.version()}\n", "".join(said))
        self.starts("The filter")
        self.limits()
        self.reports()

    def test_it_names_no_path_of_the_machine_that_built_it_and_no_library(self):
        program = _file(f"weir-sync-{os.uname().machine}")
        self.assertNotIn("NEEDED", subprocess.check_output(["readelf", "--dynamic", program], text=True))
        for path in (program, _file("libweir_native-*.so"), _file("weir_filter.wasm")):
            with open(path, "rb") as file:
                text = file.read()
            for place in (page.ROOT, "/.cargo/registry"):
                self.assertNotIn(place.encode(), text, path)

    def test_the_debian_package(self):
        section = "weir-sync on Debian and Ubuntu"
        self.follow(section)
        unit = "/usr/lib/systemd/system/weir-sync.service"
        # What it says of other units on this machine is not ours.
        verified = self.shell.run(f"systemd-analyze verify --man=no --recursive-errors=no {unit}")
        self.assertNotIn("weir-sync.service", verified)
        self.shell.run(f"systemd-analyze security --offline=yes --threshold=20 {unit}")
        with open(unit, encoding="utf-8") as file:
            (command,) = re.findall(r"^ExecStart=(.*)$", file.read(), re.MULTILINE)
        nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--bounding-set=-all", "--no-new-privs"]
        self.shell.start([*nobody, *command.split()])
        self.starts("The filter")
        self.limits()
        self.reports()
        self.shell.run("dpkg --purge weir-sync")
        self.assertEqual([path for path in ("/usr/bin/weir-sync", "/etc/weir/credentials", unit) if os.path.exists(path)], [])

    def test_the_image(self):
        machine.answer_names()
        self.shell.start(["redis-server", "--port", "6379", "--save", "", "--bind", "127.0.0.1"])
        machine.wait_for(lambda: machine.listens(6379), "Redis listens")
        root, config = self._unpacked(_file("weir-sync-VERSION-*.oci.tar"))
        # As a container has it: no files but the image's, and the name server that its network has.
        with open(os.path.join(root, "etc/resolv.conf"), "w", encoding="utf-8") as file:
            file.write("nameserver 127.0.0.1\n")
        user, group = map(int, config["User"].split(":"))
        chroot = ["chroot", f"--userspec={user}:{group}", "--groups=", root]
        self.shell.start([*chroot, *config["Entrypoint"], "--store", "redis://redis.example"])
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


class AllOfIt(Installed):
    def test_the_services_of_the_compose_file(self):
        """Their commands, with their files and names; of the programs, those that this machine has."""
        self.shell.run(f"tar -xzf weir-compose-{page.version()}.tar.gz")
        folder = os.path.join(self.shell.folder, f"weir-compose-{page.version()}")
        with open(os.path.join(folder, "compose.yaml"), encoding="utf-8") as file:
            services = yaml.safe_load(file)["services"]
        machine.name_here(*services)
        self.shell.run(f"install -m 755 weir-sync-x86_64 /usr/local/bin/weir-sync; mkdir -p /prometheus /etc/weir; "
                       f"cp -r {folder}/. /etc/weir")
        for service in services.values():
            for source in (volume.split(":")[0] for volume in service.get("volumes", ())):
                self.assertTrue(not source.startswith("./") or os.path.exists(os.path.join(folder, source)), source)
        programs = {"redis": [], "weir-sync": ["weir-sync"], "envoy": ["envoy"], "prometheus": ["prometheus"]}
        for name, program in programs.items():
            service = services[name]
            command = [*program, *map(str, service.get("command", ()))]
            self.shell.start(command, env={**os.environ, **service.get("environment", {})}, cwd=self.shell.folder)
        self.edge_listens()
        self.limits()
        self.reports("http://weir-sync:7879/metrics")
        up = "http://prometheus:9090/api/v1/query?query=sum(up)"
        machine.wait_for(lambda: '"2"]' in machine.text_of(up), "Prometheus has scraped both")

    def test_the_chart_and_the_manifests(self):
        chart = _file("weir-sync-VERSION.tgz")
        report = helm_python.lint(chart, {}, strict=True)
        self.assertEqual([m for m in report["messages"] if m["severity"] > 1] + report["errors"], [])
        with open(_file("weir-sync-VERSION.yaml"), encoding="utf-8") as file:
            resources = list(yaml.safe_load_all(file))
        self.assertIn("Deployment", {resource["kind"] for resource in resources})
        for resource in resources:
            kubernetes_validate.validate(resource, kubernetes_validate.latest_version(), strict=True)

    def test_the_bill_of_materials_names_what_is_linked_in(self):
        with open(_file("weir-VERSION.cdx.json"), encoding="utf-8") as file:
            bill = json.load(file)
        names = {component["name"] for component in bill["components"]}
        self.assertGreaterEqual(names, {"weir-sync", "weir_filter.wasm", "libweir_native.so", "hyper", "redis", "rust-std"})
        self.assertEqual(names & {"proptest", "wasmi", "weir-tests"}, set())
        known = {component["bom-ref"] for component in bill["components"]} | {"weir"}
        for edge in bill["dependencies"]:
            self.assertEqual(set(edge["dependsOn"]) - known, set())


if __name__ == "__main__":
    unittest.main()
