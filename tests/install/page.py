"""docs/install.md as a test reads it: what it has a reader type, section by section."""

import os
import re

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DIST = os.path.join(ROOT, "dist")


def version():
    """The version of the workspace."""
    with open(os.path.join(ROOT, "Cargo.toml"), encoding="utf-8") as file:
        return re.search(r'^version = "([^"]+)"$', file.read(), re.MULTILINE)[1]


def commands(section):
    """The blocks of commands under the heading `section`; those that need what a test has not are no `sh` on the page."""
    with open(os.path.join(ROOT, "docs", "install.md"), encoding="utf-8") as file:
        _, found, rest = file.read().partition(f"\n## {section}\n")
    assert found, f"docs/install.md has no section {section!r}"
    text = rest.partition("\n## ")[0].replace("VERSION", version())
    blocks = re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert blocks, f"the section {section!r} of docs/install.md has no block of commands"
    return blocks
