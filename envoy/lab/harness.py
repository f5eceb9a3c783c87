"""What the lab's own tests share: the lab as a child process, and waiting for what it does."""

import os
import signal
import subprocess
import sys
import tempfile
import time

import paths
import ports
from problem import Problem

# The last line of a deployment once it runs.
READY = "Ctrl-C ends everything."
# How long anything may take that is no start of a whole deployment.
DEADLINE_SECONDS = 20
_LOOK_SECONDS = 0.02
# Below the range that systems give to outgoing connections, so nothing takes a port by chance.
_OFFSETS = range(11000, 22000, 500)
_PORTS = range(15000, 15100)


def eventually(condition, seconds=DEADLINE_SECONDS):
    """Whether `condition()` comes true within `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(_LOOK_SECONDS)
    return True


def gone(pid):
    """Whether the process has ended (a zombie has: its parent merely has not looked yet)."""
    return _stat(pid)[:1] in ([], ["Z"])


def descendants(pid):
    """The processes below `pid`, at any depth."""
    parents = {int(other): int(stat[1]) for other in os.listdir("/proc") if other.isdigit() and (stat := _stat(other))}
    found = [pid]
    # Grows while it is walked: each process found is asked for its own children.
    for parent in found:
        found += [child for child, of in parents.items() if of == parent]
    return found[1:]


def _stat(pid):
    """State, parent and so on, as /proc has them after the name; empty where the process is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return []


def free_deployment(make):
    """A deployment that `make(offset)` describes, and an offset where all its ports are free."""
    for offset in _OFFSETS:
        deployment = make(offset)
        try:
            ports.require_free(deployment.ports)
        except Problem:
            continue
        return deployment, offset
    raise Problem("every range of ports that the tests try is in use.")


def free_port():
    """A port that nothing listens on, and no deployment of the tests uses."""
    for port in _PORTS:
        try:
            ports.require_free({port: "a test"})
        except Problem:
            continue
        return port
    raise Problem("every port that the tests try is in use.")


class Lab:
    """`envoy/lab` with these arguments, in a process group of its own. Its output goes to a file."""

    def __init__(self, *arguments, root=paths.ROOT, **env):
        self._output = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            [sys.executable, "-B", os.path.join("envoy", "lab"), "--end-with-parent", *arguments],
            cwd=root,
            # A name given as None is taken out of the environment.
            env={name: value for name, value in {**os.environ, **env}.items() if value is not None},
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.pid = self._process.pid

    def output(self):
        """All its output so far, on both streams."""
        size = os.fstat(self._output.fileno()).st_size
        return os.pread(self._output.fileno(), size, 0).decode(errors="replace")

    def has_ended(self):
        """Whether it has ended."""
        return self._process.poll() is not None

    def interrupt(self):
        """Ctrl-C: what a terminal sends to the process group in front."""
        os.killpg(self.pid, signal.SIGINT)

    def exit_status(self):
        """Wait for its end."""
        return self._process.wait(DEADLINE_SECONDS)

    def close(self):
        """End it, if it still runs; it ends what it started."""
        if not self.has_ended():
            self._process.terminate()
            self._process.wait(DEADLINE_SECONDS)
        self._output.close()
