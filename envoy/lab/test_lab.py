"""The promises of the lab: nothing it started outlives it, and problems are one sentence."""

import contextlib
import io
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import unittest

import bootstrap
import deployments
import ports
from harness import DEADLINE_SECONDS, eventually, gone
from problem import Problem
from supervisor import Part, Supervisor

_HERE = os.path.dirname(os.path.abspath(__file__))
# A supervisor of two parts that write down their process ids, and then wait.
_SCRIPT = """
    import sys, os
    from problem import Problem
    from supervisor import Part, Supervisor, Stopped
    folder = sys.argv[1]
    def part(name):
        path = os.path.join(folder, name + ".pid")
        command = ["sh", "-c", f"echo $$ > {path}.new; mv {path}.new {path}; exec sleep 600"]
        return Part(name, command, lambda: os.path.exists(path))
    try:
        with Supervisor(folder) as running:
            running.start(part("one"))
            running.start(part("two"))
            print("ready", flush=True)
            running.watch()
    except Stopped:
        print("stopped")
    except Problem as problem:
        print(problem)
"""


class NoProcessIsLeft(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.supervisor = subprocess.Popen(
            [sys.executable, "-B", "-c", textwrap.dedent(_SCRIPT), self.folder],
            cwd=_HERE, stdout=subprocess.PIPE, text=True, start_new_session=True,
        )
        self.addCleanup(self.supervisor.stdout.close)
        self.addCleanup(self.supervisor.kill)
        self.assertEqual(self.supervisor.stdout.readline(), "ready\n")
        self.pids = [self._pid("one"), self._pid("two")]

    def _pid(self, name):
        with open(os.path.join(self.folder, f"{name}.pid"), encoding="utf-8") as file:
            return int(file.read())

    def _assert_all_gone(self):
        self.supervisor.wait(DEADLINE_SECONDS)
        self.assertTrue(eventually(lambda: all(map(gone, self.pids))), "a part outlived its supervisor")

    def test_after_ctrl_c(self):
        os.killpg(self.supervisor.pid, signal.SIGINT)
        self._assert_all_gone()
        self.assertEqual(self.supervisor.stdout.read(), "stopped\n")

    def test_after_sigterm(self):
        self.supervisor.send_signal(signal.SIGTERM)
        self._assert_all_gone()
        self.assertEqual(self.supervisor.returncode, 0)

    def test_after_a_part_dies(self):
        os.kill(self.pids[0], signal.SIGKILL)
        self._assert_all_gone()
        self.assertIn("one ended (by SIGKILL)", self.supervisor.stdout.read())

    @unittest.skipUnless(sys.platform == "linux", "only Linux ends children with their parent")
    def test_after_the_supervisor_is_killed(self):
        self.supervisor.kill()
        self._assert_all_gone()


class APartThatDies(unittest.TestCase):
    def test_is_named_with_its_exit_status_and_last_output(self):
        shown = io.StringIO()
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(shown):
            part = Part("mill", ["sh", "-c", "echo the wheel is stuck; exit 3"], lambda: False)
            with self.assertRaisesRegex(Problem, "mill ended .exit status 3."), Supervisor(folder) as running:
                running.start(part)
        self.assertIn("the wheel is stuck", shown.getvalue())

    def test_is_named_if_its_program_is_missing(self):
        with tempfile.TemporaryDirectory() as folder, self.assertRaisesRegex(Problem, "mill cannot be started"):
            with Supervisor(folder) as running:
                running.start(Part("mill", ["/nonexistent/mill"], lambda: True))


class APortInUse(unittest.TestCase):
    def test_is_named_with_its_use_and_its_holder(self):
        with socket.create_server((ports.LOOPBACK, 0)) as listener:
            port = listener.getsockname()[1]
            with self.assertRaises(Problem) as caught:
                ports.require_free({port: "the mill"})
        self.assertIn(f"port {port} (the mill) is in use by", str(caught.exception))
        if sys.platform == "linux":
            self.assertIn(f"(process {os.getpid()})", str(caught.exception))

    def test_is_no_problem_once_it_is_free(self):
        with socket.create_server((ports.LOOPBACK, 0)) as listener:
            port = listener.getsockname()[1]
        ports.require_free({port: "the mill"})


class Bootstraps(unittest.TestCase):
    def test_name_only_ports_that_the_lab_moves(self):
        for make in (deployments.single, deployments.regions):
            run = make(1000)
            for text in run.files.values():
                named = {int(port) for port in bootstrap.PORT.findall(text)}
                self.assertLessEqual(named, set(run.ports))

    def test_of_two_regions_differ_in_name_and_ports(self):
        files = deployments.regions(0).files
        texts = [text for path, text in files.items() if os.path.basename(path).startswith("envoy-")]
        self.assertEqual(len(texts), 3)
        for name, text in zip(("fra1", "iad1", "sin1"), texts):
            self.assertIn(f"id: {name}", text)
        self.assertEqual(len({tuple(bootstrap.PORT.findall(text)) for text in texts}), 3)

    def test_of_one_edge_have_the_rules_that_an_operator_puts(self):
        run = deployments.single(0)
        (text,) = (text for path, text in run.files.items() if path.endswith("/rules.yaml"))
        self.assertTrue(text.startswith("rules:\n"), text)
        self.assertEqual(re.findall(r"- name: (.*)", text), ["per-address", "login"])
        self.assertNotIn("table:", text)

    def test_have_the_ports_that_prometheus_scrapes(self):
        run = deployments.regions(1000)
        (text,) = (text for path, text in run.files.items() if path.endswith("/prometheus.yaml"))
        scraped = {int(port) for port in re.findall(r"127\.0\.0\.1:(\d+)", text)}
        wanted = {port for port, use in run.ports.items() if use.startswith(("weir-sync", "admin page"))}
        self.assertEqual(scraped, wanted)
        self.assertIn("prometheus --config.file=", "\n".join(run.lines))

    def test_refuse_an_offset_that_leaves_no_port(self):
        with self.assertRaisesRegex(Problem, "PORT_OFFSET=60000"):
            deployments.single(60000)
