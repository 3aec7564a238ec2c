"""Shows names in a terminal. They come from whoever sent them."""

from __future__ import annotations

import re

# Characters that begin another line, move the cursor, change colours or turn the direction of writing, and bytes
# of file names that are no UTF-8.
_UNSHOWN = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def visible(text: str) -> str:
    """The text as one line that says what is in it: a control character stands as \\n, \\x1b or \\u202e."""
    return _UNSHOWN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def no_utf_8(error: UnicodeEncodeError) -> str:
    """Of the name of a file, which the system takes as bytes, and messages and terminals do not."""
    return f"{error.object} is no UTF-8; give that file or directory another name"
