"""Runs one call, forward and backward, on a device or in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from msprobe_client.check.arguments import Arguments

_WIDE = {torch.complex32: torch.complex128, torch.complex64: torch.complex128}


@dataclass
class Result:
    outputs: list[tuple[str, torch.Tensor]] = field(default_factory=list)  # "output.0"
    gradients: list[tuple[str, torch.Tensor]] = field(default_factory=list)  # by the place of the argument: "input.0"
    no_backward: str = ""  # why there are no gradients
    # Of the node that made the first output: the arguments whose gradients it gives, in order. "": that of no argument.
    node_inputs: list[str] = field(default_factory=list)


def wide(value: Any) -> Any:
    """Floating dtypes and tensors in float64, complex ones in complex128."""
    if isinstance(value, torch.dtype):
        return _WIDE.get(value, torch.float64 if value.is_floating_point else value)
    if isinstance(value, torch.Tensor):
        return value.detach().to("cpu", wide(value.dtype))
    return value


_RAISED = {torch.float16: torch.float32, torch.bfloat16: torch.float32, torch.float32: torch.float64}
_NARROW = frozenset({torch.float8_e4m3fn, torch.float8_e5m2})
# Of these acc_check keeps the dtype: the answer of type_as is a dtype, and an NPU convolves float32 in another format.
_KEPT = {"type_as": frozenset(_RAISED), "conv1d": frozenset({torch.float32}), "conv2d": frozenset({torch.float32})}


def raised(operation: str, arguments: Arguments) -> Callable[[torch.Tensor], torch.Tensor]:
    """As mindstudio-probe's acc_check computes: in the next wider dtype; several dtypes in float32."""
    dtypes = {tensor.dtype for _, tensor in arguments.tensors if tensor.dtype in _RAISED}
    wider = _RAISED[next(iter(dtypes))] if len(dtypes) == 1 else torch.float32
    changed = (frozenset(_RAISED) | _NARROW) - _KEPT.get(operation, frozenset())

    def raise_dtype(tensor: torch.Tensor) -> torch.Tensor:
        to = torch.float32 if tensor.dtype in _NARROW else wider
        return tensor.detach().to("cpu", to if tensor.dtype in changed else tensor.dtype)

    return raise_dtype


def on(device: str) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda tensor: tensor.detach().to(device, copy=True)


