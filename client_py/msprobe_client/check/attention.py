"""flash_attention_score of MindSpore as a composition of plain operators, for golden values.

What it computes is what MindSpore's document of the function says. Where that says nothing, or CANN's document of the
kernel says something else, the call is a skip.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

ALL = 2147483647  # tokens: no limit
COMPRESSED = 2048  # rows and columns of the upper triangle that stands for the mask of any size
_LAYOUTS = ("BSH", "BNSD", "SBH", "BSND", "TND")
# Sparse modes: which keys a query has. Those of the first row take a mask of every query and key as well.
_DEFAULT, _ALL_MASK, _PREFIX = 0, 1, 5
_LEFT_UP, _RIGHT_DOWN, _BAND = 2, 3, 4
_DOUBLE_USE = (
    "scalar_value {0:g} multiplies real_shift by CANN's document of aclnnFlashAttentionScore, and not by MindSpore's"
)


@dataclass(frozen=True)
class _Call:
    query: Any
    key: Any
    value: Any
    head_num: int
    real_shift: Any = None
    drop_mask: Any = None
    padding_mask: Any = None
    attn_mask: Any = None
    prefix: Any = None
    actual_seq_qlen: Any = None
    actual_seq_kvlen: Any = None
    keep_prob: float = 1.0
    scalar_value: float = 1.0
    pre_tokens: int = ALL
    next_tokens: int = ALL
    inner_precise: int = 0
    input_layout: str = "BSH"
    sparse_mode: int = 0


def flash_attention_score(*args: Any, **kwargs: Any) -> Any:
    """Arguments as MindSpore's. Raises what torch raises for shapes that do not fit."""
    import torch

    call = _Call(*args, **kwargs)
    outputs = [_attention(call, batch, *part) for batch, part in enumerate(_parts(call))]
    if call.input_layout == "TND":
        return torch.cat([each.squeeze(0).transpose(0, 1) for each in outputs])
    return _from_heads(torch.cat(outputs), call.input_layout)


def reason_to_skip(args: Sequence[Any], kwargs: dict[str, Any]) -> str | None:
    """Why a call has no golden value, if it has none."""
    try:
        call = _Call(*args, **kwargs)
    except TypeError:
        return "its arguments are not those of flash_attention_score"
    if reason := _unsupported(call):
        return reason
    try:
        for batch, (query, key, _) in enumerate(_parts(call)):
            if reason := _of_mask(call, batch, query.shape[-2], key.shape[-2], query.device):
                return reason
    except (RuntimeError, IndexError, TypeError, ValueError) as error:
        return f"its arguments do not fit each other: {str(error).partition(chr(10))[0]}"
    return None


def _unsupported(call: _Call) -> str | None:
    if call.input_layout not in _LAYOUTS:
        return f"input_layout is {call.input_layout!r}; it should be one of {', '.join(_LAYOUTS)}"
    if call.keep_prob != 1 or call.drop_mask is not None:
        return f"keep_prob is {call.keep_prob:g}: which weights drop_mask drops is not documented"
    if call.padding_mask is not None:
        return "padding_mask has no documented meaning"
    if call.sparse_mode not in range(_PREFIX + 1):
        return f"sparse_mode {call.sparse_mode} is not documented"
    lengths = (call.actual_seq_qlen, call.actual_seq_kvlen)
    if call.input_layout == "TND" and any(each is None for each in lengths):
        return "input_layout TND needs actual_seq_qlen and actual_seq_kvlen"
    if call.input_layout == "TND" and (
        len(lengths[0]) != len(lengths[1])
        or any(int(ends[-1]) != len(x) for ends, x in zip(lengths, (call.query, call.key), strict=True))
    ):
        return "actual_seq_qlen and actual_seq_kvlen do not end where query and key do"
    if call.real_shift is not None:
        if call.input_layout == "TND" or call.real_shift.ndim != 4:
            return "real_shift of layout TND, or of other than four dimensions, is compressed in a way of its own"
        if call.scalar_value != 1:
            return _DOUBLE_USE.format(call.scalar_value)
    return _of_mode(call)


def _of_mode(call: _Call) -> str | None:
    import torch

    mask = call.attn_mask
    if call.sparse_mode in (_LEFT_UP, _RIGHT_DOWN, _BAND):
        if mask is None or tuple(mask.shape) != (COMPRESSED, COMPRESSED):
            return f"sparse_mode {call.sparse_mode} needs an attn_mask of {COMPRESSED} x {COMPRESSED}"
        if not torch.equal(mask.bool(), torch.ones_like(mask, dtype=torch.bool).triu(1)):
            return f"attn_mask is not the upper triangle, which it stands for in sparse_mode {call.sparse_mode}"
    elif mask is None and call.sparse_mode != _DEFAULT:
        return f"sparse_mode {call.sparse_mode} needs an attn_mask"
    if call.sparse_mode == _PREFIX and call.prefix is None:
        return f"sparse_mode {_PREFIX} needs prefix"
    return None


