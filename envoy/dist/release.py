"""The files of a release."""

import datetime
import hashlib
import os
import re
import subprocess

import chart
import debian
import oci
import paths
from archives import File, gzipped, tar
from crates import Crates
from problem import Problem

# Rust's name of an architecture -> Debian's, which is also that of images.
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_ABOUT = "A rate limiter for Envoy, in one place or in many"
_WASM = ("weir_filter",)
# Mozilla's authorities, as the package certifi has them, for the image, which has no others.
_AUTHORITIES = os.path.join(paths.TOOLS, "certifi", "certifi", "cacert.pem")
# In a bootstrap: the wasm filter's lines before its configuration, and the dynamic module's.
_WASM_BEGINS = """              "@type": type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm
"""
_WASM_ENDS = """                configuration:
"""
_NATIVE = """              "@type": type.googleapis.com/envoy.extensions.filters.http.dynamic_modules.v3.DynamicModuleFilter
              dynamic_module_config: {name: weir_native, do_not_close: true}
              # Names the buckets: keep it, and they survive a new configuration.
              filter_name: weir
              filter_config:
"""
_SYNC = """                    sync:
                      cluster: weir-sync
"""
_POP = """                      # Envoy gives a module no node's id.
                      pop: local
"""
# As nobody, by number: the image has no list of users.
_USER = "65532:65532"


def files(architectures, created):
    """Every file of the release for these architectures; `created` is the time of all, in seconds."""
    made = _Release(architectures, created)
    found = [
        *(File(f"{name}.wasm", made.wasm(name)) for name in _WASM),
        *bootstraps(),
        *made.of_architectures(),
        *made.images(),
        *made.of_kubernetes(),
        made.compose(),
        *made.papers(),
    ]
    sums = "".join(f"{hashlib.sha256(file.data).hexdigest()}  {file.path}\n" for file in sorted(found, key=lambda f: f.path))
    return [*found, File("SHA256SUMS", sums.encode())]


