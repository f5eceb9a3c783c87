"""What runs where: one edge (`single`), or three regions that share a Redis (`regions`)."""

import os
import secrets
import shutil

import bootstrap
import parts
import paths
from problem import Problem

_REGIONS = ("fra1", "iad1", "sin1")
# As written in envoy/regions/envoy.yaml: what the first region uses. The others count on from there.
_REGION_TOKEN = "change-me-pops-token"
# What may change rules and set overrides there.
_ADMIN_TOKEN = "admin.token"
# The rules of a single edge, for an operator to change and put.
_RULES = "rules.yaml"

# What must be there before anything starts, and the target that makes it.
_MADE_BY = {paths.WASM: "wasm", paths.WEIR_SYNC: "sync-debug", paths.ENVOY: "tools"}

_TRY_BURST = (
    "for i in $(seq 1 200); do curl -s -o /dev/null -w '%{{http_code}}\\n' "
    "http://127.0.0.1:{port}/; done | sort | uniq -c"
)


class Deployment:
    """Parts in the order they start, the ports they take, and the lines for the user."""

    def __init__(self, name, offset):
        self.run_dir = os.path.join(paths.TOOLS, "run", f"{name}+{offset}" if offset else name)
        self.ports = {}
        self.parts = []
        self.lines = []
        self._offset = offset
        self.files = {}

    def port(self, number, use):
        """The port that stands for `number` in this run; `use` is its purpose."""
        moved = number + self._offset
        if not 0 < moved < 65536:
            raise Problem(f"PORT_OFFSET={self._offset} moves port {number} to {moved}, and there is none: choose a smaller number.")
        self.ports[moved] = use
        return moved

    def add(self, part):
        """Run `part` after those added before."""
        self.parts.append(part)

    def add_file(self, name, text):
        """Have a file written into the run's folder, for this user alone; returns its path."""
        path = os.path.join(self.run_dir, name)
        self.files[path] = text
        return path

    def shown(self, name):
        """A file of the run's folder as one types it in the project's folder."""
        return os.path.relpath(os.path.join(self.run_dir, name), paths.ROOT)

    def add_line(self, what, where):
        """Add a line for the user once everything runs."""
        self.lines.append(f"  {what:<16} {where}")

    def prepare(self):
        """Write the files that the parts need. Raises a Problem where something is not built or installed."""
        for path, target in _MADE_BY.items():
            if not os.path.exists(path):
                raise Problem(f"{path} is missing: make it with `make {target}`.")
        for part in self.parts:
            if not shutil.which(part.command[0]):
                raise Problem(f"{part.command[0]} is missing: install it with `make tools`.")
        os.makedirs(self.run_dir, exist_ok=True)
        for path, text in self.files.items():
            with open(path, "w", encoding="utf-8", opener=_for_this_user) as file:
                file.write(text)


def _for_this_user(path, flags):
    return os.open(path, flags, 0o600)


def single(offset):
    """An upstream, a weir-sync with its memory store, an Envoy."""
    run = Deployment("single", offset)
    edge, admin = run.port(10000, "Envoy"), run.port(9901, "Envoy's admin page")
    sync, upstream = run.port(7878, "weir-sync"), run.port(10080, "the upstream")
    text = bootstrap.render("single", {10000: edge, 9901: admin, 7878: sync, 10080: upstream})
    run.add(parts.upstream(upstream))
    run.add(parts.weir_sync("weir-sync", sync, "local", "memory", run.run_dir, {"ADMIN_TOKEN_FILE": _admin_token(run)}))
    run.add(parts.envoy("envoy", run.add_file("envoy.yaml", text), edge))
    run.add_line("edge", f"http://127.0.0.1:{edge}/  (Envoy with the filter; rules: envoy/single/envoy.yaml)")
    run.add_line("Envoy's admin", f"http://127.0.0.1:{admin}/stats?filter=wasmcustom")
    run.add_line("weir-sync", f"http://127.0.0.1:{sync}/  (its page; it asks for the token in {run.shown(_ADMIN_TOKEN)})")
    run.add_line("upstream", f"http://127.0.0.1:{upstream}/")
    run.add_line("logs", run.shown("*.log"))
    run.lines += ["", "Try:", "  " + _TRY_BURST.format(port=edge), f"  curl -i http://127.0.0.1:{edge}/"]
    run.add_file(_RULES, bootstrap.rules(text))
    run.lines += ["", "Look at it and act, as an operator does (docs/operating.md):", *_operate(run, sync)]
    run.lines += ["  weir-sync keys", f"  weir-sync rules put {run.shown(_RULES)}     # edit it first", "  weir-sync fleet"]
    return run


