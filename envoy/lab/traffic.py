"""Clients for the three regions of `make run-regions`: visitors, and an attacker to try one's hand on.

Each client has an address of its own on loopback (127.0.1.1 and on; the attacker 127.0.0.66), and goes to all three edges.
"""

import collections
import http.client
import itertools
import sys
import threading
import time

from ports import LOOPBACK
from problem import Problem, print_line

_VISITORS = [f"127.0.1.{last}" for last in range(1, 31)]
# Whom to ban.
ATTACKER = "127.0.0.66"
# Between a visitor's requests. The first one crawls, and is limited a little.
_VISIT_SECONDS = 1.0
_CRAWL_SECONDS = 0.04
# Between the attacker's requests at one edge, of three.
_ATTACK_SECONDS = 0.01
_ANSWER_SECONDS_MAX = 5
# How long there is traffic unless it is ended before.
SECONDS_MAX = {"visitors": 3600, "attack": 900}


def run(who, edges, seconds):
    """Send the requests of `who` ("visitors" or "attack") to `edges` (name -> port) for so many seconds."""
    if sys.platform != "linux":
        raise Problem("the clients have addresses of their own on loopback, which only Linux has without setting it up.")
    until = time.monotonic() + seconds
    answers = collections.Counter()
    clients = [threading.Thread(target=_ask, args=(client, until, answers), daemon=True) for client in _clients(who, edges)]
    for client in clients:
        client.start()
    while time.monotonic() < until:
        time.sleep(1)
        print_line(_line(edges, answers))
        answers.clear()


_Client = collections.namedtuple("Client", "address edges pause first")


def _clients(who, edges):
    """Visitors go from edge to edge; the attacker asks all of them at once."""
    if who == "attack":
        return [_Client(ATTACKER, [edge], _ATTACK_SECONDS, 0) for edge in edges.items()]
    pauses = [_CRAWL_SECONDS] + [_VISIT_SECONDS] * (len(_VISITORS) - 1)
    # Not all at once: the first visitor now, the last one almost a second later.
    return [
        _Client(address, list(edges.items()), pause, _VISIT_SECONDS * index / len(_VISITORS))
        for index, (address, pause) in enumerate(zip(_VISITORS, pauses))
    ]


def _ask(client, until, answers):
    """One request after the other, at the client's pace; one that is late is not made up for."""
    connections = {}
    time.sleep(client.first)
    for name, port in itertools.cycle(client.edges):
        began = time.monotonic()
        if began > until:
            return
        try:
            connection = connections.get(name) or _connection(client.address, port)
            connections[name] = connection
            connection.request("GET", "/")
            response = connection.getresponse()
            response.read()
            answers[name, response.status] += 1
        except (OSError, http.client.HTTPException):
            connections.pop(name, None)
            answers[name, "no answer"] += 1
        time.sleep(max(0, began + client.pause - time.monotonic()))


def _connection(address, port):
    return http.client.HTTPConnection(LOOPBACK, port, timeout=_ANSWER_SECONDS_MAX, source_address=(address, 0))


def _line(edges, answers):
    """What the last second brought: the time, and for each edge how many answers of which status."""
    seen = dict(answers)
    columns = []
    for edge in edges:
        counts = sorted((str(status), count) for (name, status), count in seen.items() if name == edge)
        columns.append(f"{edge}  " + (" ".join(f"{status}:{count:<4}" for status, count in counts) or "-"))
    return time.strftime("%H:%M:%S  ") + "  ".join(f"{text:<20}" for text in columns).rstrip()
