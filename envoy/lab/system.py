"""Running the programs of the system, and its package manager."""

import glob
import os
import shutil
import subprocess
import tempfile

import paths
from problem import Problem, print_line


def run(command, env=None, cwd=paths.ROOT):
    """Run `command` in the project with its output shown; returns its exit status."""
    try:
        return subprocess.run(command, cwd=cwd, env=env, check=False).returncode
    except OSError as error:
        raise Problem(f"{command[0]} cannot be run: {error}.") from error


def output(command):
    """What `command` prints, stripped; empty where it fails or is not there."""
    try:
        done = subprocess.run(command, cwd=paths.ROOT, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def succeeds(command):
    """Whether `command`, run without showing its output, ends with status 0."""
    try:
        return subprocess.run(command, cwd=paths.ROOT, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def has_rust_targets(*targets):
    """Whether Rust has its library for each of them."""
    command = ["rustc", "--print", "target-libdir", "--target"]
    return all(os.path.isdir(output([*command, target])) for target in targets)


def apt_unpack(package, names, folder):
    """Put the programs `names` of a Debian package into `folder`, without installing it: no service starts."""
    missing = f"{' and '.join(names)} cannot be unpacked: install {package}, then try again."
    apt = shutil.which("apt-get")
    if not apt or not shutil.which("dpkg-deb"):
        raise Problem(missing)
    # Root may read what it downloads.
    download = [apt, "-o", "APT::Sandbox::User=root", "download", package]
    update = [apt, "update"] if os.geteuid() == 0 else ["sudo", "-n", apt, "update"]
    os.makedirs(paths.TOOLS, exist_ok=True)
    # Into a folder beside, then moved: an interrupted download leaves nothing half there.
    with tempfile.TemporaryDirectory(dir=paths.TOOLS, prefix="package-") as beside:
        if run(download, cwd=beside) != 0 and (run(update) != 0 or run(download, cwd=beside) != 0):
            raise Problem(f"apt-get could not download {package} (its reason is above): it needs a network once.")
        (archive,) = glob.glob(os.path.join(beside, "*.deb"))
        if run(["dpkg-deb", "--extract", archive, os.path.join(beside, "all")]) != 0:
            raise Problem(missing)
        fresh = os.path.join(beside, "fresh")
        os.mkdir(fresh)
        for name in names:
            os.rename(os.path.join(beside, "all", "usr", "bin", name), os.path.join(fresh, name))
        shutil.rmtree(folder, ignore_errors=True)
        os.rename(fresh, folder)


def apt_install(packages, what):
    """Install Debian packages, named in one line, where that needs no password; raises Problem where it cannot."""
    missing = f"{what} is missing: install it (on Debian and Ubuntu: `apt-get install {packages}`), then try again."
    apt = shutil.which("apt-get")
    if not apt:
        raise Problem(missing)
    if os.geteuid() != 0:
        if not succeeds(["sudo", "-n", "true"]):
            raise Problem(missing)
        apt_command = ["sudo", "-n", "DEBIAN_FRONTEND=noninteractive", apt]
    else:
        apt_command = [apt]
    print_line(f"installing {packages} with apt-get")
    env = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
    install = [*apt_command, "install", "--yes", "--no-install-recommends", *packages.split()]
    # A fresh machine has no package lists yet, an old one has stale ones.
    if run(install, env) != 0 and (run([*apt_command, "update"], env) != 0 or run(install, env) != 0):
        raise Problem(f"apt-get could not install {packages} (its reason is above): {missing}")
