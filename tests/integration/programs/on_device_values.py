"""Saves tensors of many types and layouts twice, from the host and from the device: NAME_host and NAME_device.

npu is held until everything has been saved. Each tensor is overwritten right behind its reading.
--steps: so many times over.
"""

import argparse
import contextlib
import math

import npu
import torch

BIG = 200_000  # elements: too large for a slab, so reduced on the device where its type can be


def floats(dtype, seed, scale=1.0, count=BIG):
    return (torch.randn(count, generator=torch.Generator().manual_seed(seed)) * scale).to(dtype)


def with_values(tensor, *values):
    for place, value in enumerate(values):
        tensor[place * 7 + 3] = value
    return tensor


def cases():
    inf, nan = math.inf, math.nan
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
        name = str(dtype).removeprefix("torch.")
        yield name, floats(dtype, 1)
        yield f"{name}_small", floats(dtype, 2, count=50)
        yield f"{name}_nan", with_values(floats(dtype, 3), nan, inf, -inf, 0.0, nan)
        yield f"{name}_inf", with_values(floats(dtype, 4), inf, inf)
        yield f"{name}_both_inf", with_values(floats(dtype, 5), -inf, inf)
        yield f"{name}_all_nan", torch.full((BIG,), nan, dtype=dtype)
        yield f"{name}_zeros", torch.zeros(BIG, dtype=dtype)
        yield f"{name}_constant", torch.full((BIG,), 3.0, dtype=dtype)
        yield f"{name}_negative", -floats(dtype, 6).abs() - 1
        yield f"{name}_off_centre", floats(dtype, 7, scale=0.5) + 1000
        yield f"{name}_transposed", floats(dtype, 8).view(400, 500).t()
        yield f"{name}_strided", floats(dtype, 9, count=2 * BIG)[::2]
        yield f"{name}_channels_last", floats(dtype, 10).view(5, 8, 50, 100).to(memory_format=torch.channels_last)
        yield f"{name}_expanded", floats(dtype, 11, count=50_000).view(1, 50_000).expand(6, 50_000)
        yield f"{name}_pieces", floats(dtype, 12, count=3_000_017)
        yield f"{name}_strided_pieces", floats(dtype, 13, count=2_500_000).view(2500, 1000)[:, ::2]
    yield "float16_large", floats(torch.float16, 20, scale=10_000)
    yield "float32_huge", floats(torch.float32, 21, scale=1e37)
    yield "float32_tiny", floats(torch.float32, 22, scale=1e-37)
    yield "bfloat16_huge", floats(torch.bfloat16, 23, scale=1e37)
    for dtype in (torch.int8, torch.int16, torch.int32, torch.int64):
        limits = torch.iinfo(dtype)
        whole = torch.randint(limits.min, limits.max, (BIG,), generator=torch.Generator().manual_seed(30), dtype=dtype)
        name = str(dtype).removeprefix("torch.")
        yield name, with_values(whole, limits.max, limits.min, 0)
        yield f"{name}_negative", -torch.arange(1, BIG + 1).remainder(90).add(1).to(dtype)
        yield f"{name}_pieces", torch.arange(2_200_000).remainder(100).to(dtype)
    yield "uint8", torch.arange(BIG).remainder(256).to(torch.uint8)
    yield "uint16", torch.arange(BIG).remainder(60_000).to(torch.uint16)
    yield "uint32", torch.arange(BIG).to(torch.uint32)
    yield "bool", torch.arange(BIG).remainder(3).eq(0)
    yield "bool_false", torch.zeros(BIG, dtype=torch.bool)
    yield "complex64", torch.complex(floats(torch.float32, 40), floats(torch.float32, 41))
    yield "complex64_conj", torch.complex(floats(torch.float32, 42), floats(torch.float32, 43)).conj()
    yield "float32_neg_view", torch.complex(floats(torch.float32, 44), floats(torch.float32, 45)).conj().imag
    yield "float8_e4m3fn", floats(torch.float8_e4m3fn, 46)
    yield "scalar", torch.tensor(2.5)
    yield "scalar_int", torch.tensor(7)
    yield "empty", torch.empty(0, 3)


def on_device(tensor, device):
    """The same elements in the same layout, lazy bits and all."""
    if tensor.is_conj():
        return tensor.conj().to(device).conj()
    if tensor.is_neg():
        return torch._neg_view((-tensor).to(device))
    if 0 in tensor.stride():
        return tensor[:1].to(device).expand(tensor.shape)
    there = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device)
    return there.copy_(tensor)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", required=True)
    parser.add_argument("--device", choices=("npu", "cuda"), default="npu")
    parser.add_argument("--steps", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(1)
    device = npu.load() if options.device == "npu" else torch.device("cuda:0")
    from msprobe.pytorch import PrecisionDebugger

    debugger = PrecisionDebugger(config_path=options.config)
    for _ in range(options.steps):
        pairs = [(name, tensor, on_device(tensor, device)) for name, tensor in cases()]
        torch.accelerator.synchronize()
        if device.type == "npu":
            npu.reset()
        with npu.Held() if device.type == "npu" else contextlib.nullcontext():
            for name, tensor, there in pairs:
                PrecisionDebugger.save(there, f"{name}_device", save_backward=False)
                PrecisionDebugger.save(tensor, f"{name}_host", save_backward=False)
                if not (there.is_neg() or there.is_conj() or 0 in there.stride() or "float8" in name):
                    there.fill_(1)  # behind the reading: it does no harm
        if device.type == "npu":
            counters = npu.counters()
            assert (counters.synchronizations, counters.waiting_device_to_host) == (0, 0), counters
        debugger.step()
        assert debugger.wait()


if __name__ == "__main__":
    main()
