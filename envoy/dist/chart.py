"""The Helm chart as a package, and what it makes with its own values as plain manifests."""

import fnmatch
import os

from archives import File, gzipped, tar


def package(folder, created):
    """The chart in `folder`, as `helm package` would pack it, but with fixed times."""
    with open(os.path.join(folder, ".helmignore"), encoding="utf-8") as file:
        ignored = [line.strip() for line in file if line.strip() and not line.startswith("#")]
    files = []
    for here, folders, names in os.walk(folder, followlinks=True):
        folders.sort()
        for name in sorted(names):
            path = os.path.relpath(os.path.join(here, name), folder)
            if not any(_matches(path, pattern) for pattern in ignored):
                with open(os.path.join(here, name), "rb") as file:
                    files.append(File(path, file.read()))
    return gzipped(tar(files, created, root=os.path.basename(folder) + "/"))


def manifests(packed, name, namespace):
    """What the packed chart makes with its own values, as one file for `kubectl apply`."""
    # Of .tools/kubernetes: see the Makefile.
    import helm_python

    with helm_python.Chart.load_archive(packed) as chart:
        rendered = chart.render(values={}, name=name, namespace=namespace)
    texts = [text.strip() for path, text in sorted(rendered.items()) if not path.endswith("NOTES.txt") and text.strip()]
    first = f"# weir-sync in the namespace {namespace}, as the chart has it by itself. Change the image and the settings.\n"
    return first.encode() + "".join(f"---\n{text}\n" for text in texts).encode()


def _matches(path, pattern):
    return path.startswith(pattern) if pattern.endswith("/") else fnmatch.fnmatch(path, pattern)
