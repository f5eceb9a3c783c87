"""Installs what builds for an architecture, and what runs it, on a machine of another one."""

import os
import shutil

import paths
import system
from problem import Problem, print_line

# Rust's name of an architecture -> that of its compiler's package, and that of its C library's, in Debian.
_PACKAGED = {"x86_64": ("x86-64", "amd64"), "aarch64": ("aarch64", "arm64")}
NAMES = tuple(_PACKAGED)


def other():
    """The architecture that this machine does not have."""
    (name,) = set(NAMES) - {os.uname().machine}
    return name


def cross(name):
    """What builds for it: Rust's library, a C compiler, and the C library."""
    target = f"{name}-unknown-linux-gnu"
    if not system.has_rust_targets(target) and shutil.which("rustup"):
        print_line(f"installing Rust's library for {name}")
        system.run(["rustup", "target", "add", target])
    if not system.has_rust_targets(target):
        raise Problem(f"the Rust target {target} is missing and could not be installed: does cargo come from rustup?")
    # It prints a path where it has the file, and the name alone elsewhere.
    asked = [f"{name}-linux-gnu-gcc", "-print-file-name=libc.a"]
    if not os.path.isabs(system.output(asked)):
        of_compiler, of_library = _PACKAGED[name]
        packages = f"gcc-{of_compiler}-linux-gnu libc6-dev-{of_library}-cross"
        system.apt_install(packages, f"a C compiler for {name}")
    if not os.path.isabs(system.output(asked)):
        raise Problem(f"{asked[0]} was installed, but it has no C library to link statically.")


def emulator(name):
    """What runs its programs: qemu, and the C library for those that are not linked statically."""
    program = f"qemu-{name}-static"
    if not system.succeeds([os.path.join(paths.QEMU_DIR, program), "--version"]):
        print_line(f"unpacking an emulator of {name}, of Debian's package qemu-user-static, into .tools/qemu")
        system.apt_unpack("qemu-user-static", (program,), paths.QEMU_DIR)
    if not os.path.exists(f"/usr/{name}-linux-gnu/lib/libc.so.6"):
        system.apt_install(f"libc6-{_PACKAGED[name][1]}-cross", f"the C library for {name}")
