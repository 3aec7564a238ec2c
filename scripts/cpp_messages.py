"""The messages in one C++ source, read from its tokens: enough for this repository's style, but no parser of C++."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

GAP = "…"
_SLOT = "\x00{}\x00"  # stands for a parameter of the function being read
_SLOTS = re.compile("\x00(\\d+)\x00")

_CODES = (
    "Aborted|AlreadyExists|Cancelled|DataLoss|DeadlineExceeded|FailedPrecondition|Internal|InvalidArgument|NotFound|"
    "OutOfRange|PermissionDenied|ResourceExhausted|Unauthenticated|Unavailable|Unimplemented|Unknown"
)
# The argument that is the text.
_MAKES = {f"{code}Error": 0 for code in _CODES.split("|")} | {"ErrnoToStatus": 1, "LogError": 0, "LogWarning": 0}
_MAKES |= {"Fault": 1, "ReportFault": 2}  # a record's, in dump_error_info.log
# Our methods and functions that keep or pass on a text without returning a status with it.
_KEEPS = {"Fail", "Refuse", "Bad", "Malformed", "Broken", "Damaged", "Warn", "Warning", "Error", "Problem"}
_RETURNS = {"Refusal"}  # give a message as text
_FORMATS = {"LogError", "LogWarning"}  # {} stands for a value
_JOINS = {"Cat", "StrCat", "string", "StdString", "StdView", "string_view"}
_NO_FUNCTION = {"if", "for", "while", "switch", "return", "catch", "sizeof", "decltype", "alignas", "static_assert"}
_PRINTF = re.compile(r"%(?:%|[-+ #0]*\d*(?:\.\d+|\.\*)?(?:hh|h|ll|l|z)?[a-zA-Z])")

_TOKEN = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?\*/)|R"(?P<mark>[^(\s]*)\((?P<raw>.*?)\)(?P=mark)"|"(?P<text>(?:\\.|[^"\\\n])*)"
    |(?P<character>'(?:\\.|[^'\\\n])+')|(?P<word>[A-Za-z_]\w*)|(?P<number>\d(?:[\w.']*\w)?)|(?P<mark_>->|::|<<|\#[^\n]*|\S)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPES = {"n": "\n", "t": "\t", '"': '"', "\\": "\\", "0": "\0", "'": "'"}


@dataclass(frozen=True)
class Token:
    kind: str  # text, word or mark
    value: str
    line: int


@dataclass
class Function:
    """A function that makes a message of its arguments."""

    templates: list[str] = field(default_factory=list)  # with slots for its parameters


# Those that other sources call, too.
_OF_OTHER_SOURCES = {"BadFlag": Function([f"--{_SLOT.format(0)}={_SLOT.format(1)}{_SLOT.format(2)}"])}


def messages_of_cpp(source: str) -> Iterator[tuple[str, int]]:
    """Each text and its line. A single word is left out: it is for the program, to end a walk for example, and never
    printed.
    """
    for text, line in _all(source):
        if len(text.split()) > 1 or GAP in text:
            yield text, line


def _all(source: str) -> Iterator[tuple[str, int]]:
    tokens = list(_tokens(source))
    _constants.clear()
    _constants.update(_named_texts(tokens))
    speaking = dict(_OF_OTHER_SOURCES)
    bodies = list(_functions(tokens))
    for _ in range(3):  # a function may use another one
        for name, parameters, begin, end in bodies:
            templates = [
                text for text, _ in _calls(tokens, begin, end, parameters, speaking, set()) if _SLOTS.search(text)
            ]
            if templates:
                speaking[name] = Function(sorted(set(templates)))
    inside = {at for name, _, begin, end in bodies if name in speaking for at in range(begin, end)}
    defined = {begin - 1 for _, _, begin, _ in bodies}
    called = {
        token.value
        for at, token in enumerate(tokens[:-1])
        if token.value in speaking and at not in inside and tokens[at + 1].value == "("
        if _end_of_call(tokens, at) not in defined
    }
    for text, at in _calls(tokens, 0, len(tokens), {}, speaking, inside):
        yield _SLOTS.sub(GAP, text), tokens[at].line
    for name, parameters, begin, end in bodies:  # such a function's own words
        if name in speaking:
            for text, at in _calls(tokens, begin, end, parameters, speaking, set()):
                if not _SLOTS.search(text) or name not in called:
                    yield _SLOTS.sub(GAP, text), tokens[at].line
        if name in _RETURNS:
            for at in range(begin, end - 1):
                if tokens[at].value == "return":
                    stop = next(i for i in range(at, end) if tokens[i].value == ";")
                    for text in _texts(tokens, at + 1, stop, {}):
                        yield text, tokens[at].line


_constants: dict[str, str] = {}  # of the source


def _named_texts(tokens: list[Token]) -> Iterator[tuple[str, str]]:
    """constexpr char kWrong[] = "...";"""
    for at, token in enumerate(tokens):
        if token.kind == "word" and re.fullmatch(r"k[A-Z]\w*", token.value):
            start = at + 1
            while start < len(tokens) and tokens[start].value in ("[", "]", "="):
                start += 1
            stop = start
            while stop < len(tokens) and tokens[stop].kind == "text":
                stop += 1
            if at + 1 < start < stop and stop < len(tokens) and tokens[stop].value == ";":
                yield token.value, "".join(each.value for each in tokens[start:stop])


def _tokens(source: str) -> Iterator[Token]:
    line = 1
    at = 0
    for match in _TOKEN.finditer(source):
        line += source.count("\n", at, match.start())
        at = match.start()
        if match["comment"]:
            continue
        if match["raw"] is not None:
            yield Token("text", match["raw"], line)
        elif match["text"] is not None:
            yield Token(
                "text", re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[1]), match["text"], flags=re.DOTALL), line
            )
        elif match["word"]:
            yield Token("word", match["word"], line)
        else:
            mark = match.group()
            if not mark.startswith("#"):
                yield Token("mark", mark, line)


def _end_of_call(tokens: list[Token], at: int) -> int:
    """Where the body would begin if the word at `at` were the name of a function defined here."""
    body = _closing(tokens, at + 1) + 1
    while body < len(tokens) and (
        tokens[body].kind == "word" or tokens[body].value in ("->", "::", "<", ">", "&", "*")
    ):
        body += 1
    return body


_BEFORE_A_BODY = ("->", "::", "<", ">", "&", "*")
_OPEN = {"(": ")", "[": "]", "{": "}"}


def _closing(tokens: list[Token], at: int) -> int:
    """The partner of the bracket at `at`; the end of the source if it has none."""
    depth = 0
    for i in range(at, len(tokens)):
        if tokens[i].kind == "mark":
            if tokens[i].value in _OPEN:
                depth += 1
            elif tokens[i].value in _OPEN.values():
                depth -= 1
                if depth == 0:
                    return i
    return len(tokens)


def _split(tokens: list[Token], begin: int, end: int, mark: str = ",") -> list[tuple[int, int]]:
    parts = []
    start = at = begin
    while at < end:
        if tokens[at].kind == "mark" and tokens[at].value in _OPEN:
            at = _closing(tokens, at)
        elif tokens[at].kind == "mark" and tokens[at].value == mark:
            parts.append((start, at))
            start = at + 1
        at += 1
    if start < end:
        parts.append((start, end))
    return parts


def _functions(tokens: list[Token]) -> Iterator[tuple[str, dict[str, int], int, int]]:
    """For each function and named lambda its name, its text parameters with their places, and its body."""
    for at, token in enumerate(tokens[:-1]):
        if token.kind != "word" or token.value in _NO_FUNCTION:
            continue
        if tokens[at + 1].value == "(" and tokens[at + 1].kind == "mark":
            opening = at + 1
        elif tokens[at + 1].value == "=" and at + 2 < len(tokens) and tokens[at + 2].value == "[":
            opening = _closing(tokens, at + 2) + 1
            if opening >= len(tokens) or tokens[opening].value != "(":
                continue
        else:
            continue
        closing = _closing(tokens, opening)
        body = _end_of_call(tokens, opening - 1)
        if body >= len(tokens) or tokens[body].value != "{":
            continue
        parameters = {}
        for place, (begin, end) in enumerate(_split(tokens, opening + 1, closing)):
            words = [each.value for each in tokens[begin:end] if each.kind == "word"]
            if len(words) >= 2 and any(word in ("string_view", "string", "char") for word in words[:-1]):
                parameters[words[-1]] = place
        if parameters:
            yield token.value, parameters, body + 1, _closing(tokens, body)


def _calls(
    tokens: list[Token],
    begin: int,
    end: int,
    parameters: dict[str, int],
    speaking: dict[str, Function],
    not_at: set[int],
) -> Iterator[tuple[str, int]]:
    for at in range(begin, end - 1):
        token = tokens[at]
        if token.kind != "word" or at in not_at or tokens[at + 1].value not in ("(", "{"):
            continue
        given = _split(tokens, at + 2, _closing(tokens, at + 1))
        before = tokens[at - 1]
        if token.value in speaking and (before.kind != "word" or before.value == "return"):
            texts = [_texts(tokens, a, b, parameters) for a, b in given]
            for template in speaking[token.value].templates:
                slots = [int(slot) for slot in _SLOTS.findall(template)]
                if any(slot >= len(texts) for slot in slots):
                    continue
                for chosen in itertools.product(*(texts[slot] for slot in slots)):
                    parts = iter(chosen)
                    yield _SLOTS.sub(lambda _: next(parts), template), at  # noqa: B023
            continue
        place = _place_of_text(tokens, at, given)
        if place is None or place >= len(given):
            continue
        for text in _texts(tokens, *given[place], parameters):
            if token.value in _FORMATS:
                text = re.sub(r"\{[^}]*\}", GAP, text)
            yield (_PRINTF.sub(GAP, text) if token.value == "fprintf" else text), at


def _place_of_text(tokens: list[Token], at: int, given: list[tuple[int, int]]) -> int | None:
    """Which argument of the call at `at` is a message."""
    name, before = tokens[at].value, tokens[at - 1].value
    if name in _MAKES:
        return _MAKES[name]
    if name == "Status" and before == "::":
        return 1
    if name == "fprintf" and given and tokens[given[0][0]].value == "stderr":
        return 1
    if name in _KEEPS and before in (".", "->", "return", ";", "{", "}", ")", ":", "?"):
        return 0
    return 0 if name == "push_back" and tokens[at - 2].value.rstrip("_") == "warnings" else None


def _texts(tokens: list[Token], begin: int, end: int, parameters: dict[str, int]) -> list[str]:
    """The texts of an expression: one for each way through its conditions."""
    if begin >= end:
        return [GAP]
    question = _split(tokens, begin, end, "?")
    if len(question) == 2:
        branches = _split(tokens, *question[1], ":")
        if len(branches) == 2:
            found = [text for branch in branches for text in _texts(tokens, *branch, parameters)]
            return found if any(text != GAP for text in found) else [GAP]
    sum_ = _split(tokens, begin, end, "+")
    if len(sum_) > 1:
        return _joined([_texts(tokens, a, b, parameters) for a, b in sum_])
    if all(token.kind == "text" for token in tokens[begin:end]):
        return ["".join(token.value for token in tokens[begin:end])]
    while end - begin > 2 and tokens[begin].kind == "word" and tokens[begin + 1].value == "::":
        begin += 2
    first = tokens[begin]
    if end - begin == 1:
        if first.value in _constants:
            return [_constants[first.value]]
        return [_SLOT.format(parameters[first.value])] if first.value in parameters else [GAP]
    if first.kind == "word" and tokens[begin + 1].value in ("(", "{") and _closing(tokens, begin + 1) == end - 1:
        given = _split(tokens, begin + 2, end - 1)
        if first.value in _JOINS:
            return _joined([_texts(tokens, a, b, parameters) for a, b in given])
        if first.value in ("StrFormat", "format") and given:
            return [_PRINTF.sub(GAP, text) for text in _texts(tokens, *given[0], parameters)]
    return [GAP]


def _joined(parts: list[list[str]]) -> list[str]:
    return ["".join(chosen) for chosen in itertools.islice(itertools.product(*parts), 16)]
