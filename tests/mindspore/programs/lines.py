"""Lines of a program that its test reads."""

import sys


def tell(word, text):
    """`word text`, in one write. print makes several. Between two of them the thread that hears where files are
    may write a line of the log.
    """
    sys.stdout.write(f"{word} {text}\n")
    sys.stdout.flush()
