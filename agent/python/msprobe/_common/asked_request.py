"""Finds the request of a served batch that the configuration's request_id means."""

from __future__ import annotations

import re


def as_asked(asked: str, scheduled: dict[str, int] | None) -> dict[str, int] | None:
    """The batch, in which the request that `asked` means has that name.

    If no request has the name, it means the request that vLLM named after it: a client sends ID as X-Request-Id, and
    vLLM calls the request ``cmpl-ID-0-1a2b3c4d``.
    """
    if not asked or scheduled is None or asked in scheduled:
        return scheduled
    meant = re.compile(rf"(?:[a-z]+-)?{re.escape(asked)}(?:-\d+)?(?:-[0-9a-f]{{8}})?")
    found = next((request for request in scheduled if meant.fullmatch(request)), None)
    return {asked if request == found else request: tokens for request, tokens in scheduled.items()}
