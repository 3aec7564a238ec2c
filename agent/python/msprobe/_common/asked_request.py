"""Which request of a served batch the configuration's request_id means."""

import re


def as_asked(asked: str, scheduled: dict[str, int] | None) -> dict[str, int] | None:
    """The batch with the request that `asked` means under that name.

    Of none that is called so it means the one that vLLM made of it: ``cmpl-ID-0-1a2b3c4d`` of the ID that a client
    sends as X-Request-Id.
    """
    if not asked or scheduled is None or asked in scheduled:
        return scheduled
    meant = re.compile(rf"(?:[a-z]+-)?{re.escape(asked)}(?:-\d+)?(?:-[0-9a-f]{{8}})?")
    found = next((request for request in scheduled if meant.fullmatch(request)), None)
    return {asked if request == found else request: tokens for request, tokens in scheduled.items()}
