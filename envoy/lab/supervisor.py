"""Starts the parts of a deployment, watches them, and leaves no process behind.

The parts are direct children, each in a session of its own, so a Ctrl-C at the terminal reaches the
supervisor alone and the parts end in order. Should the supervisor itself be killed, the Linux kernel
ends its children (PR_SET_PDEATHSIG).
"""

import collections
import ctypes
import os
import select
import signal
import subprocess
import sys
import time

from problem import Problem, print_line

# How long a part may take to become ready. Envoy compiles the filter first: a second, or several on a
# busy machine.
READY_SECONDS_MAX = 60
# How long a part may take to end by itself before it is killed.
END_SECONDS_MAX = 5
# Between two looks at whether a part is ready.
_LOOK_SECONDS = 0.05
_TAIL_LINES = 20
_TAIL_BYTES = 16 * 1024
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PR_SET_PDEATHSIG = 1

Part = collections.namedtuple("Part", "name command is_ready cwd env", defaults=(None, None))
Part.__doc__ = """A process to run.

name: what messages and the log file call it. command: its arguments. is_ready: called without
arguments until it returns something true. cwd, env: where it runs, and its environment (both as for
subprocess.Popen).
"""


class Stopped(Exception):
    """A signal asked for the end."""


class Supervisor:
    """A context manager: what it started has ended when its block is left."""

    def __init__(self, log_dir):
        self._log_dir = log_dir
        self._running = []
        self._stop_asked = False
        # The handlers write to this pipe: waiting on it ends when a signal or a child's end arrives.
        self._wake_out, self._wake_in = os.pipe()
        for end in (self._wake_out, self._wake_in):
            os.set_blocking(end, False)

    def __enter__(self):
        signal.set_wakeup_fd(self._wake_in, warn_on_full_buffer=False)
        for number in _STOP_SIGNALS:
            signal.signal(number, self._ask_stop)
        # Python installs none for a child's end, and without one the pipe is not written.
        signal.signal(signal.SIGCHLD, lambda *_: None)
        os.makedirs(self._log_dir, exist_ok=True)
        return self

    def __exit__(self, *_):
        for part, child in reversed(self._running):
            _end(part, child)

    def start(self, part):
        """Start `part` and wait until it is ready. Raises Problem where it does not get there."""
        with open(self.log_path(part), "wb") as log:
            try:
                child = subprocess.Popen(
                    part.command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    cwd=part.cwd,
                    env=part.env,
                    start_new_session=True,
                    preexec_fn=_end_with_parent(),
                )
            except OSError as error:
                raise Problem(f"{part.name} cannot be started: {error}.") from error
        self._running.append((part, child))
        self.wait_until(part.is_ready, f"{part.name} is ready", part)

    def wait_until(self, condition, what, part):
        """Wait until `condition()` is true. `what` describes it in words, and `part` is awaited."""
        deadline = time.monotonic() + READY_SECONDS_MAX
        while not condition():
            if time.monotonic() > deadline:
                self._show_tail(part)
                raise Problem(f"waited {READY_SECONDS_MAX} s in vain until {what}: see {self.log_path(part)}.")
            self._pause(_LOOK_SECONDS)

    def watch(self):
        """Wait until a signal (Stopped) or the end of a part (Problem)."""
        while True:
            self._pause(None)

    def log_path(self, part):
        """Where the output of `part` goes."""
        return os.path.join(self._log_dir, f"{part.name}.log")

    def _pause(self, seconds):
        self._check()
        if select.select([self._wake_out], [], [], seconds)[0]:
            os.read(self._wake_out, 4096)
        self._check()

    def _check(self):
        if self._stop_asked:
            raise Stopped
        for part, child in self._running:
            if child.poll() is not None:
                self._show_tail(part)
                raise Problem(f"{part.name} ended ({_how(child.returncode)}), so everything else ends too.")

    def _ask_stop(self, *_):
        self._stop_asked = True

    def _show_tail(self, part):
        path = self.log_path(part)
        print_line(f"--- the end of {path} ---")
        for line in _tail(path):
            print_line(f"    {line}")


def end_with_parent():
    """Let this process get SIGTERM when its parent dies, where the system can do that."""
    _prctl_pdeathsig(signal.SIGTERM)


def _end_with_parent():
    """What a child runs before it becomes the part: the kernel kills it when the supervisor dies."""
    parent = os.getpid()

    def before_exec():
        _prctl_pdeathsig(signal.SIGKILL)
        # The supervisor may have died before the line above.
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)

    return before_exec


# Loaded before any fork: the child must not load libraries.
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def _prctl_pdeathsig(number):
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)


def _end(part, child):
    """End the part's whole process group: first asked, then, after a while, forced."""
    for number, seconds in ((signal.SIGTERM, END_SECONDS_MAX), (signal.SIGKILL, None)):
        try:
            os.killpg(child.pid, number)
        except (ProcessLookupError, PermissionError):
            # No such group any more (macOS answers "not permitted" for one that has only a zombie left).
            pass
        try:
            child.wait(seconds)
            return
        except subprocess.TimeoutExpired:
            print_line(f"{part.name} did not end within {END_SECONDS_MAX} s and is killed.")


def _how(returncode):
    if returncode < 0:
        return f"by {signal.Signals(-returncode).name}"
    return f"exit status {returncode}"


def _tail(path):
    with open(path, "rb") as log:
        log.seek(max(0, os.path.getsize(path) - _TAIL_BYTES))
        return log.read().decode(errors="replace").splitlines()[-_TAIL_LINES:] or ["(no output)"]
