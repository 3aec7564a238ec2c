"""Files that people name, or that programs leave. Only regular ones are read: a named pipe would be waited for."""

from __future__ import annotations

import json
import os
import stat
from typing import Any, BinaryIO

from msprobe_client.errors import InvalidArgument

_MOST_VALUES = 1_000_000  # of a YAML file
_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def opened(path: str | os.PathLike[str]) -> BinaryIO:
    """To read from. OSError: it cannot be opened. InvalidArgument: it is no regular file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    kind = stat.S_IFMT(os.fstat(descriptor).st_mode)
    if kind != stat.S_IFREG:
        os.close(descriptor)
        raise InvalidArgument(f"{path} is {_KINDS.get(kind, 'no file')}; name a regular file")
    return os.fdopen(descriptor, "rb")


def text_of(path: str | os.PathLike[str], errors: str = "strict", *, most: int | None = None) -> str:
    """Of UTF-8, with ends of lines as "\\n"; what is no UTF-8 is a UnicodeDecodeError, or as `errors` says. most: a
    file of more bytes is InvalidArgument."""
    with opened(path) as file:
        content = file.read() if most is None else file.read(most + 1)
    if most is not None and len(content) > most:
        raise InvalidArgument(f"{path} has more than {most} bytes")
    return content.decode("utf-8", errors).replace("\r\n", "\n").replace("\r", "\n")


def json_of(path: str | os.PathLike[str], *, most: int | None = None) -> Any:
    """InvalidArgument: the file is not JSON, or has more than `most` bytes. Bare NaN and Infinity are taken."""
    try:
        return json.loads(text_of(path, most=most))
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"{path} is not JSON: {_first_line(error)}") from None


def yaml_of(path: str | os.PathLike[str]) -> Any:
    """InvalidArgument: the file is not YAML."""
    import yaml

    try:
        found = yaml.safe_load(text_of(path))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        # Without what the parser quotes of the text, which may be a password.
        place, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
        line = f", in line {place.line + 1}" if place is not None else ""
        raise InvalidArgument(f"{path} is not YAML: {problem or _first_line(error)}{line}") from None
    if _unfolds_to_more(found, _MOST_VALUES):
        raise InvalidArgument(f"{path} unfolds to over {_MOST_VALUES} values by its aliases (*name); write it without")
    return found


def _unfolds_to_more(document: Any, most: int) -> bool:
    """An alias may hold others, and itself."""
    left = [document]
    for _ in range(most):
        if not left:
            return False
        node = left.pop()
        if isinstance(node, (dict, list)):
            left += node.values() if isinstance(node, dict) else node
    return bool(left)


def _first_line(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    return next(iter(str(error).splitlines()), type(error).__name__)


__all__ = ["json_of", "opened", "text_of", "yaml_of"]
