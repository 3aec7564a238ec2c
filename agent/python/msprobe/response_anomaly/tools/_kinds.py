"""Of which kind of text a token is, by the names of its characters in Unicode; kinds and limits of mindstudio-probe."""

from __future__ import annotations

import collections
import functools
import unicodedata

# What a tokenizer writes for a space or a line's end counts as such.
_SPACES = frozenset(" \t\n\r\f\v▁ĠĊ█")

# Words in the name of a character, the first that is there counts.
_WORDS = (
    (("PLANCK CONSTANT", "MATHEMATICAL", "DOUBLE-STRUCK CAPITAL"), "mathematics"),
    (("MODIFIER LETTER",), "modifier"),
    (("SPACE",), "whitespace"),
    (("CJK UNIFIED IDEOGRAPH", "CJK COMPATIBILITY"), "chinese_cjk"),
    (("HIRAGANA",), "japanese_hiragana"),
    (("HANGUL",), "korean_hangul"),
    (("THAI",), "thai"),
    (("ARABIC",), "arabic"),
    (("CYRILLIC",), "cyrillic"),
    (("DEVANAGARI",), "devanagari"),
    (("LATIN",), "latin"),
    (("VARIATION SELECTOR",), "variation_selector"),
)
_CATEGORIES = {"P": "punctuation", "S": "symbol", "C": "control"}

# A kind of characters, the share of a token's characters that it must exceed, and the kind that the token then is.
_SHARES = {"numbers": (0.6, "numbers"), "punctuation": (0.7, "punctuation"), "symbol": (0.6, "symbol_cluster")}
# Tokens of these are what they are, however many symbols they have.
_SCRIPTS = frozenset({"latin", "chinese_cjk", "japanese_hiragana", "korean_hangul", "thai"})
_WHOLE = _SCRIPTS - {"latin"} | {"variation_selector"}


def kind_of(text: str) -> str:
    """The kind of a token's text, as decoded: "english_latin", "emoji", "gibberish_symbols"..."""
    counts = collections.Counter(map(_kind_of_character, text))
    if not counts:
        return "mixed_noise"
    most, count = counts.most_common(1)[0]
    shown = (len(text) - counts["control"]) / len(text)
    kind = _kind(most, count / len(text), shown, counts)
    if kind not in ("punctuation", "symbol_cluster", "numbers") and most not in _SCRIPTS and len(text) >= 3:
        return "gibberish_symbols" if (counts["symbol"] + counts["punctuation"]) / len(text) > 0.6 else kind
    return kind


def _kind(most: str, share: float, shown: float, counts: collections.Counter[str]) -> str:
    if most == "control":
        return "control_bytes"
    if most == "latin" and shown > 0.8:
        return "english_latin_space" if counts["whitespace"] else "english_latin"
    if most in _SHARES and share > _SHARES[most][0]:
        return _SHARES[most][1]
    if most not in _WHOLE and share < 0.5 and shown < 0.7:
        return "mixed_noise"
    return {"latin": "english_latin", "modifier": "mathematics"}.get(most, most)


@functools.lru_cache(maxsize=4096)
def _kind_of_character(character: str) -> str:
    if character in _SPACES:
        return "whitespace"
    if 0x1F300 <= ord(character) <= 0x1FAFF:
        return "emoji"
    if character.isdigit():
        return "numbers"
    name, category = unicodedata.name(character, ""), unicodedata.category(character)
    for words, kind in _WORDS if name else ():
        if any(word in name for word in words):
            return kind
        if kind == "whitespace" and category in ("Zs", "Zl", "Zp"):
            return kind
    return _CATEGORIES.get(category[0], "other")


__all__ = ["kind_of"]