def nudged(seed: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """Floating tensors in float64, each element moved by up to half an ULP of its dtype: what their rounding costs."""
    generator = torch.Generator().manual_seed(seed)

    def nudge(tensor: torch.Tensor) -> torch.Tensor:
        exact: torch.Tensor = wide(tensor)
        if not tensor.dtype.is_floating_point:
            return exact
        step = torch.finfo(tensor.dtype).eps / 2
        moved: torch.Tensor = exact * (
            1 + step * (2 * torch.rand(exact.shape, generator=generator, dtype=torch.float64) - 1)
        )
        return moved

    return nudge


def sized(tensor: torch.Tensor) -> torch.Tensor:
    """In float64, or complex128, without signs."""
    exact: torch.Tensor = wide(tensor)
    if exact.is_complex():
        return torch.complex(exact.real.abs(), exact.imag.abs())
    return exact.abs() if exact.is_floating_point() else exact


# What adding up costs, in ULPs of the sum of the terms' sizes, S. A running sum of n terms of any sign is about as
# large as S / sqrt(n), and each of its n roundings, by up to half an ULP, has any sign: together half an ULP of S. Runs
# of one sign make the running sum larger: at most about sqrt(n) times that (Higham and Mary, "A new approach to
# probabilistic rounding error analysis", 2019), which no kernel reaches that adds in blocks. This allows four times.
_SUM_ULPS = 2.0


def _with_rounded_sums(result: Result, sizes: Result, seed: int, dtype: torch.dtype) -> Result:
    """Each number moved, up or down, by what it costs to add it up in `dtype`, however small the sum is in the end.

    sizes: has the sum of the terms' sizes in its place.
    """
    generator = torch.Generator().manual_seed(seed)
    cost = _SUM_ULPS * torch.finfo(dtype).eps

    def moved(tensor: torch.Tensor, size: torch.Tensor | None) -> torch.Tensor:
        if size is None or size.shape != tensor.shape or tensor.dtype != torch.float64:
            return tensor
        signs = 2 * torch.randint(0, 2, tensor.shape, generator=generator, dtype=torch.float64) - 1
        return tensor + cost * size.abs() * signs

    return replace(
        result,
        outputs=[(place, moved(each, dict(sizes.outputs).get(place))) for place, each in result.outputs],
        gradients=[(place, moved(each, dict(sizes.gradients).get(place))) for place, each in result.gradients],
    )


def leaves(value: Any, name: str = "output") -> list[tuple[str, torch.Tensor]]:
    """The tensors of a result with the names that a record gives them. Numbers are tensors without dimensions."""
    items = list(value) if isinstance(value, list | tuple) and not isinstance(value, torch.Size) else [value]
    found = []
    for index, item in enumerate(items):
        place = f"{name}.{index}"
        if isinstance(item, torch.Tensor):
            found.append((place, item))
        elif isinstance(item, bool | int | float) and not isinstance(value, torch.Size):
            dtype = torch.bool if isinstance(item, bool) else torch.int64 if isinstance(item, int) else torch.float64
            found.append((place, torch.tensor(item, dtype=dtype)))
        elif isinstance(item, list | tuple):
            found += leaves(item, place)
        elif isinstance(item, dict):
            for key, entry in item.items():
                found += [(f"{place}.{key}{tail[len('x.0') :]}", leaf) for tail, leaf in leaves(entry, "x")]
    return found


def _seed(seed: int, arguments: Arguments) -> None:
    # torch.manual_seed also keeps a call for each device that was not used yet, with its stack: 3 ms.
    if arguments.tensors and all(tensor.device.type == "cpu" for _, tensor in arguments.tensors):
        torch.default_generator.manual_seed(seed)
    else:
        torch.manual_seed(seed)


def run(
    function: Callable[..., Any],
    arguments: Arguments,
    *,
    mutates: bool,
    grad_outputs: Sequence[torch.Tensor | None] | None,
    seed: int,
) -> Result:
    """grad_outputs: of the outputs that have gradients, in order; None: the call had no backward."""
    _seed(seed, arguments)
    backward = grad_outputs is not None
    inputs: list[tuple[str, torch.Tensor]] = []
    needs = iter(arguments.needs_grad)

    def prepared(tensor: torch.Tensor) -> torch.Tensor:
        differentiable = tensor.dtype.is_floating_point or tensor.dtype.is_complex
        if not (next(needs) and backward and differentiable):
            return tensor.clone() if mutates else tensor
        leaf = tensor.detach().requires_grad_()
        inputs.append(("", leaf))
        return leaf.clone() if mutates else leaf

    ready = arguments.mapped(prepared)
    wanted = [
        need and (t.dtype.is_floating_point or t.dtype.is_complex)
        for (_, t), need in zip(arguments.tensors, arguments.needs_grad, strict=True)
    ]
    places = [place for (place, _), want in zip(arguments.tensors, wanted, strict=True) if want and backward]
    with torch.enable_grad() if backward else torch.no_grad():
        answer = function(*ready.args, **ready.kwargs)
        if answer is None and mutates and ready.args:
            answer = ready.args[0]
    result = Result(outputs=[(place, tensor.detach()) for place, tensor in leaves(answer)])
    if grad_outputs is None:
        return result
    if not inputs:
        result.no_backward = "no argument has a gradient"
        return result
    differentiable = [tensor for _, tensor in leaves(answer) if tensor.requires_grad]
    if differentiable and differentiable[0].grad_fn is not None:
        place_of = {id(leaf): place for place, (_, leaf) in zip(places, inputs, strict=True)}
        nodes = [node for node, _ in differentiable[0].grad_fn.next_functions]
        result.node_inputs = [place_of.get(id(getattr(node, "variable", None)), "") for node in nodes]
    pairs = []
    for tensor, grad in zip(differentiable, grad_outputs, strict=False):
        if grad is None:
            continue
        if grad.shape != tensor.shape:
            result.no_backward = (
                f"the gradient that was recorded has the shape {list(grad.shape)}, the output {list(tensor.shape)}"
            )
            return result
        pairs.append((tensor, grad.to(tensor.device, tensor.dtype)))
    if not pairs:
        result.no_backward = "no output has a recorded gradient"
        return result
    grads = torch.autograd.grad([t for t, _ in pairs], [t for _, t in inputs], [g for _, g in pairs], allow_unused=True)
    result.gradients = [(place, grad.detach()) for place, grad in zip(places, grads, strict=True) if grad is not None]
    return result


def rounded_otherwise(
    function: Callable[..., Any],
    arguments: Arguments,
    *,
    mutates: bool,
    grad_outputs: Sequence[torch.Tensor | None] | None,
    seed: int,
    scalar: Callable[[Any], Any] = lambda value: value,
    sums: bool = False,
) -> Result:
    """In float64, with every input moved by up to half an ULP: what their rounding costs.

    sums: also with what adding up costs, of an operator in SUMS_OF_PRODUCTS. scalar: as in Arguments.mapped.
    """

    def changed(change: Callable[[torch.Tensor], torch.Tensor], number: Callable[[Any], Any]) -> Result:
        grads = grad_outputs and [None if each is None else change(each) for each in grad_outputs]
        given = arguments.mapped(change, number)
        return run(function, given, mutates=mutates, grad_outputs=grads, seed=seed)

    result = changed(nudged(seed), scalar)
    if not sums:
        return result
    sizes = changed(sized, lambda value: abs(scalar(value)) if isinstance(value, float) else value)
    # Operators of 8 and 16 bits add up in float32.
    exact = any(tensor.dtype in (torch.float64, torch.complex128) for _, tensor in arguments.tensors)
    return _with_rounded_sums(result, sizes, seed, torch.float64 if exact else torch.float32)