class _Release:
    def __init__(self, architectures, created):
        self._architectures, self._created = architectures, created
        with open(os.path.join(paths.ROOT, "Cargo.toml"), encoding="utf-8") as file:
            (self.version,) = re.findall(r'^version = "([^"]+)"$', file.read(), re.MULTILINE)
        linked = {"weir_filter.wasm": ("weir-filter", "wasm32-wasip1")}
        for architecture in architectures:
            linked[f"weir-sync-{architecture}"] = ("weir-sync", _target(architecture))
            linked[f"libweir_native-{architecture}.so"] = ("weir-native", _target(architecture))
        self._crates = Crates(linked)
        self._licences = self._crates.licences()

    def wasm(self, name):
        return _read(os.path.join(paths.TARGET, f"{name}.wasm"))

    def of_architectures(self):
        """What there is one of for each: the dynamic module, and weir-sync as a file and as a Debian package."""
        for architecture in self._architectures:
            yield File(f"libweir_native-{architecture}.so", _read(_built(architecture, "module", "libweir_native.so")))
            yield File(f"weir-sync-{architecture}", _read(_weir_sync(architecture)), 0o755)
            yield self.package(architecture)

    def images(self):
        """The filter for what fetches modules from a registry, and weir-sync: for each architecture, and for all in one."""
        # For every machine: what fetches it asks for none, and the format wants one.
        of_filter = self._image("weir-filter", [File("plugin.wasm", self.wasm("weir_filter"))], {}, "amd64")
        archive = oci.archive("weir-filter", self.version, of_filter, self._created)
        yield File(f"weir-filter-{self.version}.oci.tar", archive)
        of_sync = {architecture: self._image_of_sync(architecture) for architecture in self._architectures}
        for architecture, image in of_sync.items():
            archive = oci.archive("weir-sync", self.version, image, self._created)
            yield File(f"weir-sync-{self.version}-{architecture}.oci.tar", archive)
        archive = oci.archive_of_all("weir-sync", self.version, of_sync.values(), self._created)
        yield File(f"weir-sync-{self.version}.oci.tar", archive)

    def _image_of_sync(self, architecture):
        held = [
            File("usr/bin/weir-sync", _read(_weir_sync(architecture)), 0o755),
            File("etc/ssl/certs/ca-certificates.crt", _read(_AUTHORITIES)),
            File("usr/share/doc/weir-sync/LICENSE", _source("LICENSE")),
            File("usr/share/doc/weir-sync/THIRD-PARTY-LICENSES.txt", self._licences),
        ]
        # SIGTERM ends it in order, as `docker stop` has it.
        starts = {"Entrypoint": ["/usr/bin/weir-sync"], "User": _USER, "ExposedPorts": {"7878/tcp": {}}}
        return self._image("weir-sync", held, starts, ARCHITECTURES[architecture])

    def _image(self, name, held, config, architecture):
        labels = {
            "org.opencontainers.image.title": name,
            "org.opencontainers.image.version": self.version,
            "org.opencontainers.image.licenses": "Apache-2.0",
            "org.opencontainers.image.description": _ABOUT,
        }
        return oci.image(held, config, labels, self._created, architecture)

    def package(self, architecture):
        """weir-sync for Debian and what is made of it."""
        arch = ARCHITECTURES[architecture]
        own = os.path.join("envoy", "dist", "debian")
        doc = "usr/share/doc/weir-sync"
        control = {
            "Package": "weir-sync",
            "Version": self.version,
            "Architecture": arch,
            "Section": "net",
            "Priority": "optional",
            "Maintainer": "The authors of Weir <nobody@weir.invalid>",
            # It is linked statically; it needs the authorities for rediss:// alone.
            "Recommends": "ca-certificates",
            "Description": "divides the quotas of a fleet of Envoys that run Weir's filter\n"
            " Weir is a rate limiter for Envoy. Its filter decides each request in the proxy,\n"
            " and weir-sync grants each proxy its part of the common quotas.",
        }
        held = [
            File("usr/bin/weir-sync", _read(_weir_sync(architecture)), 0o755),
            File("usr/lib/systemd/system/weir-sync.service", _source(own, "weir-sync.service")),
            File("etc/weir/weir-sync.yaml", _source("sync-service", "weir-sync.yaml")),
            File("etc/weir/credentials", None, 0o700),
            File("usr/share/bash-completion/completions/weir-sync", self._completions("bash")),
            File("usr/share/zsh/vendor-completions/_weir-sync", self._completions("zsh")),
            File("usr/share/fish/vendor_completions.d/weir-sync.fish", self._completions("fish")),
            File(f"{doc}/copyright", _source(own, "copyright")),
            File(f"{doc}/THIRD-PARTY-LICENSES.txt", self._licences),
            File(f"{doc}/changelog.gz", gzipped(_source("CHANGELOG.md"))),
        ]
        scripts = {name: _source(own, name) for name in ("postinst", "prerm", "postrm")}
        data = debian.package(control, scripts, ["etc/weir/weir-sync.yaml"], held, self._created)
        return File(f"weir-sync_{self.version}_{arch}.deb", data)

    def _completions(self, shell):
        """The shell's completions of weir-sync's commands, which the program for this machine writes."""
        here = os.uname().machine
        if here not in self._architectures:
            raise Problem(f"weir-sync writes a part of its package, so ARCHITECTURES needs {here}, which runs here.")
        return _output([_weir_sync(here), "completions", shell])

    def of_kubernetes(self):
        """The chart, and what it makes with its own values."""
        packed = chart.package(os.path.join(paths.ROOT, "envoy", "kubernetes", "weir-sync"), self._created)
        yield File(f"weir-sync-{self.version}.tgz", packed)
        yield File(f"weir-sync-{self.version}.yaml", chart.manifests(packed, "weir-sync", "weir"))

    def compose(self):
        """A folder for `docker compose up`."""
        folder = os.path.join("envoy", "compose")
        held = {name: _source(folder, name) for name in ("compose.yaml", "prometheus.yaml", "README.md")}
        held["envoy.yaml"] = _source(folder, "bootstrap.yaml")
        observe = os.path.join("envoy", "observe")
        below = ("grafana/dashboards.yaml", "mixin/dashboards/weir.json")
        held |= {name: _source(observe, name) for name in below}
        held["grafana/datasources.yaml"] = _source(folder, "datasources.yaml")
        for kind in ("alerts", "rules"):
            for name in sorted(os.listdir(os.path.join(paths.ROOT, observe, "mixin", kind))):
                held[f"mixin/{kind}/{name}"] = _source(observe, "mixin", kind, name)
        held[".env"] = f"WEIR_VERSION={self.version}\n".encode()
        held["weir_filter.wasm"] = self.wasm("weir_filter")
        packed = tar([File(name, data) for name, data in held.items()], self._created, root=f"weir-compose-{self.version}/")
        return File(f"weir-compose-{self.version}.tar.gz", gzipped(packed))

    def papers(self):
        """What is in it, under which licences, and what changed."""
        moment = datetime.datetime.fromtimestamp(self._created, datetime.timezone.utc)
        rust = _output(["rustc", "--version"]).decode().split()[1]
        beside = [("rust-std", rust, f"pkg:generic/rust-std@{rust}")]
        for version in sorted({_c_library(architecture) for architecture in self._architectures}):
            beside.append(("glibc", version, f"pkg:generic/glibc@{version}"))
        bill = self._crates.bill_of_materials("weir", self.version, moment.strftime("%Y-%m-%dT%H:%M:%SZ"), beside)
        yield File(f"weir-{self.version}.cdx.json", bill)
        yield File("LICENSE", _source("LICENSE"))
        yield File("THIRD-PARTY-LICENSES.txt", self._licences)
        yield File(f"CHANGELOG-{self.version}.md", changes(_source("CHANGELOG.md").decode(), self.version).encode())


