"""The machine that the tests install on: its network, what runs on it, and who asks it."""

import collections
import fcntl
import functools
import http.client
import os
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
import urllib.request

DEADLINE_SECONDS = 30
_LOOK_SECONDS = 0.02
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 0x1
EDGE = 10000
UPSTREAM = 10080
SYNC = 7878


def raise_loopback():
    """A new network has its loopback interface down."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP))


def provide(name, program):
    """Have the program that is installed elsewhere in PATH, as where an operator has it."""
    if not os.path.exists(f"/usr/bin/{name}"):
        os.symlink(program, f"/usr/bin/{name}")


def name_here(*names):
    """Have this machine answer to these names."""
    with open("/etc/hosts", "w", encoding="utf-8") as file:
        file.write("127.0.0.1 localhost\n" + "".join(f"127.0.0.1 {name}\n" for name in names))


@functools.cache
def answer_names():
    """A DNS server on 127.0.0.1 for as long as the process runs, started once: every name is 127.0.0.1."""
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("127.0.0.1", 53))

    def serve():
        while True:
            asked, client = server.recvfrom(512)
            end = asked.index(b"\0", 12) + 5
            of_version_4 = asked[end - 4 : end - 2] == b"\0\1"
            head = asked[:2] + b"\x81\x80\0\1" + (b"\0\1" if of_version_4 else b"\0\0") + b"\0\0\0\0"
            answer = b"\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4\x7f\0\0\1" if of_version_4 else b""
            server.sendto(head + asked[12:end] + answer, client)

    threading.Thread(target=serve, daemon=True).start()


def wait_for(condition, what, seconds=DEADLINE_SECONDS):
    """Wait until `condition()` is true, and return it."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited {seconds} s in vain until {what}"
        time.sleep(_LOOK_SECONDS)
    return found


def listens(port):
    """Whether something does, on loopback."""
    with socket.socket() as asking:
        return asking.connect_ex(("127.0.0.1", port)) == 0


def statuses(count, port=EDGE):
    """How many of `count` requests were answered with which status."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_SECONDS)
    found = collections.Counter()
    for _ in range(count):
        connection.request("GET", "/")
        response = connection.getresponse()
        response.read()
        found[response.status] += 1
    connection.close()
    return found


def text_of(url):
    """What is at `url`; empty where it cannot be had."""
    try:
        with urllib.request.urlopen(url, timeout=DEADLINE_SECONDS) as response:
            return response.read().decode()
    except OSError:
        return ""


class Shell:
    """A reader's terminal in a folder with the release. What is started in it ends with it."""

    def __init__(self, release):
        self._started = []
        self.folder = tempfile.mkdtemp()
        shutil.copytree(release, self.folder, dirs_exist_ok=True)
        self._log = os.path.join(self.folder, "terminal.log")

    def run(self, block):
        """Type a block; it may start programs with `&`. Returns its output."""
        begins = self._size()
        # A background program keeps the output open: that goes to a file, which nobody waits for.
        with open(self._log, "ab") as log:
            child = subprocess.Popen(
                ["bash", "-euo", "pipefail", "-c", block], cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log,
                stderr=subprocess.STDOUT, start_new_session=True,
            )
        self._started.append(child)
        status = child.wait(timeout=120)
        assert status == 0, f"{block}\nended with {status}:\n{self.output()}"
        return self.output()[begins:]

    def start(self, command, **options):
        """Start one program."""
        with open(self._log, "ab") as log:
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True, **options
            )
        self._started.append(child)
        return child

    def output(self):
        """All output so far."""
        with open(self._log, encoding="utf-8", errors="replace") as file:
            return file.read()

    def close(self):
        """End what was started, and wait until its ports are free."""
        for child in reversed(self._started):
            try:
                os.killpg(child.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            child.wait()
        wait_for(lambda: not any(listens(port) for port in (EDGE, UPSTREAM, SYNC)), "the ports are free again")
        shutil.rmtree(self.folder)

    def _size(self):
        return len(self.output()) if os.path.exists(self._log) else 0
