"""Runs a test program. Tests that failed while the machine stood still are run once more.

    python3 -B again.py PROGRAM [ARGUMENT...]

It is cargo's runner where tests start real programs. Those fail if the machine stops for seconds, as a virtual machine may. They
say so themselves (src/standstill.rs). A test that failed without that, or fails again, fails.
"""

import subprocess
import sys

# The same as in src/standstill.rs.
MARK = "--- while this ran, the machine "
HEAD, TAIL = "---- ", " stdout ----"


def run(command):
    """Runs `command` and passes on what it prints; its status, and its lines."""
    lines = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        for line in process.stdout:
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()
            lines.append(line.decode(errors="replace").rstrip("\n"))
    return process.returncode, lines


def failed(lines):
    """What each failed test printed, by its name: from its headline to the next, or to the list of their names."""
    outputs, output = {}, []
    for line in lines:
        if line.startswith(HEAD) and line.endswith(TAIL):
            output = outputs.setdefault(line[len(HEAD) : -len(TAIL)], [])
        elif line == "failures:":
            output = []
        else:
            output.append(line)
    return outputs


def worth_another_try(lines):
    """The tests that failed, if the machine stood still during each of them."""
    outputs = failed(lines)
    excused = [name for name, output in outputs.items() if any(line.startswith(MARK) for line in output)]
    return excused if len(excused) == len(outputs) else []


def main(command):
    status, lines = run(command)
    names = worth_another_try(lines) if status != 0 else []
    if not names:
        return status
    print(f"weir: ATTENTION: the machine stood still while {', '.join(names)} ran: once more", flush=True)
    status, _ = run([*command, "--exact", *names])
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
