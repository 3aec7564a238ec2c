#!/usr/bin/env python3
"""Trains LeNet in MindSpore twice, the second time with a fault in one cell's weight, and finds the cell.

python demo/demo_mindspore.py --output DIR --python PYTHON_WITH_MINDSPORE
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path

LENET = Path(__file__).with_name("lenet_mindspore.py")
FAULT = "conv2"


def train(python: Path, output: Path, fault: str) -> None:
    shutil.rmtree(output, ignore_errors=True)
    subprocess.run([python, LENET, output, fault], check=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True, help="a directory for the two dumps")
    parser.add_argument("--python", type=Path, required=True, help="the interpreter of an environment with MindSpore")
    options = parser.parse_args()
    good, bad = options.output / "good", options.output / "bad"
    print("LeNet as it is:", flush=True)
    train(options.python, good, "")
    print(f"LeNet with a fault in the weight of {FAULT}:", flush=True)
    train(options.python, bad, FAULT)
    client = Path(sys.executable).with_name("msprobe-client")
    command = [client, "compare", good, bad, "--limit", "0"]
    compared = subprocess.run(command, text=True, stdout=subprocess.PIPE, check=False).stdout.splitlines()
    weights = [line.split() for line in compared if re.match(r"differs +Cell\.\S+\.parameters\.\w+ +0 ", line)]
    print("\n".join(line for line in compared if " compared: " in line or line.startswith("first difference")))
    for _, name, *_ in weights:
        print(f"a parameter differs in the first step already: {name}")
    return 0 if [name.split(".")[1] for _, name, *_ in weights] == [FAULT] else 1


if __name__ == "__main__":
    sys.exit(main())