def _of_mask(call: _Call, batch: int, queries: int, keys: int, device: Any) -> str | None:
    """Of one element of the batch."""
    shift = call.real_shift
    if shift is not None and tuple(shift.shape[-2:]) != (queries, keys):
        return "real_shift has not a row for each query and a column for each key"
    discarded = _discarded(call, batch, queries, keys, device)
    if discarded is None:
        return None
    if discarded.all(-1).any():
        return "a query has no key left: what it gives then is not documented"
    allowed = _allowed(call, batch, queries, keys, device)
    full = call.sparse_mode not in (_LEFT_UP, _RIGHT_DOWN, _BAND)
    if full and allowed is not None and (~allowed & ~discarded).any():
        return (
            "attn_mask keeps what pre_tokens, next_tokens or prefix leave out, and only blocks are left out for these"
        )
    return None


def _parts(call: _Call) -> Iterator[tuple[Any, Any, Any]]:
    """Query, key and value of each element of the batch: [1, heads, length, size], of one head a query head each."""
    names = (call.query, call.key, call.value)
    if call.input_layout != "TND":
        size = call.query.shape[-1] // (call.head_num if call.input_layout.endswith("H") else 1)
        heads = [_to_heads(each, call.input_layout, size) for each in names]
        for batch in range(heads[0].shape[0]):
            yield _for_each_head([each[batch : batch + 1] for each in heads])
        return
    ends = [[0, *map(int, each)] for each in (call.actual_seq_qlen, call.actual_seq_kvlen)]
    of_each = (ends[0], ends[1], ends[1])
    for batch in range(len(ends[0]) - 1):
        rows = [slice(each[batch], each[batch + 1]) for each in of_each]
        yield _for_each_head([x[part].transpose(0, 1).unsqueeze(0) for x, part in zip(names, rows, strict=True)])


def _for_each_head(parts: list[Any]) -> tuple[Any, Any, Any]:
    query, key, value = parts
    groups = query.shape[1] // key.shape[1]
    return query, key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)


def _to_heads(x: Any, layout: str, size: int) -> Any:
    """[batch, heads, length, size]"""
    if layout == "SBH":
        x = x.transpose(0, 1)
    if layout.endswith("H"):
        x = x.unflatten(-1, (-1, size))
    return x if layout == "BNSD" else x.transpose(1, 2)


def _from_heads(x: Any, layout: str) -> Any:
    x = x if layout == "BNSD" else x.transpose(1, 2)
    x = x.flatten(-2) if layout.endswith("H") else x
    return x.transpose(0, 1) if layout == "SBH" else x


def _attention(call: _Call, batch: int, query: Any, key: Any, value: Any) -> Any:
    """16 bits are multiplied and added up in 32, and the weights rounded to 16, as the kernel has it."""
    import torch

    wide = query.dtype if query.dtype.itemsize > 2 else torch.float32
    scores = query.to(wide) @ key.to(wide).transpose(-1, -2) * call.scalar_value
    if call.real_shift is not None:
        scores = scores + _of_batch(call.real_shift, batch).to(wide)
    discarded = _discarded(call, batch, query.shape[-2], key.shape[-2], query.device)
    if discarded is not None:
        scores = scores.masked_fill(discarded, float("-inf"))
    weights = torch.softmax(scores, -1).to(query.dtype)
    return (weights.to(wide) @ value.to(wide)).to(query.dtype)


def _discarded(call: _Call, batch: int, queries: int, keys: int, device: Any) -> Any:
    """Which keys each query does not have, broadcast to [1, heads, queries, keys]; None: it has all."""
    if call.sparse_mode in (_LEFT_UP, _RIGHT_DOWN, _BAND):
        return ~_allowed(call, batch, queries, keys, device)
    if call.attn_mask is None:
        return None
    mask = call.attn_mask.bool()
    if mask.ndim == 2:
        return mask.expand(queries, keys)
    return _of_batch(mask, batch).expand(1, -1, queries, keys)


def _of_batch(x: Any, batch: int) -> Any:
    """One that stands for all has a first dimension of 1."""
    return x[batch : batch + 1] if x.shape[0] > 1 else x


def _allowed(call: _Call, batch: int, queries: int, keys: int, device: Any) -> Any:
    """What the sparse mode says of [queries, keys]; None: nothing. A band begins at the lower right in mode 4 alone."""
    import torch

    ahead = torch.arange(keys, device=device) - torch.arange(queries, device=device).unsqueeze(1)
    from_the_end = ahead - (keys - queries)
    if call.sparse_mode == _LEFT_UP:
        return ahead <= 0
    if call.sparse_mode == _RIGHT_DOWN:
        return from_the_end <= 0
    if call.sparse_mode == _PREFIX:
        return (from_the_end <= 0) | (torch.arange(keys, device=device) < int(call.prefix[batch]))
    if call.sparse_mode == _ALL_MASK:
        return None
    of_band = from_the_end if call.sparse_mode == _BAND else ahead
    return (of_band >= -call.pre_tokens) & (of_band <= call.next_tokens)
