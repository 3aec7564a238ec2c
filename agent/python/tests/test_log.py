"""Lines for people stay lines, whatever is in them."""

import pytest
from msprobe._common import log


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("läuft 模型 😀 a\\b", "läuft 模型 😀 a\\b"),
        ("a\n2026-01-31 12:00:00 (1) [ERROR] b", "a\\n2026-01-31 12:00:00 (1) [ERROR] b"),
        ("\x1b[2J\x9b31m\t\x7f", "\\x1b[2J\\x9b31m\\t\\x7f"),
        ("\u202eevil\u2028", "\\u202eevil\\u2028"),
    ],
)
def test_what_is_not_to_be_seen_is_named(text, shown, capsys, monkeypatch):
    monkeypatch.delenv("MSPROBE_LOG_LEVEL", raising=False)
    log.info(text)
    (line,) = capsys.readouterr().out.split("\n")[:-1]
    assert line.endswith(f" [INFO] {shown}")


@pytest.mark.parametrize("quiet", ["2", "warning", "off"])
def test_the_level_is_a_number_or_a_name_that_the_server_has(quiet, capsys, monkeypatch):
    monkeypatch.setenv("MSPROBE_LOG_LEVEL", quiet)
    log.info("a")
    assert capsys.readouterr().out == ""
    monkeypatch.setenv("MSPROBE_LOG_LEVEL", "louder")
    log.info("b")
    assert capsys.readouterr().out.endswith("[INFO] b\n")
