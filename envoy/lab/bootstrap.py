"""The bootstraps of envoy/, fitted to this machine.

A bootstrap stands alone: it is what an operator copies. The lab changes only what differs here: ports
where they are moved, the place of the wasm, and what differs between regions.
"""

import os
import re
import textwrap

import paths
from problem import Problem

PORT = re.compile(r"(?<=port_value: )\d+")


def render(deployment, ports, words=None):
    """The text of envoy/`deployment`/envoy.yaml with `ports` and `words` (written -> meant) replaced.

    A port that is not in `ports`, or a wasm elsewhere, is something the user wrote and means: it stays.
    A word of `words` that is not there raises a Problem: without it two regions would be one.
    """
    path = os.path.join(paths.ROOT, "envoy", deployment, "envoy.yaml")
    with open(path, encoding="utf-8") as file:
        text = file.read()
    text = PORT.sub(lambda match: str(ports.get(int(match[0]), match[0])), text)
    for written, meant in (words or {}).items():
        if written not in text:
            raise Problem(f"{path} must have `{written}` in it, for the regions to differ: put it back.")
        text = text.replace(written, meant)
    return text.replace(paths.WASM_IN_BOOTSTRAP, paths.WASM)


# A filter's rules, up to `table` and the comment before it.
_RULES = re.compile(r"^( +)rules:\n(?:\1[ #-].*\n)*?(?=(?:\1#.*\n)*\1table:)", re.MULTILINE)


def rules(text):
    """The rules in the text of a bootstrap, as a file of their own, which `weir-sync rules put` takes."""
    return textwrap.dedent(_RULES.search(text)[0])


_TARGET = re.compile(r"(?<=127\.0\.0\.1:)\d+")


def prometheus(ports):
    """The text of envoy/observe/prometheus.yaml with `ports` (written -> meant), for any folder."""
    folder = os.path.join(paths.ROOT, "envoy", "observe")
    with open(os.path.join(folder, "prometheus.yaml"), encoding="utf-8") as file:
        text = file.read()
    text = _TARGET.sub(lambda match: str(ports[int(match[0])]), text)
    return text.replace("- mixin/", f"- {folder}/mixin/")
