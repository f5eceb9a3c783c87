"""Running the programs of the system, and its package manager."""

import os
import shutil
import subprocess

import paths
from problem import Problem, say


def run(command, env=None):
    """Run `command` in the project with its output shown; returns its exit status."""
    try:
        return subprocess.run(command, cwd=paths.ROOT, env=env, check=False).returncode
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


def apt_install(package, what):
    """Install a Debian package where that needs no password; raises Problem where it cannot."""
    missing = f"{what} is missing: install it (on Debian and Ubuntu: `apt-get install {package}`), then try again."
    apt = shutil.which("apt-get")
    if not apt:
        raise Problem(missing)
    if os.geteuid() != 0:
        if not succeeds(["sudo", "-n", "true"]):
            raise Problem(missing)
        apt_command = ["sudo", "-n", "DEBIAN_FRONTEND=noninteractive", apt]
    else:
        apt_command = [apt]
    say(f"installing {package} with apt-get")
    env = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
    install = [*apt_command, "install", "--yes", "--no-install-recommends", package]
    # A fresh machine has no package lists yet, an old one has stale ones.
    if run(install, env) != 0 and (run([*apt_command, "update"], env) != 0 or run(install, env) != 0):
        raise Problem(f"apt-get could not install {package} (its reason is above): {missing}")
