"""Images as archives of OCI layouts, made without a daemon: skopeo, crane, podman and docker read them.

https://github.com/opencontainers/image-spec, v1.1: image-layout.md, image-index.md, manifest.md, config.md, layer.md.
"""

import datetime
import hashlib
import json
from dataclasses import dataclass

from archives import File, gzipped, tar

_INDEX = "application/vnd.oci.image.index.v1+json"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
# Istio's and Envoy Gateway's fetchers look for plugin.wasm in a layer of this type; neither takes a layer
# `application/wasm` alone.
_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"


@dataclass(frozen=True)
class Image:
    """An image of one layer: its blobs by their paths, and what describes its manifest, its configuration and its layer."""

    architecture: str
    blobs: dict
    manifest: dict
    config: dict
    layer: dict


def image(files, config, annotations, created, architecture="amd64"):
    """An image whose layer is `files`.

    `config` is what a container starts, and as whom; `created`, in seconds since 1970, is the time of everything in it.
    """
    blobs = {}
    layer = tar(files, created)
    configuration = {
        "created": _rfc3339(created),
        "architecture": architecture,
        "os": "linux",
        "config": {**config, "Labels": annotations},
        "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
        "history": [{"created": _rfc3339(created), "comment": "weir"}],
    }
    configured = _blob(blobs, _CONFIG, _json(configuration))
    packed = _blob(blobs, _LAYER, gzipped(layer))
    manifest = {
        "schemaVersion": 2,
        "mediaType": _MANIFEST,
        "config": configured,
        "layers": [packed],
        "annotations": annotations,
    }
    return Image(architecture, blobs, _blob(blobs, _MANIFEST, _json(manifest)), configured, packed)


def archive(name, tag, one, created):
    """An archive of one image.

    The manifest.json in it is of docker's own older form, of the same blobs: a docker that does not know OCI layouts loads
    it all the same.
    """
    of_docker = [{"Config": _path(one.config), "RepoTags": [f"{name}:{tag}"], "Layers": [_path(one.layer)]}]
    return _layout(name, tag, one.manifest, one.blobs, created, [File("manifest.json", _json(of_docker))])


def archive_of_all(name, tag, images, created):
    """An archive of one image for several architectures: a registry has them all under one name, and gives each its own."""
    listed = [{**one.manifest, "platform": {"architecture": one.architecture, "os": "linux"}} for one in images]
    blobs = {path: data for one in images for path, data in one.blobs.items()}
    index = {"schemaVersion": 2, "mediaType": _INDEX, "manifests": listed}
    return _layout(name, tag, _blob(blobs, _INDEX, _json(index)), blobs, created)


def _layout(name, tag, described, blobs, created, beside=()):
    # skopeo and podman read the tag alone, docker the whole name.
    named = {
        "org.opencontainers.image.ref.name": tag,
        "io.containerd.image.name": f"docker.io/library/{name}:{tag}",
    }
    index = {"schemaVersion": 2, "mediaType": _INDEX, "manifests": [{**described, "annotations": named}]}
    layout = [
        File("oci-layout", _json({"imageLayoutVersion": "1.0.0"})),
        File("index.json", _json(index)),
        *beside,
        *(File(path, data) for path, data in blobs.items()),
    ]
    return tar(layout, created)


def _blob(blobs, media_type, data):
    described = {"mediaType": media_type, "digest": _digest(data), "size": len(data)}
    blobs[_path(described)] = data
    return described


def _path(described):
    return "blobs/sha256/" + described["digest"].removeprefix("sha256:")


def _digest(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def _rfc3339(seconds):
    return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def _json(value):
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()
