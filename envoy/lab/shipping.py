"""Builds what is shipped: the wasm filter made small, and the native programs for each architecture."""

import os
import platform
import re

import paths
import system
import tools
from problem import Problem

# The maximum size of the module, 416 KiB: every proxy of a fleet fetches, compiles and keeps it.
_WASM_BYTES_MAX = 425_984
# Makes the module a tenth smaller. The features are those that rustc uses; wasm-opt refuses a module with another one.
# The stack has less than a mebibyte (Makefile), so that the addresses behind it take three bytes in code, not four. Its
# end is the lowest 1,024 bytes of memory, so an address and a small offset never wrap around, and a load can add the
# offset itself. Once flat, control flow is laid out anew. Functions that differ by constants alone share one body, and
# what that leaves is optimised again, for size, until nothing more is found. A constant that a function has several
# times is written once, and the functions that are called most get the shortest numbers.
_WASM_OPT = (
    "wasm-opt -O3 --low-memory-unused --flatten --rereloop -O3 --merge-similar-functions -Os --converge "
    "--const-hoisting --reorder-functions "
    "--strip-producers --strip-target-features --enable-bulk-memory --enable-sign-ext --enable-nontrapping-float-to-int"
).split()
_CARGO_HOME = os.environ.get("CARGO_HOME") or os.path.expanduser("~/.cargo")
# A release is the same to the byte wherever it is built: no path of the machine is in it.
_HIDDEN = {_CARGO_HOME: "/cargo", paths.ROOT: "/weir"}


def wasm(name):
    """Ship the module `name` that cargo built: small, and with no path of this machine in it."""
    built = os.path.join(paths.TARGET, "wasm32-wasip1", "wasm", f"{name}.wasm")
    shipped = os.path.join(paths.TARGET, f"{name}.wasm")
    # Renamed once it is complete: a test or an Envoy may be reading the old file.
    if system.run([*_WASM_OPT, built, "-o", f"{shipped}.new"]) != 0:
        raise Problem(f"wasm-opt refuses {built} (its reason is above).")
    os.rename(f"{shipped}.new", shipped)
    with open(shipped, "rb") as file:
        module = file.read()
    if len(module) > _WASM_BYTES_MAX:
        raise Problem(f"the module has {len(module)} bytes, expected at most {_WASM_BYTES_MAX}: {shipped}")
    for path in (f"{_CARGO_HOME}/registry/", f"{paths.ROOT}/filter/"):
        if path.encode() in module:
            raise Problem(f"the module names {path} (is RUSTFLAGS set?), expected no path of this machine: {shipped}")


def cross_tools(architectures):
    """The names of the cross compilers that a build for `architectures` needs on this machine."""
    return [f"cross-{name}" for name in architectures if name != platform.machine()]


def command(program, architectures):
    """The command that builds `program`, `sync` or `module`, for `architectures`."""
    targets = [word for name in architectures for word in ("--target", f"{name}-unknown-linux-gnu")]
    if program == "sync":
        return ["cargo", "auditable", "build", "--locked", "--release", "-p", "weir-sync", *targets]
    return ["cargo", "build", "--locked", "-p", "weir-native", "--profile", "module", *targets]


def release(program, architectures):
    """Build a program as a release has it. weir-sync has the list of its crates in it, and runs on every Linux."""
    tools.ensure(cross_tools(architectures))
    env = dict(os.environ)
    flags = [f"--remap-path-prefix={path}={to}" for path, to in _HIDDEN.items()]
    if program == "sync":
        tools.ensure(["cargo-auditable"])
        env["PATH"] = os.path.join(paths.TOOLS, "cargo-auditable", "bin") + os.pathsep + env["PATH"]
        env["CFLAGS"] = " ".join(f"-ffile-prefix-map={path}={to}" for path, to in _HIDDEN.items())
        # mimalloc has the time of its compilation in it: 1970.
        env["SOURCE_DATE_EPOCH"] = "0"
        flags.append("-Ctarget-feature=+crt-static")
    env["RUSTFLAGS"] = " ".join(flags)
    for name in architectures:
        linker = "cc" if name == platform.machine() else f"{name}-linux-gnu-gcc"
        env[re.sub("-", "_", f"CARGO_TARGET_{name}_UNKNOWN_LINUX_GNU_LINKER").upper()] = linker
    if system.run(command(program, architectures), env=env) != 0:
        raise Problem(f"{program} was not built (cargo's reason is above).")
