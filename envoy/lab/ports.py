"""Which TCP ports are taken, and by whom."""

import errno
import os
import socket

from problem import Problem

LOOPBACK = "127.0.0.1"
# The state of a listening socket in the kernel's table (linux/include/net/tcp_states.h).
_LISTENING = "0A"


def require_free(ports):
    """Raise a Problem that names every port of `ports` (number -> use) that is taken."""
    taken = [port for port in ports if _is_taken(port)]
    if not taken:
        return
    held = "; ".join(f"port {port} ({ports[port]}) is in use by {holder(port)}" for port in taken)
    raise Problem(
        f"{held}: end that first, or move every port by a number, as in `make run PORT_OFFSET=1000`."
    )


def holder(port):
    """Name the process that listens on `port`, as far as this user may know."""
    inodes = _listening_inodes(port)
    for pid in filter(str.isdigit, _entries("/proc")):
        for descriptor in _entries(f"/proc/{pid}/fd"):
            if _link(f"/proc/{pid}/fd/{descriptor}") in inodes:
                return f"{_command(pid)} (process {pid})"
    return "a process of another user" if inodes else "another process"


def _is_taken(port):
    with socket.socket() as listener:
        # Ports left in TIME_WAIT by an earlier run are free: the servers set this option as well.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((LOOPBACK, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return True
            raise Problem(f"port {port} cannot be opened on {LOOPBACK}: {error.strerror}.") from error
    return False


def _listening_inodes(port):
    """The sockets that listen on `port`, written as /proc/PID/fd shows them."""
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in _lines(table)[1:]:
            fields = line.split()
            if fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                found.add(f"socket:[{fields[9]}]")
    return found


# Processes come and go while /proc is read, and other users' are closed to us: both read as empty.


def _entries(directory):
    try:
        return os.listdir(directory)
    except OSError:
        return []


def _link(path):
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _lines(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().splitlines()
    except OSError:
        return []


def _command(pid):
    return next(iter(_lines(f"/proc/{pid}/comm")), "an unnamed process")
