"""The lab: Weir on one machine, to look at and to try. `make` calls it.

    python3 -B envoy/lab ports single|regions     are the ports free?
    python3 -B envoy/lab run   single|regions     start everything, end it on Ctrl-C
    python3 -B envoy/lab traffic visitors|attack  be their clients (see traffic.py), for a while or until Ctrl-C
    python3 -B envoy/lab tools NAME...            install what is missing (see tools.py)
    python3 -B envoy/lab wasm NAME                make the module that cargo built small
    python3 -B envoy/lab release sync|module ARCHITECTURE...   build a program as a release has it (see shipping.py)
    python3 -B envoy/lab releases smoke|module COMMAND...      run tests in the other releases of Envoy (see trials.py)
    python3 -B envoy/lab fuzz SECONDS             search for inputs that break the parser or the matcher
    python3 -B envoy/lab locks                    is the second Cargo.lock up to date?
"""

import argparse
import os
import sys

import deployments
import ports
import shipping
import supervisor
import tools
import traffic
import trials
from problem import Problem, print_problem, print_line

_DEPLOYMENTS = {"single": deployments.single, "regions": deployments.regions}


def main():
    """Run one command; the exit status is 0 where it did what it was asked, and 1 elsewhere."""
    arguments = _arguments()
    if arguments.end_with_parent:
        supervisor.end_with_parent()
    try:
        arguments.run(arguments)
    except Problem as problem:
        print_problem(problem)
        return 1
    except (supervisor.Stopped, KeyboardInterrupt):
        print_line("\nStopped: nothing is left running.")
    return 0


def _arguments():
    parser = argparse.ArgumentParser(prog="envoy/lab", description="Weir on one machine.")
    parser.add_argument("--end-with-parent", action="store_true", help="end when the calling process does")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, run, about in (("ports", _ports, "are the ports free?"), ("run", _run, "start everything")):
        command = commands.add_parser(name, help=about)
        command.add_argument("deployment", choices=_DEPLOYMENTS)
        command.set_defaults(run=run)
    command = commands.add_parser("traffic", help="be clients of the three regions")
    command.add_argument("who", choices=traffic.SECONDS_MAX)
    command.add_argument("--seconds", type=int, help="for how long")
    command.set_defaults(run=_traffic)
    command = commands.add_parser("tools", help="install what is missing")
    command.add_argument("names", nargs="+", choices=tools.NAMES, metavar="NAME")
    command.set_defaults(run=lambda arguments: tools.ensure(arguments.names))
    _add_builds(commands)
    return parser.parse_args()


def _add_builds(commands):
    command = commands.add_parser("wasm", help="make the module that cargo built small")
    command.add_argument("name")
    command.set_defaults(run=lambda arguments: shipping.wasm(arguments.name))
    command = commands.add_parser("release", help="build a program as a release has it")
    command.add_argument("program", choices=("sync", "module"))
    command.add_argument("architectures", nargs="+")
    command.set_defaults(run=lambda arguments: shipping.release(arguments.program, arguments.architectures))
    command = commands.add_parser("releases", help="run tests in the other releases of Envoy")
    command.add_argument("kind", choices=("smoke", "module"))
    command.add_argument("suite", nargs=argparse.REMAINDER)
    command.set_defaults(run=lambda arguments: trials.releases(arguments.kind, arguments.suite))
    command = commands.add_parser("fuzz", help="search for inputs that break the parser or the matcher")
    command.add_argument("seconds", type=int)
    command.set_defaults(run=lambda arguments: trials.fuzz(arguments.seconds))
    command = commands.add_parser("locks", help="is the second Cargo.lock up to date?")
    command.set_defaults(run=lambda _: trials.locks())


def _ports(arguments):
    ports.require_free(_deployment(arguments).ports)


def _run(arguments):
    deployment = _deployment(arguments)
    ports.require_free(deployment.ports)
    deployment.prepare()
    with supervisor.Supervisor(deployment.run_dir) as running:
        for part in deployment.parts:
            print_line(f"starting {part.name}")
            running.start(part)
        print_line("\nWeir runs, and a request has passed through.\n")
        print_line("\n".join(deployment.lines))
        print_line("\nCtrl-C ends everything.")
        running.watch()


def _traffic(arguments):
    seconds = arguments.seconds or traffic.SECONDS_MAX[arguments.who]
    traffic.run(arguments.who, deployments.edges(_offset()), seconds)


def _deployment(arguments):
    return _DEPLOYMENTS[arguments.deployment](_offset())


def _offset():
    offset = os.environ.get("PORT_OFFSET") or "0"
    if not offset.lstrip("-").isdigit():
        raise Problem(f"PORT_OFFSET must be a whole number, not {offset!r}.")
    return int(offset)


if __name__ == "__main__":
    sys.exit(main())
