"""`make run` and `make run-regions` do what the README and the pages in envoy/ describe.

The deployments run as those targets run them, only on other ports and without the builds: what is
not built fails here with the name of the target that builds it.
"""

import collections
import http.client
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
import urllib.parse

import deployments
import harness
import paths
import ports
import traffic

# The starts of all parts together. Some seconds, or many on a busy machine.
_READY_SECONDS_MAX = 60
_ANSWER_SECONDS_MAX = 10


def _get(port, path="/", source=ports.LOOPBACK):
    """Status and text of a GET from the address `source`, over a connection of its own."""
    connection = http.client.HTTPConnection(ports.LOOPBACK, port, _ANSWER_SECONDS_MAX, source_address=(source, 0))
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def _statuses(port, requests):
    """How many of so many requests, one after the other, got which status."""
    return collections.Counter(_get(port)[0] for _ in range(requests))


def _number(port, path, name):
    """The value of the counter `name` on the page at `path`."""
    found = re.search(rf"^{re.escape(name)}(?:{{[^}}]*}})?:? (\d+)$", _get(port, path)[1], re.MULTILINE)
    return int(found[1]) if found else 0


def _asked(port, query):
    """What the Prometheus at `port` answers; nothing while it does not."""
    try:
        status, text = _get(port, "/api/v1/query?" + urllib.parse.urlencode({"query": query}))
    except OSError:
        return []
    return json.loads(text)["data"]["result"] if status == 200 else []


