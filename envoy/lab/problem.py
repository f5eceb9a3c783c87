"""What the user is told: one clear sentence for a problem, short lines for progress."""

import sys


class Problem(Exception):
    """Something the user must put right. Its text is one sentence that says what and how."""


def say(text):
    """Print `text` at once, so that it keeps its place among the output of child processes."""
    print(text, flush=True)


def complain(problem):
    """Print a problem to standard error."""
    sys.stdout.flush()
    print(f"weir: {problem}", file=sys.stderr, flush=True)
