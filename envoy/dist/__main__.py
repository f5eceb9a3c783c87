"""What a release holds, made of what is built: `make dist` calls it.

    python3 -B envoy/dist --architectures x86_64 aarch64 --into dist
"""

import argparse
import os
import shutil
import subprocess
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "lab"))

import release  # noqa: E402  (it needs the path above)
from problem import Problem, print_problem, print_line  # noqa: E402


def main():
    """Write the folder; the exit status is 0 where it could."""
    arguments = _arguments()
    try:
        files = release.files(arguments.architectures, _created())
        _write(arguments.into, files)
    except Problem as problem:
        print_problem(problem)
        return 1
    print_line(f"{len(files)} files are in {os.path.relpath(arguments.into)}; docs/install.md has the commands to install them")
    return 0


def _arguments():
    parser = argparse.ArgumentParser(prog="envoy/dist", description="What a release of Weir holds.")
    parser.add_argument(
        "--architectures", required=True, nargs="+", choices=release.ARCHITECTURES, help="what the programs were built for"
    )
    parser.add_argument("--into", required=True, help="the folder to write")
    return parser.parse_args()


def _created():
    """The time of all in the release, in seconds since 1970: SOURCE_DATE_EPOCH, or else the commit's."""
    seconds = os.environ.get("SOURCE_DATE_EPOCH")
    if seconds is None:
        command = ["git", "-C", os.path.dirname(os.path.abspath(__file__)), "log", "-1", "--format=%ct"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        seconds = done.stdout.strip()
    if not seconds.isdigit():
        raise Problem("this copy has no commit to take the release's time from: set SOURCE_DATE_EPOCH (seconds since 1970).")
    return int(seconds)


def _write(folder, files):
    """Put `files` into `folder`, in place of what was there; it has all of them or the old ones."""
    fresh = folder.rstrip("/") + ".new"
    shutil.rmtree(fresh, ignore_errors=True)
    os.makedirs(fresh)
    for file in files:
        path = os.path.join(fresh, file.path)
        with open(path, "wb") as out:
            out.write(file.data)
        os.chmod(path, file.mode)
    shutil.rmtree(folder, ignore_errors=True)
    os.rename(fresh, folder)


if __name__ == "__main__":
    sys.exit(main())
