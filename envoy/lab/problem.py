"""Output for the user: one clear sentence for a problem, short lines for progress."""

import sys


class Problem(Exception):
    """Something the user must put right. Its text is one sentence with the problem and the remedy."""


def print_line(text):
    """Print `text` at once, so that it keeps its place among the output of child processes."""
    print(text, flush=True)


def print_problem(problem):
    """Print a problem to standard error."""
    sys.stdout.flush()
    print(f"weir: {problem}", file=sys.stderr, flush=True)
