"""Lines from programs to the test that runs them."""

import sys


def say(*words):
    """One line on stdout in one write: print writes word by word, and a line of another thread may come between."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()