def bootstraps():
    """envoy/single's, with the filter where docs/install.md puts it, and the same with the dynamic module."""
    text = _source("envoy", "single", "envoy.yaml").decode()
    yield File("envoy.yaml", _replaced(text, paths.WASM_IN_BOOTSTRAP, "/usr/lib/weir/weir_filter.wasm").encode())
    begin, end = text.find(_WASM_BEGINS), text.find(_WASM_ENDS)
    if begin < 0 or end < begin:
        raise Problem(f"envoy/single/envoy.yaml has no filter between {_WASM_BEGINS!r} and {_WASM_ENDS!r}.")
    rest = text[end + len(_WASM_ENDS) :]
    yield File("envoy-native.yaml", (text[:begin] + _NATIVE + _replaced(rest, _SYNC, _SYNC + _POP)).encode())


def changes(changelog, version):
    """The changelog's part about `version`; until it has one, what is not released yet."""
    parts = re.split(r"^(?=## \[)", changelog, flags=re.MULTILINE)
    for name in (version, "Unreleased"):
        for part in parts:
            if part.startswith(f"## [{name}]"):
                return part
    raise Problem(f"CHANGELOG.md has neither a part `## [{version}]` nor one `## [Unreleased]`.")


def _target(architecture):
    return f"{architecture}-unknown-linux-gnu"


def _built(architecture, *names):
    """What cargo built for an architecture."""
    return os.path.join(paths.TARGET, _target(architecture), *names)


def _weir_sync(architecture):
    return _built(architecture, "release", "weir-sync")


def _c_library(architecture):
    """The version of the C library that programs for an architecture are linked with."""
    compiler = "cc" if architecture == os.uname().machine else f"{architecture}-linux-gnu-gcc"
    defined = _output([compiler, "-E", "-dM", "-include", "features.h", "-x", "c", os.devnull]).decode()
    parts = dict(re.findall(r"^#define __GLIBC(|_MINOR)__ (\d+)$", defined, re.MULTILINE))
    return f"{parts['']}.{parts['_MINOR']}"


def _replaced(text, old, new):
    if old not in text:
        raise Problem(f"envoy/single/envoy.yaml has no {old!r}.")
    return text.replace(old, new)


def _source(*names):
    return _read(os.path.join(paths.ROOT, *names))


def _read(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise Problem(f"{path} cannot be read ({error.strerror}): make it with `make dist`.") from error


def _output(command):
    done = subprocess.run(command, cwd=paths.ROOT, capture_output=True, check=False)
    if done.returncode != 0:
        raise Problem(f"`{' '.join(command)}` failed: {done.stderr.decode().strip()}")
    return done.stdout