@unittest.skipUnless(sys.platform == "linux", "processes are looked for in /proc")
class Acceptance(unittest.TestCase):
    def _start(self, name):
        """Run the deployment until it is ready. Returns it and its offset."""
        deployment, offset = harness.free_deployment(getattr(deployments, name))
        self.lab = harness.Lab("run", name, PORT_OFFSET=str(offset))
        self.addCleanup(self.lab.close)
        ready = lambda: self.lab.has_ended() or harness.READY in self.lab.output()
        self.assertTrue(harness.eventually(ready, _READY_SECONDS_MAX), f"never ready:\n{self.lab.output()}")
        self.assertIn(harness.READY, self.lab.output())
        return deployment, offset

    def _assert_ctrl_c_ends_everything(self, deployment):
        children = harness.descendants(self.lab.pid)
        self.assertEqual(len(children), len(deployment.parts), "one process for each part")
        self.lab.interrupt()
        self.assertEqual(self.lab.exit_status(), 0, self.lab.output())
        self.assertTrue(self.lab.output().endswith("Stopped: nothing is left running.\n"), self.lab.output())
        # Not about to end: ended.
        self.assertEqual([pid for pid in children if not harness.gone(pid)], [])
        ports.require_free(deployment.ports)

    def _assert_charged(self, weir_sync, admin):
        """The burst that was admitted reaches weir-sync."""
        charged = lambda: _number(weir_sync, "/metrics", "weir_sync_tokens_charged_total") >= 100
        arrived = harness.eventually(charged)
        failed = _number(admin, "/stats", "wasmcustom.weir.sync.failed")
        self.assertTrue(arrived, f"{failed} reports failed: are filter and weir-sync built from the same sources?")

    def test_one_edge_gives_the_burst_and_limits_the_rest(self):
        deployment, offset = self._start("single")
        seen = _statuses(10000 + offset, 200)
        # A token comes every six seconds: one of the 200 may meet it.
        self.assertIn(seen, [{200: 100, 429: 100}, {200: 101, 429: 99}])
        self._assert_charged(7878 + offset, 9901 + offset)
        self._assert_an_operator_can_act(deployment, 7878 + offset)
        self._assert_ctrl_c_ends_everything(deployment)

    def test_an_operator_changes_the_rules_under_attack_and_bans_the_attacker(self):
        deployment, offset = self._start("regions")
        self._attack(offset)
        self.assertIn("+ rule login", self._weir_sync(deployment, 7881 + offset, "rules", "put", "envoy/regions/rules.yaml"))
        # The new rule admits 20/s of its 300/s in all three regions together.
        keeps = lambda key: key.get("rate_per_s") == 20 and 10 < key["admitted_per_s"] < 40
        kept = harness.eventually(lambda: keeps(self._attacker(deployment, offset)), _READY_SECONDS_MAX)
        self.assertTrue(kept, self._attacker(deployment, offset))
        output = self._weir_sync(deployment, 7881 + offset, "ban", traffic.ATTACKER, "--reason", "a drill")
        self.assertIn(f"{traffic.ATTACKER} is banned until", output)
        edges = deployments.edges(offset).values()
        refused = lambda: all(_get(port, source=traffic.ATTACKER)[0] == 403 for port in edges)
        self.assertTrue(harness.eventually(refused), "banned at every edge")
        self.assertEqual([_get(port)[0] for port in edges], [200, 200, 200])
        self._assert_ctrl_c_ends_everything(deployment)

    def _assert_an_operator_can_act(self, deployment, port):
        """What `make run` prints for operators works as it stands."""
        self.assertIn(f"export WEIR_URL=http://127.0.0.1:{port} ", self.lab.output())
        self.assertIn("<title>", _get(port)[1])
        # It has limited an address by now.
        listed = lambda: "per-address" in self._weir_sync(deployment, port, "keys")
        self.assertTrue(harness.eventually(listed), self._weir_sync(deployment, port, "keys"))
        put = self._weir_sync(deployment, port, "rules", "put", "--wait", os.path.join(deployment.run_dir, "rules.yaml"))
        self.assertIn("It runs at 1 of 1 POPs.", put)
        self.assertIn("runs at 1 of 1 POPs", self._weir_sync(deployment, port, "fleet"))

    def _attack(self, offset):
        lab = harness.Lab("traffic", "attack", "--seconds", "60", PORT_OFFSET=str(offset))
        self.addCleanup(lab.close)

    def _weir_sync(self, deployment, port, *arguments):
        """The output of a command of `weir-sync`, asked of the one at `port`."""
        token = os.path.join(deployment.run_dir, "admin.token")
        environment = {"WEIR_URL": f"http://127.0.0.1:{port}", "WEIR_TOKEN_FILE": token}
        command = [paths.WEIR_SYNC, *arguments]
        done = subprocess.run(command, cwd=paths.ROOT, env=environment, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done)
        return done.stdout

    def _attacker(self, deployment, offset):
        """The attacker's key, if it is the one that is limited most."""
        found = json.loads(self._weir_sync(deployment, 7881 + offset, "keys", "--limit", "1", "--json"))["keys"]
        return next((key for key in found if key["address"] == traffic.ATTACKER), {})

    def test_each_of_three_regions_answers(self):
        deployment, offset = self._start("regions")
        self.assertEqual([_get(port + offset)[0] for port in (10001, 10002, 10003)], [200, 200, 200])
        self.assertEqual(set(_statuses(10001 + offset, 200)), {200, 429})
        self._assert_charged(7881 + offset, 9901 + offset)
        self._assert_prometheus_sees_it(deployment)
        self._assert_ctrl_c_ends_everything(deployment)

    def _assert_prometheus_sees_it(self, deployment):
        """The deployment's Prometheus scrapes every part, and evaluates every rule."""
        program, port = os.path.join(paths.PROMETHEUS_DIR, "prometheus"), harness.free_port()
        self.assertTrue(os.path.exists(program), f"{program} is missing: install it with `make tools`.")
        command = [program, "--log.level=warn"]
        command += [f"--config.file={deployment.run_dir}/prometheus.yaml"]
        command += [f"--web.listen-address={ports.LOOPBACK}:{port}"]
        with tempfile.TemporaryDirectory() as folder:
            prometheus = subprocess.Popen([*command, f"--storage.tsdb.path={folder}"])
            try:
                recorded = "rule:weir_sync_bound_tokens:max and on () count(up == 1) == 6"
                seen = harness.eventually(lambda: _asked(port, recorded), _READY_SECONDS_MAX)
                self.assertTrue(seen, f"scraped: {_asked(port, 'up')}")
                (limited,) = _asked(port, 'weir_rule_limited{rule="per-address",region="fra1"}')
                self.assertGreater(int(limited["value"][1]), 0)
                self.assertEqual(_asked(port, 'ALERTS{alertstate="firing"}'), [])
                groups = json.loads(_get(port, "/api/v1/rules")[1])["data"]["groups"]
                rules = [rule for group in groups for rule in group["rules"]]
                self.assertGreater(len(rules), 40)
                self.assertEqual([rule for rule in rules if rule.get("lastError")], [])
            finally:
                prometheus.kill()
                prometheus.wait()


if __name__ == "__main__":
    unittest.main()
