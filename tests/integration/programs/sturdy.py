"""Passes every odd value through recorded calls and prints, as JSON, what each call did: its result or its exception.

With --config the calls are recorded; without, msprobe is not imported. The two outputs must be equal.
"""

import argparse
import json
import pathlib
import types
import warnings

import numpy
import torch

warnings.filterwarnings("ignore")


class Refused(Exception):
    pass


class Unfriendly:
    """An object whose every common operation raises."""

    def __repr__(self):
        raise Refused("repr")

    def __str__(self):
        raise Refused("str")

    def __len__(self):
        raise Refused("len")

    def __iter__(self):
        raise Refused("iter")

    def __bool__(self):
        raise Refused("bool")

    def __eq__(self, other):
        raise Refused("eq")

    __hash__ = object.__hash__


class UnfriendlyDict(dict):
    def items(self):
        raise Refused("items")


def cyclic_list():
    values = [torch.ones(1)]
    values.append(values)
    return values


def values():
    ints = torch.tensor([1, 2, 3])
    found = {
        f"t_{name}": ints.to(getattr(torch, name))
        for name in ("uint16", "uint32", "uint64", "complex64", "complex128", "complex32")
    }
    for name in ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"):
        found[f"t_{name}"] = torch.tensor([1.0, 2.0, 4.0]).to(getattr(torch, name))
    found["t_float4_e2m1fn_x2"] = torch.tensor([0x21, 0x43, 0x65], dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    dense = torch.tensor([[0.0, 1.0], [2.0, 0.0]])
    found.update(
        sparse_coo=dense.to_sparse(),
        sparse_csr=dense.to_sparse_csr(),
        quint8=torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8),
        qint8=torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8),
        qint32=torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint32),
        per_channel=torch.quantize_per_channel(torch.ones(2, 2), torch.ones(2), torch.zeros(2), 0, torch.quint8),
        meta=torch.empty(2, 3, device="meta"),
        empty=torch.empty(0, 3),
        empty_strange=torch.empty(3, 0, 2).transpose(0, 2),
        scalar=torch.tensor(2.5),
        scalar_xor=torch.tensor(7),
        beyond_53_bits=torch.tensor([2**53 + 1, -(2**63)]),
        beyond_63_bits=torch.tensor([2**64 - 1, 2**53 + 1], dtype=torch.uint64),
        conjugate=torch.tensor([1 + 2j, 3 - 1j]).conj(),
        negative_view=torch.tensor([1 + 2j]).conj().imag,
        all_nan=torch.full((4,), float("nan")),
        infinities=torch.tensor([float("inf"), -float("inf")]),
        nested=torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
        bool_empty=torch.empty(0, dtype=torch.bool),
        expanded=torch.ones(1).expand(1000000),
        overlapping=torch.arange(6.0).as_strided((3, 3), (1, 1)),
        many_dims=torch.ones([1] * 12),
        subclass=torch.nn.Parameter(torch.ones(2)),
        released=released(),
        numpy_complex64=numpy.complex64(1 + 2j),
        numpy_array_complex=numpy.ones(2, dtype=numpy.complex128),
        numpy_array_object=numpy.array([object(), None], dtype=object),
        numpy_datetime=numpy.datetime64("2020-01-01"),
        python_complex=1 + 2j,
        huge_int=2**200,
        negative_huge_int=-(2**63) - 1,
        not_unicode="\ud800 lone surrogate",
        null_character="a\0b",
        bytes=b"\xff\x00",
        unfriendly=Unfriendly(),
        unfriendly_dict=UnfriendlyDict(a=1),
        cyclic=cyclic_list(),
        deep=deep(200),
        dict_with_tuple_keys={(1, 2): torch.ones(1), None: 2},
        generator=(x for x in (1, 2)),
        a_type=int,
        a_module=torch,
        frozenset=frozenset({1}),
        slice_of_tensors=slice(torch.tensor(1), None, None),
        size_with_a_tensor=[torch.Size([2]), torch.strided],
    )
    return found


def released():
    tensor = torch.ones(4)
    tensor.untyped_storage().resize_(0)
    return tensor


def deep(levels):
    value = torch.ones(1)
    for _ in range(levels):
        value = [value]
    return value


