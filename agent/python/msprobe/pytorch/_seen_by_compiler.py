"""What torch.compile sees of interception: nothing.

Before a compiled graph runs, its guards ask whether the functions that it was traced from are still the same: Python
functions by their code, others by identity. Interception changes both at each start and stop, and each change would
cost a new graph, though the graph is the same, since a compiler traces with everything taken out. So the guard on the
code of an intercepted function becomes one on the function itself; and where an attribute holds another object while
intercepted, its guard takes either. The code that stands in is no frame to compile.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

from msprobe._common import log

_replacements: dict[int, tuple[Any, Any]] = {}  # id of what was replaced -> (it, what replaces it)
_told_of_guards = False
_skip: Callable[[types.CodeType], None] | None = None  # known once meet has been called


def note_replacement(original: Any, replacement: Any) -> None:
    """Code or another object, which another stands in for from time to time. Both are kept for good."""
    _replacements[id(original)] = (original, replacement)
    if _skip is not None and isinstance(replacement, types.CodeType):
        _skip(replacement)


def meet() -> None:
    """Holds for graphs that are compiled from now on. Once a process, when the compiler has been imported."""
    global _skip
    try:
        from torch._dynamo.eval_frame import skip_code
        from torch._dynamo.guards import GuardBuilder

        match: Callable[..., None] = GuardBuilder.id_match_unchecked
    except (ImportError, AttributeError) as error:
        log.warning(f"the guards of torch.compile are not known ({error}): it may compile anew at each start and stop")
        return

    @functools.wraps(match)
    def match_either(self: Any, guard: Any, *arguments: Any, **keywords: Any) -> None:
        if not _guarded(self, guard):
            match(self, guard, *arguments, **keywords)

    GuardBuilder.id_match_unchecked = match_either
    _skip = skip_code
    for _, replacement in _replacements.values():
        if isinstance(replacement, types.CodeType):
            _skip(replacement)


def _guarded(builder: Any, guard: Any) -> bool:
    """False: nothing was added, as the value is not ours, or this torch has other guards than we know."""
    try:
        from torch._dynamo.guards import GuardBuilder, get_verbose_code_parts
        from torch._dynamo.source import CodeSource
        from torch._guards import Guard

        source, value = guard.originating_source, builder.get(guard)
        if isinstance(source, CodeSource):
            function = source.base
            if id(value) not in _replacements and id(builder.get(function)) not in _replacements:
                return False
            Guard(function, GuardBuilder.FUNCTION_MATCH, stack=guard.stack, user_stack=guard.user_stack).create(builder)
            return True
        if id(value) not in _replacements:
            return False
        original, replacement = _replacements[id(value)]
        code = f"{guard.name} is {original!r}, intercepted or not"
        manager, parts = builder.get_guard_manager(guard), get_verbose_code_parts(code, guard)
        manager.add_lambda_guard(lambda found: found is original or found is replacement, parts, guard.user_stack)
        return True
    except Exception as error:
        global _told_of_guards
        if not _told_of_guards:
            _told_of_guards = True
            log.warning(f"a guard of torch.compile is not understood, and may fail at each start and stop: {error!r}")
        return False
