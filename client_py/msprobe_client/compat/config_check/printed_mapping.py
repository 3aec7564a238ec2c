"""A mapping that a program printed into a log, among lines of others: what verl logs of its configuration."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

_TOKEN = re.compile(
    r"""\s*(?:(?P<open>[\[{(])|(?P<close>[\]})])|(?P<comma>,)|(?P<colon>:)"""
    r"""|(?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")|(?P<word>-?\w[\w.+-]*))"""
)
_CLOSES = {"{": "}", "[": "]", "(": ")"}
_WORDS = {
    "True": True, "true": True, "False": False, "false": False, "None": None, "null": None,
    "nan": math.nan, "NaN": math.nan, "inf": math.inf, "-inf": -math.inf, "Infinity": math.inf, "-Infinity": -math.inf,
}  # fmt: skip


@dataclass(slots=True)
class _Level:
    """An open bracket, and what may follow in it."""

    bracket: str
    # key: a mapping's, or its end; item: a list's, or its end; then colon, value, and comma, or the end.
    expects: str
    after_text: bool = False  # another text may go on


@dataclass(slots=True)
class PrintedMapping:
    """Takes lines in turn, as Python's pprint or JSON breaks them, and passes over what cannot be part of the mapping.

    Of a line with something else behind its part, the part counts if it ends with a comma, or ends the mapping.
    """

    levels: list[_Level] = field(default_factory=list)
    tokens: list[tuple[str, str]] = field(default_factory=list)

    def take(self, line: str) -> bool:
        """Whether the mapping is complete."""
        before = [_Level(level.bracket, level.expects, level.after_text) for level in self.levels]
        kept, whole = len(self.tokens), 0
        at, end = 0, len(line.rstrip())
        states: list[list[_Level]] = []
        while at < end:
            match = _TOKEN.match(line, at)
            if match is None or not self._follows(str(match.lastgroup), match[str(match.lastgroup)]):
                break
            at = match.end()
            self.tokens.append((str(match.lastgroup), match[str(match.lastgroup)]))
            if not self.levels:
                return True
            if match.lastgroup == "comma":
                whole = len(self.tokens)
                states = [[_Level(level.bracket, level.expects, level.after_text) for level in self.levels]]
        else:
            return False
        self.levels = states[0] if states else before
        del self.tokens[whole or kept :]
        return False

    def value(self) -> Any:
        return _value(iter(self.tokens))

    def _follows(self, kind: str, text: str) -> bool:
        """Whether the token may stand here; then it does."""
        if not self.levels:
            if text != "{" or self.tokens:
                return False
            self.levels.append(_Level("{", "key"))
            return True
        level = self.levels[-1]
        after_text, level.after_text = level.after_text, False
        if kind == "open" and level.expects in ("value", "item"):
            level.expects = "comma"
            self.levels.append(_Level(text, "key" if text == "{" else "item"))
        elif kind == "close" and text == _CLOSES[level.bracket] and level.expects in ("key", "item", "comma"):
            self.levels.pop()
        elif kind == "comma" and level.expects == "comma":
            level.expects = "key" if level.bracket == "{" else "item"
        elif kind == "colon" and level.expects == "colon":
            level.expects = "value"
        elif kind == "text" and level.expects == "key":
            level.expects = "colon"
        elif kind == "text" and (level.expects in ("value", "item") or (level.expects == "comma" and after_text)):
            level.expects, level.after_text = "comma", True
        elif kind == "word" and level.expects in ("value", "item") and _is_word(text):
            level.expects = "comma"
        else:
            level.after_text = after_text
            return False
        return True


def _is_word(text: str) -> bool:
    if text in _WORDS:
        return True
    try:
        float(text)
    except ValueError:
        return False
    return True


def _value(tokens: Iterator[tuple[str, str]]) -> Any:
    """Builds what the tokens say; brackets are known to match. A tuple is a list, as in JSON."""
    root: list[Any] = []
    stack: list[Any] = [root]
    keys: list[str | None] = [None]

    def put(value: Any) -> None:
        holder = stack[-1]
        if isinstance(holder, list):
            holder.append(value)
        elif keys[-1] is None:
            keys[-1] = value
        else:
            holder[keys[-1]] = value

    pending = ""  # texts that stand behind each other are one
    has_text = False
    for kind, text in tokens:
        if kind == "text":
            pending, has_text = pending + str(ast.literal_eval(text)), True
            continue
        if has_text:
            put(pending)
            pending, has_text = "", False
        if kind == "open":
            value: Any = {} if text == "{" else []
            put(value)
            stack.append(value)
            keys.append(None)
        elif kind == "close":
            stack.pop()
            keys.pop()
        elif kind == "comma":
            keys[-1] = None
        elif kind == "word":
            put(_WORDS[text] if text in _WORDS else _number(text))
    return root[0]


def _number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        return float(text)
