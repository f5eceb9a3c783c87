"""What a release is made with, without building one: `make lab` runs this. `make try-dist` tries the files themselves."""

import io
import json
import os
import struct
import sys
import tarfile
import unittest
import zlib

sys.path.append(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "lab"))

import archives
import auditable
import debian
import oci
import release
from archives import File
from problem import Problem

_FILES = (File("b/c", b"1", 0o755), File("a", b"2"), File("d", None, 0o700))


class Archives(unittest.TestCase):
    def test_the_order_of_files_does_not_change_the_bytes(self):
        made = {archives.gzipped(archives.tar(files, 7)) for files in (_FILES, tuple(reversed(_FILES)))}
        self.assertEqual(len(made), 1)

    def test_each_file_has_its_mode_time_and_folders(self):
        with tarfile.open(fileobj=io.BytesIO(archives.tar(_FILES, 7, root="r/"))) as found:
            modes = {entry.name: oct(entry.mode) for entry in found}
            self.assertEqual({entry.mtime for entry in found}, {7})
        self.assertEqual(modes, {"r/a": "0o644", "r/b": "0o755", "r/b/c": "0o755", "r/d": "0o700"})

    def test_a_member_of_odd_length_is_followed_by_a_line_break(self):
        made = archives.ar([("x", b"123"), ("y", b"1")], 7)
        self.assertEqual(len(made), 8 + 60 + 4 + 60 + 2)


class Formats(unittest.TestCase):
    def test_an_image_names_each_blob_by_its_hash(self):
        image = oci.image(_FILES, {}, {}, 7)
        names, index = _read_layout(oci.archive("weir-sync", "1.2.3", image, 7))
        self.assertEqual([found["digest"] for found in index["manifests"]], [image.manifest["digest"]])
        self.assertIn("blobs/sha256/" + image.manifest["digest"].removeprefix("sha256:"), names)
        self.assertEqual(len([name for name in names if name.startswith("blobs/sha256/")]), 3)

    def test_one_image_has_a_manifest_for_each_architecture(self):
        images = [oci.image(_FILES, {}, {}, 7, architecture) for architecture in ("amd64", "arm64")]
        archive = oci.archive_of_all("weir-sync", "1.2.3", images, 7)
        names, index = _read_layout(archive)
        (listed,) = index["manifests"]
        with tarfile.open(fileobj=io.BytesIO(archive)) as found:
            inner = json.load(found.extractfile("blobs/sha256/" + listed["digest"].removeprefix("sha256:")))
        listed_images = {of["platform"]["architecture"]: of["digest"] for of in inner["manifests"]}
        self.assertEqual(listed_images, {image.architecture: image.manifest["digest"] for image in images})
        # The index, and of each image the manifest and the configuration; their layer is the same.
        self.assertEqual(len([name for name in names if name.startswith("blobs/sha256/")]), 6)

    def test_a_package_lists_its_settings_files(self):
        made = debian.package({"Package": "weir-sync"}, {"postinst": b"#!/bin/sh\n"}, ["b/c"], _FILES, 7)
        begins = made.index(b"control.tar.gz") + 60
        with tarfile.open(fileobj=io.BytesIO(made[begins:]), mode="r|gz") as found:
            texts = {entry.name: found.extractfile(entry).read() for entry in found}
        self.assertEqual(texts["./conffiles"], b"/b/c\n")
        self.assertEqual(texts["./control"], b"Package: weir-sync\nInstalled-Size: 1\n")


class Programs(unittest.TestCase):
    def test_the_list_of_crates_in_a_program_is_found(self):
        packages = [{"name": "hyper", "version": "1.2.3"}, {"name": "cc", "version": "1.0.0", "kind": "build"}]
        held = zlib.compress(json.dumps({"packages": packages}).encode())
        self.assertEqual(auditable.crates(_program(b".dep-v0", held)), {("hyper", "1.2.3")})
        self.assertEqual(auditable.crates(_program(b".dep-v1", held)), set())


def _program(name, section):
    """An ELF file with a section of this name, and that of the names."""
    names = b"\0" + name + b"\0.shstrtab\0"
    places = [(0, 0, 0, 0), (1, 1, 64, len(section)), (len(name) + 2, 3, 64 + len(section), len(names))]
    headers = [struct.pack("<II16xQQ24x", *place) for place in places]
    begins = struct.pack("<40xQ10xHHH", 64 + len(section) + len(names), 64, len(headers), 2)
    return b"".join([b"\x7fELF" + begins[4:], section, names, *headers])


class TheRelease(unittest.TestCase):
    def test_the_changelog_has_a_part_for_the_version(self):
        changelog = "# Changelog\n\n## [Unreleased]\n\n- b\n\n## [1.0.0]\n\n- a\n"
        self.assertEqual(release.changes(changelog, "1.0.0"), "## [1.0.0]\n\n- a\n")
        self.assertEqual(release.changes(changelog, "1.1.0"), "## [Unreleased]\n\n- b\n\n")
        with self.assertRaises(Problem):
            release.changes("# Changelog\n", "1.0.0")

    def test_every_bootstrap_has_the_same_cluster_of_weir_sync(self):
        clusters = []
        for name in ("single/envoy.yaml", "compose/bootstrap.yaml"):
            with open(os.path.join(release.paths.ROOT, "envoy", name), encoding="utf-8") as file:
                lines = file.read().partition("  - name: weir-sync\n")[2].splitlines()
            clusters.append([line for line in lines if "#" not in line and "type: STRICT_DNS" not in line])
        one, other = clusters
        self.assertEqual([line.replace("127.0.0.1", "weir-sync") for line in one], other)

    def test_the_bootstraps_find_the_filter_where_the_page_puts_it(self):
        wasm, native = release.bootstraps()
        self.assertIn(b"filename: /usr/lib/weir/weir_filter.wasm}", wasm.data)
        self.assertIn(b"dynamic_modules.v3.DynamicModuleFilter", native.data)
        self.assertNotIn(b".wasm", native.data)
        # All but the POP's name is the same.
        (of_wasm, of_native) = (wasm.data.partition(b"configuration:\n")[2], native.data.partition(b"filter_config:\n")[2])
        named = set(of_native.splitlines()) - set(of_wasm.splitlines())
        self.assertEqual({line.strip() for line in named}, {b"# Envoy gives a module no node's id.", b"pop: local"})
        self.assertEqual(set(of_wasm.splitlines()) - set(of_native.splitlines()), set())


def _read_layout(archive):
    """The names in an archive of an OCI layout, and its index."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as found:
        return found.getnames(), json.load(found.extractfile("index.json"))


if __name__ == "__main__":
    unittest.main()
