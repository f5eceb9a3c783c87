"""Every file of dist/ is installed as in docs/install.md, and decides requests, or helps to. `make try-dist` runs this, in
a copy of the machine (clean_root.sh)."""

import json
import os
import re
import tarfile
import unittest
import urllib.request

import helm_python
import installed
import kubernetes_validate
import machine
import page
import yaml
from installed import BURST, HERE, REFILLED_MAX, REGISTRY, Installed, released

_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
# ELF's first bytes, and wasm's.
_PROGRAMS_BEGIN = (b"\x7fELF", b"\0asm")


def setUpModule():
    installed.prepare()


class TheFilter(Installed):
    def test_each_file_has_the_listed_hash(self):
        self.follow("Check what you have")
        sums = self.shell.run("cut -d ' ' -f 3 SHA256SUMS; ls -A | grep -v -e SHA256SUMS -e terminal.log | sort")
        lines = sums.split()
        self.assertEqual(sorted(lines[: len(lines) // 2]), sorted(lines[len(lines) // 2 :]))

    def test_the_page_names_each_file(self):
        with open(os.path.join(page.ROOT, "docs", "install.md"), encoding="utf-8") as file:
            named = set(re.findall(r"`([^` ]+)`", file.read().replace("VERSION", page.version())))
        self.assertEqual(set(os.listdir(page.DIST)) - named, set())

    def test_no_program_has_a_path_of_the_build_machine(self):
        programs = set()
        for name in os.listdir(page.DIST):
            with open(os.path.join(page.DIST, name), "rb") as file:
                text = file.read()
            if text.startswith(_PROGRAMS_BEGIN):
                programs.add(name)
                for place in (page.ROOT, "/.cargo/registry"):
                    self.assertNotIn(place.encode(), text, name)
        self.assertGreaterEqual(programs, {"weir_filter.wasm", f"weir-sync-{HERE}", f"libweir_native-{HERE}.so"})

    def test_the_wasm(self):
        asks = page.commands("The filter")[1]
        self.starts("The filter")
        counts = dict(reversed(line.split()) for line in self.shell.run(asks).splitlines() if re.match(r" *\d+ \d{3}$", line))
        self.assertEqual(set(counts), {"200", "429"})
        self.assertAlmostEqual(int(counts["200"]), BURST, delta=REFILLED_MAX)

    def test_the_dynamic_module(self):
        self.starts("The dynamic module")
        self.limits()

    def test_the_wasm_from_a_registry(self):
        self.starts_registry()
        self.follow("The filter from a registry")
        pulled = self._pulled("weir/weir-filter")
        with open(released("weir_filter.wasm"), "rb") as file:
            self.assertEqual(pulled, file.read())
        with open(os.path.join(self.shell.folder, "weir_filter.wasm"), "wb") as file:
            file.write(pulled)
        self.starts("The filter")
        self.limits()

    def _pulled(self, name):
        """plugin.wasm, fetched as Istio does: the manifest's one layer, unpacked."""
        at = f"http://{REGISTRY}/v2/{name}"
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
        outputs = self.follow("weir-sync")
        self.assertIn(f"weir-sync {page.version()}\n", "".join(outputs))
        self.starts("The filter")
        self.limits()
        self.reports()

    def test_the_debian_package(self):
        section = "weir-sync on Debian and Ubuntu"
        self.follow(section)
        unit = "/usr/lib/systemd/system/weir-sync.service"
        # Its complaints about other units on this machine are not ours.
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
        self.runs_image(released(f"weir-sync-VERSION-{HERE}.oci.tar"))


class AllOfIt(Installed):
    def test_the_services_of_the_compose_file(self):
        """Their commands, with their files and names; of the programs, those that this machine has."""
        self.shell.run(f"tar -xzf weir-compose-{page.version()}.tar.gz")
        folder = os.path.join(self.shell.folder, f"weir-compose-{page.version()}")
        with open(os.path.join(folder, "compose.yaml"), encoding="utf-8") as file:
            services = yaml.safe_load(file)["services"]
        machine.name_here(*services)
        self.shell.run(f"install -m 755 weir-sync-{HERE} /usr/local/bin/weir-sync; mkdir -p /prometheus /etc/weir; "
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
        chart = released("weir-sync-VERSION.tgz")
        report = helm_python.lint(chart, {}, strict=True)
        self.assertEqual([m for m in report["messages"] if m["severity"] > 1] + report["errors"], [])
        with open(released("weir-sync-VERSION.yaml"), encoding="utf-8") as file:
            resources = list(yaml.safe_load_all(file))
        self.assertIn("Deployment", {resource["kind"] for resource in resources})
        for resource in resources:
            kubernetes_validate.validate(resource, kubernetes_validate.latest_version(), strict=True)

    def test_the_bill_of_materials_lists_every_linked_crate(self):
        with open(released("weir-VERSION.cdx.json"), encoding="utf-8") as file:
            bill = json.load(file)
        names = {component["name"] for component in bill["components"]}
        ours = {f"weir-sync-{HERE}", "weir_filter.wasm", f"libweir_native-{HERE}.so"}
        self.assertGreaterEqual(names, ours | {"hyper", "redis", "rust-std"})
        self.assertEqual(names & {"proptest", "wasmi", "weir-tests"}, set())
        known = {component["bom-ref"] for component in bill["components"]} | {"weir"}
        for edge in bill["dependencies"]:
            self.assertEqual(set(edge["dependsOn"]) - known, set())


if __name__ == "__main__":
    unittest.main()
