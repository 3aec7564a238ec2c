"""What a recorded name stands for, and the operators that cannot simply be run again."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import os
import re
import sys
import types
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msprobe_client.check import attention, compositions

_NAME = re.compile(r"(?P<prefix>[A-Za-z]\w*)\.(?P<operation>[\w.]+)\.(?P<number>\d+)\.(?P<direction>forward|backward)")
# Where the functions of a prefix are. Prefixes that users register themselves are names of modules.
_HOMES = {
    "Functional": "torch.nn.functional",
    "Torch": "torch",
    "Tensor": "torch:Tensor",
    "VF": "torch:_VF",
    "NPU": "torch_npu",
    "Aten": "torch:ops.aten",
}
# Where the functions of torch are that mean the same as MindSpore's.
_MINDSPORE_HOMES = {"Mint": "torch", "MintFunctional": "torch.nn.functional", "Tensor": "torch:Tensor"}
# Methods of MindSpore's Tensor that mean the same as those of torch's.
_MINDSPORE_METHODS = frozenset(
    [
        "add",
        "add_",
        "addmm_",
        "all",
        "allclose",
        "any",
        "bool",
        "byte",
        "ceil",
        "clamp",
        "clamp_",
        "clone",
        "contiguous",
        "copy_",
        "cos",
        "cumprod",
        "expand_as",
        "fill_",
        "flatten",
        "float",
        "floor_",
        "half",
        "int",
        "is_contiguous",
        "isnan",
        "item",
        "log",
        "log2",
        "long",
        "masked_fill",
        "max",
        "mean",
        "min",
        "numel",
        "numpy",
        "repeat",
        "repeat_interleave",
        "reshape",
        "round",
        "select",
        "sin",
        "size",
        "split",
        "sqrt",
        "square",
        "sub",
        "swapaxes",
        "t",
        "to",
        "tolist",
        "topk",
        "transpose",
        "trunc",
        "type",
        "type_as",
        "unsqueeze",
        "view",
        "view_as",
        "zero_",
    ]
)
_UNINITIALISED = frozenset(
    {
        "empty",
        "empty_like",
        "empty_strided",
        "new_empty",
        "new_empty_strided",
        "empty_with_format",
        "resize_",
        "resize_as_",
    }
)
# What they return is drawn anew from one distribution.
GENERATORS = frozenset(
    {
        "rand",
        "randn",
        "rand_like",
        "randn_like",
        "randint",
        "randint_like",
        "normal",
        "normal_",
        "uniform_",
        "bernoulli",
        "bernoulli_",
        "exponential_",
        "cauchy_",
        "geometric_",
        "log_normal_",
        "random_",
        "poisson",
    }
)
# Each element is zeroed with the probability that is their argument, or scaled.
DROPOUTS = frozenset({"dropout", "dropout_", "native_dropout", "_npu_dropout", "npu_dropout"})
_OTHERWISE_RANDOM = frozenset(
    {
        "multinomial",
        "randperm",
        "alpha_dropout",
        "feature_alpha_dropout",
        "feature_dropout",
        "dropout1d",
        "dropout2d",
        "dropout3d",
        "fractional_max_pool2d",
        "fractional_max_pool3d",
        "fractional_max_pool2d_with_indices",
        "fractional_max_pool3d_with_indices",
        "gumbel_softmax",
        "rrelu",
        "rrelu_",
    }
)
# Each number of theirs, and of their gradients, is a sum of products of numbers that they are given: with all of these
# positive it is the sum of the terms' sizes.
SUMS_OF_PRODUCTS = frozenset(
    {
        *("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"),
        *("linear", "bilinear", "matmul", "mm", "bmm", "mv", "dot", "inner", "outer", "einsum", "tensordot"),
        *("addmm", "addbmm", "baddbmm", "addmv", "addr", "__matmul__", "__rmatmul__"),
        *("sum", "mean", "cumsum", "avg_pool1d", "avg_pool2d", "avg_pool3d", "expand", "repeat", "embedding"),
        # Their gradients are summed up to the shape of an argument.
        *("add", "__add__", "__radd__", "__iadd__", "sub", "__sub__", "__rsub__", "__isub__"),
        *("mul", "__mul__", "__rmul__", "__imul__", "addcmul"),
    }
)
_NO_ANSWER = frozenset({"numpy", "stride", "is_pinned"})


@dataclass(frozen=True, slots=True)
class CallName:
    prefix: str
    operation: str  # without prefix and number: "matmul"
    direction: str
    base: str  # without direction: "Torch.matmul.0"
    framework: str = "pytorch"  # or "mindspore"

    @classmethod
    def parse(cls, full_name: str, framework: str = "pytorch") -> CallName | None:
        """None: not the name of an API call."""
        match = _NAME.fullmatch(full_name)
        if match is None:
            return None
        return cls(match["prefix"], match["operation"], match["direction"], full_name.rsplit(".", 1)[0], framework)

    @property
    def mutates(self) -> bool:
        """Whether it writes into its first argument."""
        name = self.operation
        if name.endswith("__"):
            return name == "__setitem__" or (name.startswith("__i") and name not in _NOT_IN_PLACE)
        return name.endswith("_")


_NOT_IN_PLACE = frozenset({"__invert__", "__index__", "__int__"})


def reason_to_skip(name: CallName, args: Iterable[Any], kwargs: dict[str, Any]) -> str | None:
    """Why a call is not run again, if it is not."""
    operation = name.operation
    if name.prefix in ("Distributed", "MintDistributed"):
        return f"{operation} is a collective: its answer is made by other ranks"
    if name.prefix == "MindSpeed":
        return f"{operation} of MindSpeed has no reference"
    if operation in _UNINITIALISED:
        return f"{operation} returns memory that nobody has written"
    if operation in _NO_ANSWER:
        return f"{operation} returns no numbers"
    if operation in _OTHERWISE_RANDOM:
        return f"{operation} is random, and its distribution has no test here"
    if name.framework == "mindspore" and not is_like_torch(name):
        return f"{name.prefix}.{operation} of MindSpore has no function in torch that means the same"
    if _composition_of(name) is attention.flash_attention_score:
        return attention.reason_to_skip(list(args), kwargs)
    if name.prefix == "Torch" and _is_ambiguous(operation, list(args), kwargs):
        return f"{operation} may be torch.{operation} or torch.linalg.{operation}, and the record does not tell"
    probability = kwargs.get("dropout_p", 0.0)
    if operation == "scaled_dot_product_attention":
        probability = next(iter(list(args)[4:5]), probability)
    if operation == "multi_head_attention_forward" and kwargs.get("training", True):
        probability = next(iter(list(args)[10:11]), probability)
    if isinstance(probability, float) and probability > 0:
        return f"{operation} is random inside: its dropout probability is {probability:g}"
    return None


def _is_ambiguous(operation: str, args: list[Any], kwargs: dict[str, Any]) -> bool:
    """Functions of torch.linalg are recorded under the same names as those of torch."""
    if operation == "svd":
        return not kwargs.keys() & {"some", "compute_uv"} and len(args) < 2
    order = args[1] if len(args) > 1 else kwargs.get("p", kwargs.get("ord"))
    matrix = bool(args) and getattr(args[0], "ndim", 0) > 1 and len(args) < 3 and kwargs.get("dim") is None
    return operation == "norm" and matrix and isinstance(order, int | float)


def is_like_torch(name: CallName) -> bool:
    """Whether a call of MindSpore has a function in torch, or a composition of some, that means the same."""
    if _composition_of(name) is not None:
        return True
    return name.prefix in _MINDSPORE_HOMES and (name.prefix != "Tensor" or name.operation in _MINDSPORE_METHODS)


def is_own(name: CallName) -> bool:
    """Whether somebody registered the operator: its prefix is the name of his module."""
    homes = _MINDSPORE_HOMES if name.framework == "mindspore" else _HOMES
    return name.prefix not in homes and _composition_of(name) is None


def function_of(name: CallName) -> Callable[..., Any] | None:
    """The function that was called, if this environment has it; of MindSpore's the one of torch that means the same.

    A dump may come from anyone: of torch it names operators only, of one's own modules only functions whose module uses
    torch, of installed packages only those that OWN_OPERATORS allows, and nothing of the standard library.
    """
    homes = _MINDSPORE_HOMES if name.framework == "mindspore" else _HOMES
    home, _, attribute = homes.get(name.prefix, name.prefix).partition(":")
    package = home.partition(".")[0]
    if name.operation.partition(".")[0] == "from_file":  # it maps any file, for writing too
        return None
    if package in sys.stdlib_module_names or (name.prefix not in homes and not _is_allowed(package)):
        return None
    try:
        found: Any = importlib.import_module(home)
        for part in [*attribute.split(".")] * bool(attribute) + name.operation.split("."):
            found = getattr(found, part)
            if isinstance(found, types.ModuleType) and found.__name__.partition(".")[0] != package:
                return None
    except ImportError:
        return None
    except Exception:  # whatever a package raises that is imported
        return _function_of_linalg(name)
    function: Callable[..., Any] | None = found if callable(found) else None
    if function is None or name.prefix == "NPU":
        return function
    if name.prefix == "Aten":
        from torch._ops import OpOverload, OpOverloadPacket

        return function if isinstance(function, OpOverload | OpOverloadPacket) else None
    if package != "torch":
        return function if _is_made_of_torch(function) else None
    return function if _computes(name, function) else _function_of_linalg(name)


def why_no_function(name: CallName) -> str:
    package = name.prefix.partition(".")[0]
    if is_own(name) and package.isidentifier() and importlib.util.find_spec(package) is not None:
        return (
            f"{name.operation} is a function of {package}, which is no operator of torch; where you trust whoever made "
            f"the dump, allow it by {OWN_OPERATORS}={package}"
        )
    return f"{name.prefix}.{name.operation} is not in this environment and has no composition"


# An environment variable: the installed packages, with commas between, whose functions a dump may name.
OWN_OPERATORS = "MSPROBE_OWN_OPERATORS"


def _is_allowed(package: str) -> bool:
    """Installed packages load pickles and libraries, download and write files; one's own modules are one's own."""
    if package == "torch":
        return False
    if package in os.environ.get(OWN_OPERATORS, "").split(","):
        return True
    try:
        found = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return False
    if found is None:
        return False
    places = [*([found.origin] if found.origin else []), *(found.submodule_search_locations or [])]
    return bool(places) and all(not {"site-packages", "dist-packages"} & set(Path(place).parts) for place in places)


def _function_of_linalg(name: CallName) -> Callable[..., Any] | None:
    """Records of torch.linalg.inv are called Torch.inv, too."""
    import torch

    function = getattr(torch.linalg, name.operation, None) if name.prefix == "Torch" else None
    return function if function in _overridable() else None


def _is_made_of_torch(function: Callable[..., Any]) -> bool:
    """Whether its module uses torch, as those of operators do, and those of yaml.load, pip.main and exec do not.

    Of compiled ones that cannot be told: they are none, but in a package that is allowed by name.
    """
    import torch

    owner = getattr(function, "__self__", None)
    if isinstance(owner, type) and issubclass(owner, torch.autograd.Function):
        return True
    inner = inspect.unwrap(function)
    if isinstance(inner, type):
        return False
    if (names := getattr(getattr(inner, "__func__", inner), "__globals__", None)) is not None:
        modules = (value.__name__ for value in list(names.values()) if isinstance(value, types.ModuleType))
        return any(name.partition(".")[0] == "torch" for name in modules)
    module = str(getattr(inner, "__module__", None) or "")
    return module.partition(".")[0] in os.environ.get(OWN_OPERATORS, "").split(",")


def _computes(name: CallName, function: Any) -> bool:
    """Whether a function of torch is an operator. torch.load and its like are none, whatever a dump says."""
    import torch

    if function in _overridable():
        return True
    if name.prefix in ("Functional", "MintFunctional"):
        builtin = isinstance(function, types.BuiltinFunctionType | types.BuiltinMethodType)
        return builtin or getattr(function, "__module__", "") == "torch.nn.functional"
    if name.prefix == "Tensor":
        return not name.operation.startswith("__") and hasattr(torch._C.TensorBase, name.operation)
    return hasattr(torch._C._VariableFunctions, name.operation)


@functools.cache
def _overridable() -> frozenset[Any]:
    from torch.overrides import get_overridable_functions

    return frozenset(function for functions in get_overridable_functions().values() for function in functions)


def reference_of(name: CallName) -> Callable[..., Any] | None:
    """What computes the golden value: the function itself, or for fused operators a composition of plain ones."""
    return _composition_of(name) or function_of(name)


def _composition_of(name: CallName) -> Callable[..., Any] | None:
    if name.framework == "mindspore":
        return compositions.OF_MINDSPORE.get(name.operation) if name.prefix == "Functional" else None
    return compositions.TABLE.get(name.operation)