def regions(offset):
    """Three regions, an Envoy and a weir-sync each, with one upstream and one Redis for all."""
    run = Deployment("regions", offset)
    redis, upstream = run.port(6390, "Redis"), run.port(10080, "the upstream")
    run.add(parts.upstream(upstream))
    run.add(parts.redis(redis, run.run_dir))
    _admin_token(run)
    edges = [_region(run, index, name, redis, upstream) for index, name in enumerate(_REGIONS)]
    run.add_line("Redis", f"redis://127.0.0.1:{redis}")
    run.add_line("upstream", f"http://127.0.0.1:{upstream}/")
    run.add_line("logs", run.shown("*.log"))
    run.lines += ["", "Try the quota in one region, then what is left of it in another:"]
    run.lines += ["  " + _TRY_BURST.format(port=edge) for edge in edges[:2]]
    run.lines += ["", "Look at it and act, as an operator does (docs/operating.md):", *_operate(run, run.port(7881, "weir-sync of fra1"))]
    run.lines += ["", "Plots and alerts (envoy/observe/README.md):", *_plots(run, offset)]
    return run


def _admin_token(run):
    """The path of the operator's token: another each time, like a password that somebody made for today."""
    return run.add_file(_ADMIN_TOKEN, secrets.token_hex(16))


def _operate(run, sync):
    """What a terminal needs so that `weir-sync` asks the one at the port `sync`."""
    return [
        f"  export WEIR_URL=http://127.0.0.1:{sync} WEIR_TOKEN_FILE={run.shown(_ADMIN_TOKEN)}",
        f"  alias weir-sync={os.path.relpath(paths.WEIR_SYNC, paths.ROOT)}",
        "  weir-sync top",
        f"  http://127.0.0.1:{sync}/     # its page: it asks for the token in that file",
    ]


def edges(offset):
    """Each region's Envoy: its name -> its port."""
    return {name: 10001 + index + offset for index, name in enumerate(_REGIONS)}


def _plots(run, offset):
    """How to see this run in Prometheus and Grafana."""
    scraped = [port for index in range(len(_REGIONS)) for port in (9901 + index, 7881 + index)]
    config = run.add_file("prometheus.yaml", bootstrap.prometheus({port: port + offset for port in scraped}))
    config = os.path.relpath(config, paths.ROOT)
    prometheus = f"  prometheus --config.file={config} --storage.tsdb.path={run.shown('samples')}"
    if offset:
        return [prometheus]
    return [
        "  docker compose -f envoy/observe/compose.yaml up     # then http://127.0.0.1:3000",
        prometheus + "     # without Docker, and without Grafana",
    ]


def _region(run, index, name, redis, upstream):
    edge, admin = run.port(10001 + index, f"Envoy of {name}"), run.port(9901 + index, f"admin page of {name}")
    sync = run.port(7881 + index, f"weir-sync of {name}")
    ports = {10001: edge, 9901: admin, 7881: sync, 10080: upstream}
    text = bootstrap.render("regions", ports, {"id: fra1": f"id: {name}", "pop: fra1": f"pop: {name}"})
    store = f"redis://127.0.0.1:{redis}"
    settings = {"TOKEN": _REGION_TOKEN, "ADMIN_TOKEN_FILE": os.path.join(run.run_dir, _ADMIN_TOKEN)}
    # Whoever tries it out does not want to wait for an hour until it is known what is usual.
    settings |= {"ANOMALY_MINUTE_MS": "10000", "ANOMALY_LEARN_MINUTES": "6"}
    settings["AUDIT_LOG_FILE"] = run.add_file(f"audit-log-{name}.jsonl", "")
    run.add(parts.weir_sync(f"weir-sync-{name}", sync, name, store, run.run_dir, settings))
    run.add(parts.envoy(f"envoy-{name}", run.add_file(f"envoy-{name}.yaml", text), edge))
    run.add_line(name, f"http://127.0.0.1:{edge}/  (admin {admin}, weir-sync {sync})")
    return edge
