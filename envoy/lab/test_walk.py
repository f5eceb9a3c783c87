"""The walk through an attack in docs/operating.md: an operator who types its commands sees what the page shows.

Numbers and times differ from run to run, so they are not compared.
"""

import os
import re
import subprocess
import sys
import unittest

import deployments
import harness
import paths

_PAGE = os.path.join(paths.ROOT, "docs", "operating.md")
_SECTION = "## An attack, from the first alert to the ban and back\n"
_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# More than this, or the blocks are not found any more.
_COMMANDS_MIN = 8
# Until figures are as usual: what visitors ask is known, the attacker is found out.
_SEEN_SECONDS_MAX = 60


def _steps():
    """The commands of the section, each with what it shows, in order."""
    with open(_PAGE, encoding="utf-8") as file:
        _, _, rest = file.read().partition(_SECTION)
    section, _, _ = rest.partition("\n## ")
    steps = [step.split("\n", 1) for block in _BLOCK.findall(section) for step in block.split("$ ")[1:]]
    return [(command, shown) for command, shown in steps]


def _masked(text):
    """The lines of `text` without what differs from run to run, in any order."""
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME", text)
    text = re.sub(r"(?<![\w.])-?\d+(\.\d+)?(?![\w.])", "N", text)
    text = re.sub(r"/[0-9a-f]{16}\b", "/REPLICA", text)
    return sorted(" ".join(line.split()) for line in text.splitlines() if line.strip())


@unittest.skipUnless(sys.platform == "linux", "clients have addresses of their own on loopback")
class Walk(unittest.TestCase):
    def test_each_step_has_the_documented_output(self):
        steps = _steps()
        self.assertGreaterEqual(len(steps), _COMMANDS_MIN)
        deployment, offset = harness.free_deployment(deployments.regions)
        lab = self._lab("run", "regions", offset)
        ready = lambda: lab.has_ended() or harness.READY in lab.output()
        self.assertTrue(harness.eventually(ready, _SEEN_SECONDS_MAX) and not lab.has_ended(), lab.output())
        self._lab("traffic", "visitors", offset)
        attack = None
        for command, shown in steps:
            with self.subTest(command=command):
                if command.startswith("weir-sync keys"):
                    attack = attack or self._lab("traffic", "attack", offset)
                if command.startswith("weir-sync unban"):
                    attack.interrupt()
                self._assert_shows(deployment, offset, command, shown)

    def _lab(self, command, what, offset):
        lab = harness.Lab(command, what, PORT_OFFSET=str(offset))
        self.addCleanup(lab.close)
        return lab

    def _assert_shows(self, deployment, offset, command, shown):
        """A command that changes something does it once; one that looks may look again until it sees what the page shows."""
        folder = os.path.relpath(deployment.run_dir, paths.ROOT)
        here = re.sub(r"(?<=127\.0\.0\.1:)\d+", lambda port: str(int(port[0]) + offset), command)
        here = here.replace(".tools/run/regions", folder)
        environment = {
            "PATH": os.pathsep.join([os.path.dirname(paths.WEIR_SYNC), os.environ["PATH"]]),
            "WEIR_URL": f"http://127.0.0.1:{7881 + offset}",
            "WEIR_TOKEN_FILE": os.path.join(folder, "admin.token"),
        }
        seen = []

        def shows():
            done = subprocess.run(here, shell=True, cwd=paths.ROOT, env=environment, capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done)
            seen.append(_masked(done.stdout))
            return seen[-1] == _masked(shown)

        looks = command.startswith(("weir-sync keys", "weir-sync explain", "curl", "grep"))
        self.assertTrue(harness.eventually(shows, _SEEN_SECONDS_MAX) if looks else shows(), (_masked(shown), seen[-1]))


if __name__ == "__main__":
    unittest.main()