def describe(value):
    if isinstance(value, torch.Tensor):
        text = f"{value.dtype} {tuple(value.shape) if not value.is_nested else 'nested'} {value.layout}"
        if value.layout == torch.strided and not value.is_meta and not value.is_quantized and not value.is_nested:
            size = value.untyped_storage().nbytes()
            text += f" {size} bytes"
            if size and value.dtype == torch.float4_e2m1fn_x2:
                text += f" {value.view(torch.uint8).tolist()}"  # the only thing that can be done with it
            elif size:
                text += f" {value.clone().flatten().tolist()[:3]}"
        return text
    return type(value).__name__


def outcome(function, *args, **kwargs):
    try:
        return describe(function(*args, **kwargs))
    except Exception as error:  # the exception is the thing under test
        return f"{type(error).__module__}.{type(error).__name__}: {error}"


def raises(*args, **kwargs):
    raise Refused("on purpose")


def native_calls(found):
    """Calls of wrapped functions of torch itself, good and bad."""
    yield "add_uint64", lambda: torch.add(found["t_uint64"], 1)
    yield "relu_fp8", lambda: torch.nn.functional.relu(found["t_float8_e5m2"])
    yield "sparse_matmul", lambda: torch.matmul(found["sparse_coo"], torch.ones(2, 2))
    yield "sparse_sum", lambda: torch.sum(found["sparse_csr"])
    yield "quantized_relu", lambda: torch.relu(found["quint8"])
    yield "meta_add", lambda: torch.add(found["meta"], found["meta"])
    yield "empty_cat", lambda: torch.cat([torch.empty(0), torch.empty(0)])
    yield "empty_max", lambda: torch.max(torch.empty(0))
    yield "complex_abs", lambda: torch.abs(found["t_complex64"])
    yield "shape_mismatch", lambda: torch.matmul(torch.ones(2, 3), torch.ones(2, 3))
    yield "linear_mismatch", lambda: torch.nn.functional.linear(torch.ones(2, 3), torch.ones(2, 2))
    yield "operator_mismatch", lambda: torch.ones(2) + torch.ones(3)
    yield "wrong_type", lambda: torch.add("a", 1)
    yield "unknown_keyword", lambda: torch.relu(torch.ones(1), nonsense=3)
    yield "too_few", lambda: torch.add()
    yield "nested_add", lambda: torch.add(found["nested"], found["nested"])
    yield "in_place_leaf", lambda: torch.ones(1, requires_grad=True).add_(1)
    yield "out_argument", lambda: torch.add(torch.ones(2), torch.ones(2), out=torch.empty(2))
    yield "released_numel", lambda: torch.numel(found["released"])


# Custom calls leave Custom.{name}.{k}.forward; what comes after an odd one must be taken as well.
def custom_apis(found):
    apis = types.ModuleType("odd_apis")
    for name in found:
        setattr(apis, f"take_{name}", lambda *args, **kwargs: args[0])
    apis.take_empty_result = lambda *args, **kwargs: {}
    apis.take_plain_result = lambda *args, **kwargs: {"a": 1}
    apis.take_and_raise = raises
    apis.take_last = lambda *args, **kwargs: args[0]
    return apis


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config")
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = values()
    apis = custom_apis(found)
    debugger = None
    if options.config:
        from msprobe.pytorch import PrecisionDebugger

        debugger = PrecisionDebugger(config_path=options.config)
        for name in [name for name in vars(apis) if name.startswith("take_")]:
            debugger.register_custom_api(apis, name, "Custom")
        debugger.start()

    results = {}
    for name, value in found.items():
        take = getattr(apis, f"take_{name}")
        results[name] = outcome(take, value)
        results[f"{name} by keyword"] = outcome(take, 1, value=value)
    results["empty_result"] = outcome(apis.take_empty_result)
    results["plain_result"] = outcome(apis.take_plain_result)
    results["raises"] = outcome(apis.take_and_raise, torch.ones(2))
    for name, call in native_calls(found):
        results[name] = outcome(call)
    results["last"] = outcome(apis.take_last, torch.ones(3))
    for name, value in found.items():
        results[f"{name} afterwards"] = describe(value)

    if debugger:
        debugger.stop()
        debugger.step()
        # A second step shows that nothing was left broken.
        debugger.start()
        torch.add(torch.ones(2), 1)
        apis.take_last(torch.ones(3))
        debugger.stop()
        debugger.step()
    pathlib.Path(options.out).write_text(json.dumps(results))


if __name__ == "__main__":
    main()
