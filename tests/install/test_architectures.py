"""What a release holds for another architecture than this machine's: it is emulated (qemu), and compared with what is for
this one. `make try-dist` runs this, too."""

import collections
import json
import os
import re
import subprocess
import unittest
import urllib.request

import installed
import machine
import page
from installed import HERE, REGISTRY, TOOLS, Installed, released

# Rust's name -> Debian's, which is also that of images.
_DEBIAN = {"x86_64": "amd64", "aarch64": "arm64"}
(_OTHER,) = _DEBIAN.keys() - {HERE}
_MACHINES = {"x86_64": "Advanced Micro Devices X86-64", "aarch64": "AArch64"}
_EMULATOR = os.path.join(TOOLS, "qemu", f"qemu-{_OTHER}-static")
_ENVOY = f"{_EMULATOR} -L /usr/{_OTHER}-linux-gnu {TOOLS}/envoy-{_OTHER}/envoy/_bin/envoy"
# It takes ten, most of them for its own start.
_EMULATED_ENVOY_SECONDS = 120
_SYNC = f"http://127.0.0.1:{machine.SYNC}"
_RULES = """rules:
- {name: by-user, key: [{header: x-user}], rate: 1/h, burst: 5, strict: true}
"""


def setUpModule():
    installed.prepare()
    if not os.path.exists(os.path.join(page.DIST, f"weir-sync-{_OTHER}")):
        raise unittest.SkipTest(f"dist/ was made without {_OTHER}")


class TheOtherWeirSync(Installed):
    def test_it_answers_an_envoy(self):
        self.assertEqual(self.shell.run(f"{_EMULATOR} ./weir-sync-{_OTHER} --version"), f"weir-sync {page.version()}\n")
        self._start("--listen", f"127.0.0.1:{machine.SYNC}")
        self.starts("The filter")
        self.limits()
        self.reports()

    def test_the_gateway_limits(self):
        rules = os.path.join(self.shell.folder, "rules.yaml")
        with open(rules, "w", encoding="utf-8") as file:
            file.write(_RULES)
        self._start("--gateway", "on", "--rules-file", rules)
        found = collections.Counter()

        def limited_often():
            answer = _checked("alice")
            # A worker that does not have the rules yet lets every check through.
            if "rule" in answer:
                found[answer["decision"], answer["status"]] += 1
            return found["limit", 429] == 7

        machine.wait_for(limited_often, "the gateway has limited a client")
        self.assertEqual(found, {("allow", 200): 5, ("limit", 429): 7})

    def _start(self, *arguments):
        self.shell.start([_EMULATOR, os.path.join(self.shell.folder, f"weir-sync-{_OTHER}"), *arguments])
        machine.wait_for(lambda: machine.text_of(f"{_SYNC}/healthz") == "ok\n", "weir-sync is up")


class TheOtherEnvoy(Installed):
    def test_the_wasm(self):
        self._starts("The filter")
        self.limits()

    def test_the_dynamic_module(self):
        self._starts("The dynamic module")
        self.limits()

    def _starts(self, section):
        """Type the page's commands, with an Envoy and the files for the other architecture."""
        (block, *_) = page.commands(section)
        self.shell.run(block.replace("$(uname -m)", _OTHER).replace("envoy --config-path", f"{_ENVOY} --config-path"))
        self.edge_listens(_EMULATED_ENVOY_SECONDS)


class TheOtherPackage(Installed):
    def test_both_packages_have_the_same_files(self):
        names = {architecture: f"weir-sync_VERSION_{debian}.deb" for architecture, debian in _DEBIAN.items()}
        packages = {architecture: released(name) for architecture, name in names.items()}
        for architecture, package in packages.items():
            architecture_field = _output("dpkg-deb", "--field", package, "Architecture")
            self.assertEqual(architecture_field, f"{_DEBIAN[architecture]}\n")
        # Mode, owner, time and path, without the size.
        contents = [_output("dpkg-deb", "--contents", package) for package in packages.values()]
        listed = [re.sub(r" +\d+ ", " ", contents_of) for contents_of in contents]
        self.assertEqual(*listed)
        self.assertIn("./usr/bin/weir-sync\n", listed[0])

    def test_it_can_be_installed(self):
        self.shell.run(f"dpkg --add-architecture {_DEBIAN[_OTHER]}; dpkg --install weir-sync_*_{_DEBIAN[_OTHER]}.deb")
        self.shell.run(f"{_EMULATOR} /usr/bin/weir-sync --check --config /etc/weir/weir-sync.yaml")
        self.shell.run(f"dpkg --purge weir-sync:{_DEBIAN[_OTHER]}")


