"""The programs a deployment is made of: how each is started, and how one sees that it is ready."""

import http.client
import os
import shutil
import socket
import sys

import paths
import upstream as upstream_program
from ports import LOOPBACK
from supervisor import Part

# The probe has an address of its own, so that it does not use up the visitor's tokens. Linux has all
# of 127.0.0.0/8; elsewhere the probe costs one token.
_PROBE_ADDRESS = "127.0.0.2" if sys.platform == "linux" else LOOPBACK
_PROBE_SECONDS_MAX = 2
_WORKERS = 2


def upstream(port):
    """The small HTTP server behind the edge."""
    command = [sys.executable, "-B", paths.UPSTREAM, str(port)]
    return Part("upstream", command, lambda: _get(port, "/") is not None)


def redis(port, run_dir):
    """A Redis that keeps nothing: the next run starts with full budgets."""
    program = shutil.which("redis-server") or "redis-server"
    command = [program, "--bind", LOOPBACK, "--port", str(port), "--save", "", "--appendonly", "no"]
    return Part("redis", command, lambda: _redis_answers(port), cwd=run_dir)


def weir_sync(name, port, region, store, run_dir, settings=None):
    """A weir-sync; `settings` are more of its settings, by their names in the environment after WEIR_SYNC_."""
    command = [paths.WEIR_SYNC, "--listen", f"{LOOPBACK}:{port}", "--region", region, "--store", store]
    # The user's variables for some other weir-sync are not meant for this one.
    env = {variable: value for variable, value in os.environ.items() if not variable.startswith("WEIR_SYNC_")}
    # There is no other weir-sync for its reporters to go to.
    env["WEIR_SYNC_DRAIN_DELAY_MS"] = "0"
    # Not arguments: every user of the machine can read those, and tokens are among them.
    env.update({f"WEIR_SYNC_{setting}": value for setting, value in (settings or {}).items()})
    return Part(name, command, lambda: _get(port, "/readyz") is not None, cwd=run_dir, env=env)


def envoy(name, bootstrap_path, port):
    """An Envoy; ready when a request to `port` has really passed through it."""
    command = [paths.ENVOY, "--config-path", bootstrap_path, "--concurrency", str(_WORKERS)]
    command += ["--log-level", "warning", "--component-log-level", "wasm:info"]
    # Hot restart shares memory by a number: two Envoys on one machine would need different ones.
    command += ["--disable-hot-restart"]
    return Part(name, command, lambda: _passes(port), cwd=paths.ROOT)


def _passes(port):
    """Whether a GET through the edge is answered by the upstream itself."""
    response = _get(port, "/", _PROBE_ADDRESS)
    return response is not None and response.headers[upstream_program.NAME_HEADER] == upstream_program.NAME


def _get(port, path, source=LOOPBACK):
    """The response to a GET from the address `source`, or None unless it is a 200."""
    connection = http.client.HTTPConnection(LOOPBACK, port, _PROBE_SECONDS_MAX, source_address=(source, 0))
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        response.read()
        return response if response.status == 200 else None
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def _redis_answers(port):
    try:
        with socket.create_connection((LOOPBACK, port), _PROBE_SECONDS_MAX) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(16).startswith(b"+PONG")
    except OSError:
        return False
