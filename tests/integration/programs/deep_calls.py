"""Prints the MiB that capture adds to the process at most: a function in a function, each with a line of its own and a
call that is captured. python deep_calls.py CONFIG DEPTH DIRECTORY."""

import importlib.util
import pathlib
import sys

import torch
from memory_held import status_mib
from say import say


def nested(depth: int, directory: str):
    """A function that calls another, and so on; the innermost calls nothing more."""
    lines = ["import torch"]
    for level in range(depth):
        lines += [f"def level_{level}(x):", "    x = torch.relu(x)", f"    return level_{level + 1}(x)"]
    lines += [f"def level_{depth}(x):", "    return torch.relu(x)"]
    path = pathlib.Path(directory) / "levels.py"
    path.write_text("\n".join(lines))
    spec = importlib.util.spec_from_file_location("levels", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.level_0


def main() -> None:
    torch.set_num_threads(1)
    depth = int(sys.argv[2])
    sys.setrecursionlimit(depth + 1000)
    call = nested(depth, sys.argv[3])
    x = torch.ones(4)

    from msprobe.pytorch import PrecisionDebugger

    call(x)
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = status_mib("VmHWM")
    debugger = PrecisionDebugger(config_path=sys.argv[1])
    debugger.start()
    call(x)
    debugger.stop()
    debugger.step()
    debugger.wait(120)
    counters = debugger._agent.counters()
    assert counters["fragments_dropped"] == 0 and counters["faults"] == 0, counters
    say("SENT", counters["bytes_sent"] >> 20, "ADDED", round(status_mib("VmHWM") - before, 1))


if __name__ == "__main__":
    main()
