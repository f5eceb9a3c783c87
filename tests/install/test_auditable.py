"""The program of weir-sync lists the crates that it was built of."""

import glob
import json
import os
import sys
import unittest

import page

sys.path.append(os.path.join(page.ROOT, "envoy", "dist"))

import auditable

_PROGRAM = "weir-sync-"


class TheProgram(unittest.TestCase):
    def test_it_lists_the_crates_of_the_bill_of_materials(self):
        with open(os.path.join(page.DIST, f"weir-{page.version()}.cdx.json"), encoding="utf-8") as file:
            linked = {edge["ref"]: edge["dependsOn"] for edge in json.load(file)["dependencies"]}
        paths = [path for name in ("x86_64", "aarch64") for path in glob.glob(os.path.join(page.DIST, _PROGRAM + name))]
        self.assertNotEqual(paths, [])
        for path in paths:
            with self.subTest(path=path), open(path, "rb") as file:
                listed = auditable.crates(file.read())
                self.assertIn("hyper", {name for name, _ in listed})
                refs = linked.get(os.path.basename(path)) or linked["weir-sync"]
                crates = {tuple(ref.removeprefix("pkg:cargo/").split("@")) for ref in refs if ref.startswith("pkg:cargo/")}
                self.assertEqual(crates - listed, set())


if __name__ == "__main__":
    unittest.main()
