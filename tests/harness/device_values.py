"""Compares a device's numbers of tensors with the host's (on_device_values.py)."""

import json
import math

from harness.dumps import embedded_data_directory, leaves
from harness.processes import run

# Sums are taken in floats on the device and in doubles on the host. A mean's error is one of the elements' size.
ROUNDING = 1e-5


def close(ours, theirs, scale):
    if not all(isinstance(number, int | float) and math.isfinite(number) for number in (ours, theirs)):
        return repr(ours) == repr(theirs)
    return abs(ours - theirs) <= ROUNDING * scale


def numbers_of(leaf):
    """Name and value of each number of an extended record."""
    for key, value in leaf["extended"].items():
        if isinstance(value, dict):
            yield from ((f"{key}.{inner}", number) for inner, number in value.items())
        else:
            yield key, value


def extended_values(dump_path, step, ask, client, output):
    """The records that on_device_values.py saved in a step, with every number in the store."""
    data_dir = embedded_data_directory(dump_path)
    (row,) = ask("runs", data_dir=data_dir)
    run([client, "--data_dir", data_dir, "export", row["run"], "--output", output, "--extended"])
    return json.loads(next((output / f"step{step}").glob("*/debug.json")).read_text())["data"]


def differences_from_host(data, device):
    """Each number of the device that differs from the host's, and the number of records compared."""
    wrong, checked = {}, 0
    for name, record in data.items():
        if "_device." not in name:
            continue
        checked += 1
        ((_, ours),) = leaves(record)
        ((_, theirs),) = leaves(data[name.replace("_device.", "_host.")])
        assert (ours["extended"].pop("device"), theirs["extended"].pop("device")) == (device, "cpu")
        expected = dict(numbers_of(theirs))
        assert dict(numbers_of(ours)).keys() == expected.keys()
        for key, number in numbers_of(ours):
            inexact = key.rpartition(".")[2] in ("Mean", "Norm", "Variance")
            scale = abs(expected[key]) if inexact and expected[key] is not None else 0
            if not close(number, expected[key], scale):
                wrong[f"{name} {key}"] = (number, expected[key])
    return wrong, checked
