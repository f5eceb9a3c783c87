"""What is linked into each artefact: a bill of materials (CycloneDX), and the licences of others."""

import glob
import json
import os
import subprocess

import paths
from problem import Problem

_CRATES_IO = "registry+https://github.com/rust-lang/crates.io-index"
_LICENCE_FILES = ("LICENSE*", "LICENCE*", "COPYING*", "NOTICE*", "UNLICENSE*", "license*")


class Crates:
    """The crates of others in `artefacts`: the artefact's name -> its package, target and cargo's other arguments."""

    def __init__(self, artefacts):
        self._packages = json.loads(_cargo("metadata", "--format-version", "1"))
        self._by_name = {(package["name"], package["version"]): package for package in self._packages["packages"]}
        self._linked = {name: self._tree(*what) for name, what in artefacts.items()}

    def bill_of_materials(self, name, version, timestamp, beside):
        """The bill of materials, as JSON. `beside` is what else is linked in: (name, version, purl)."""
        linked = self._all()
        ours = [
            {"type": "file", "bom-ref": artefact, "name": artefact, "version": version} for artefact in self._linked
        ]
        others = [{"type": "library", "bom-ref": purl, "name": n, "version": v, "purl": purl} for n, v, purl in beside]
        bill = {
            "bomFormat": "CycloneDX",
            "specVersion": "1.5",
            "version": 1,
            "metadata": {
                "timestamp": timestamp,
                "component": {"type": "application", "bom-ref": name, "name": name, "version": version},
            },
            "components": ours + [_component(package, self._hashes()) for package in linked] + others,
            "dependencies": self._edges(name, [purl for _, _, purl in beside]),
        }
        return json.dumps(bill, indent=1).encode() + b"\n"

    def licences(self):
        """The text of each licence that comes with a crate, once, after the crates that it comes with."""
        holders = {}
        for package in self._all():
            texts = _licences(os.path.dirname(package["manifest_path"]))
            # A crate without a file of it names it all the same.
            for text in texts or [f"(The crate has no file with the text of its licence, {package['license']}.)\n"]:
                holders.setdefault(text, []).append(f"{package['name']} {package['version']} ({package['license']})")
        line = "=" * 100
        parts = [f"{line}\n{chr(10).join(crates)}\n{line}\n\n{text.strip()}\n" for text, crates in holders.items()]
        return "\n".join(["The crates of others that are linked into Weir, and their licences.\n", *parts]).encode()

    def _all(self):
        """Every crate of others, once."""
        return [self._by_name[key] for key in sorted(set().union(*self._linked.values()))]

    def _tree(self, package, target, *arguments):
        """What is linked into a package for a target, with the features that it has there."""
        listed = _cargo(
            "tree", "--package", package, "--target", target, *arguments,
            "--edges", "normal,no-proc-macro", "--prefix", "none", "--format", "{p}",
        )
        # "NAME vVERSION (*)", where (*) marks one that was shown before; ours have their folder there.
        words = [line.split() for line in listed.splitlines() if line]
        found = {(name, version.removeprefix("v")) for name, version, *_ in words}
        return {key for key in found if self._by_name[key]["source"]}

    def _edges(self, name, beside):
        keys = {package["id"]: (package["name"], package["version"]) for package in self._packages["packages"]}
        linked = set().union(*self._linked.values())
        edges = [{"ref": name, "dependsOn": list(self._linked)}]
        for artefact, crates in self._linked.items():
            edges.append({"ref": artefact, "dependsOn": [_purl(*key) for key in sorted(crates)] + beside})
        for node in self._packages["resolve"]["nodes"]:
            if (key := keys[node["id"]]) in linked:
                needs = sorted(linked & {keys[other["pkg"]] for other in node["deps"] if _is_linked(other)})
                edges.append({"ref": _purl(*key), "dependsOn": [_purl(*other) for other in needs]})
        return edges

    @staticmethod
    def _hashes():
        """The checksum of each crate's archive, of Cargo.lock."""
        with open(paths.LOCK, encoding="utf-8") as file:
            blocks = file.read().split("[[package]]\n")[1:]
        fields = [dict(line.split(" = ", 1) for line in block.splitlines() if " = " in line) for block in blocks]
        text = json.loads
        return {(text(f["name"]), text(f["version"])): text(f["checksum"]) for f in fields if "checksum" in f}


def _component(package, hashes):
    name, version = package["name"], package["version"]
    if package["source"] != _CRATES_IO:
        raise Problem(f"the crate {name} {version} is from {package['source']}, expected {_CRATES_IO}.")
    found = {
        "type": "library",
        "bom-ref": _purl(name, version),
        "name": name,
        "version": version,
        "hashes": [{"alg": "SHA-256", "content": hashes[name, version]}],
        # Some write MIT/Apache-2.0, as was once usual.
        "licenses": [{"expression": package["license"].replace("/", " OR ")}] if package["license"] else [],
        "purl": _purl(name, version),
    }
    if package["repository"]:
        found["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
    return found


def _purl(name, version):
    return f"pkg:cargo/{name}@{version}"


def _is_linked(dependency):
    return any(kind["kind"] is None for kind in dependency["dep_kinds"])


def _licences(folder):
    found = {path for pattern in _LICENCE_FILES for path in glob.glob(os.path.join(folder, pattern)) if os.path.isfile(path)}
    texts = []
    for path in sorted(found):
        with open(path, encoding="utf-8", errors="replace") as file:
            texts.append(file.read())
    return texts


def _cargo(*arguments):
    command = ["cargo", *arguments, "--locked"]
    done = subprocess.run(command, cwd=paths.ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Problem(f"`{' '.join(command)}` failed: {done.stderr.strip()}")
    return done.stdout
