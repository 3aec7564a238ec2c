"""The modules that a user names, among those of the model."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

import torch

from msprobe._common.errors import MsprobeError

_CALL = re.compile(r"(.+)\.forward\.\d+")


def path_of(name: str) -> str:
    """Module.layers.0.mlp.MLP -> layers.0.mlp"""
    return name.partition(".")[2].rpartition(".")[0]


def chosen(names: Sequence[str], modules: Mapping[str, torch.nn.Module]) -> list[str]:
    """Names of records, without count where every call is meant. modules: by such names, of the whole model.

    names: Module.layers.0.mlp.MLP, layers.0.mlp, a shell pattern over either, or Module.layers.0.mlp.MLP.forward.0 for
    one call. MsprobeError: the model has none.
    """
    found: dict[str, None] = {}
    for name in names:
        call = _CALL.fullmatch(name)
        if call is not None and call[1] in modules:
            found[name] = None
            continue
        matching = [each for each in modules if name == each or name == path_of(each)]
        matching = matching or [each for each in modules if fnmatchcase(each, name) or fnmatchcase(path_of(each), name)]
        if not matching:
            known = [*modules, *map(path_of, modules)]
            nearest = difflib.get_close_matches(name, known, 1)
            raise MsprobeError(
                f"graft: the model has no module {name!r}"
                + (f"; did you mean {nearest[0]!r}?" if nearest else "; names are those of named_modules()")
            )
        found.update(dict.fromkeys(matching))
    return list(found)


def children_first(names: Sequence[str]) -> list[str]:
    """In another order: each after all that lie in it; else as they come. names: parents first, as a model has them."""
    ordered: list[str] = []
    open_: list[str] = []
    for name in names:
        while open_ and not path_of(name).startswith(f"{path_of(open_[-1])}."):
            ordered.append(open_.pop())
        open_.append(name)
    return ordered + open_[::-1]


__all__ = ["children_first", "chosen", "path_of"]