class TheOtherImage(Installed):
    def test_it_runs(self):
        self.runs_image(released(f"weir-sync-VERSION-{_OTHER}.oci.tar"), _EMULATOR)

    def test_a_registry_has_one_name_for_both(self):
        self.starts_registry()
        self.follow("weir-sync as an image")
        index = json.loads(_output("skopeo", "inspect", "--raw", "--tls-verify=false", _in_registry()))
        digests = {found["platform"]["architecture"]: found["digest"] for found in index["manifests"]}
        self.assertEqual(digests.keys(), set(_DEBIAN.values()))
        for architecture, debian in _DEBIAN.items():
            archive = released(f"weir-sync-VERSION-{architecture}.oci.tar")
            alone = json.loads(_output("skopeo", "inspect", f"oci-archive:{archive}"))
            asked = ["skopeo", f"--override-arch={debian}", "inspect", "--tls-verify=false", _in_registry()]
            fetched = json.loads(_output(*asked))
            self.assertEqual(fetched["Architecture"], debian)
            self.assertEqual(fetched["Layers"], alone["Layers"])
            self.assertEqual(digests[debian], alone["Digest"])


class EachProgram(unittest.TestCase):
    def test_weir_sync_is_for_its_architecture_and_needs_no_library(self):
        for architecture in _DEBIAN:
            program = released(f"weir-sync-{architecture}")
            self.assertEqual(_machine(program), _MACHINES[architecture])
            self.assertNotIn("NEEDED", _output("readelf", "--wide", "--dynamic", program))
            self.assertNotIn("INTERP", _output("readelf", "--wide", "--segments", program))

    def test_the_modules_have_the_same_symbols(self):
        hooks, asked = [], []
        for architecture in _DEBIAN:
            module = released(f"libweir_native-{architecture}.so")
            self.assertEqual(_machine(module), _MACHINES[architecture])
            exported, imported = _symbols(module)
            hooks.append(exported)
            # Of the C library they may need other functions.
            asked.append({name for name in imported if name.startswith("envoy_")})
        self.assertEqual(*hooks)
        self.assertEqual(*asked)
        self.assertIn("envoy_dynamic_module_on_program_init", hooks[0])
        self.assertIn("envoy_dynamic_module_callback_http_send_response", asked[0])


def _checked(user):
    """The gateway's decision for a request of this user."""
    body = json.dumps({"headers": {"x-user": user}}).encode()
    asked = urllib.request.Request(f"{_SYNC}/v1/check", data=body, headers={"content-type": "application/json"})
    with urllib.request.urlopen(asked, timeout=machine.DEADLINE_SECONDS) as response:
        return json.load(response)


def _in_registry():
    return f"docker://{REGISTRY}/weir/weir-sync:{page.version()}"


def _machine(program):
    """The architecture that an ELF file is for."""
    return re.search(r"^ *Machine: +(.*)$", _output("readelf", "--file-header", program), re.MULTILINE)[1]


def _symbols(module):
    """The names that a module has for others, and those that it needs of others."""
    # Num: Value Size Type Bind Vis Ndx Name[@VERSION]
    rows = [line.split() for line in _output("readelf", "--wide", "--dyn-syms", module).splitlines()]
    rows = [(row[6], row[7].partition("@")[0]) for row in rows if len(row) >= 8 and row[4] in ("GLOBAL", "WEAK")]
    return {name for section, name in rows if section != "UND"}, {name for section, name in rows if section == "UND"}


def _output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    unittest.main()
