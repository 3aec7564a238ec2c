"""python check_oracle.py PAIRS.pt ANSWERS.json, in mindstudio-probe's environment: its numbers and words for each pair.

A pair is (operator, output, golden), the golden value of the dtype that acc_check computes in.
"""

import json
import sys
from pathlib import Path

import torch
from msprobe.pytorch.api_accuracy_checker.compare.compare import Comparator
from msprobe.pytorch.api_accuracy_checker.compare.compare_column import CompareColumn
from msprobe.pytorch.api_accuracy_checker.compare.compare_input import CompareInput
from msprobe.pytorch.api_accuracy_checker.precision_standard.absolute_threshold import AbsolutethdCompare
from msprobe.pytorch.api_accuracy_checker.precision_standard.accumulative_error_compare import AccumulativeErrorCompare
from msprobe.pytorch.api_accuracy_checker.precision_standard.benchmark_compare import BenchmarkCompare
from msprobe.pytorch.api_accuracy_checker.precision_standard.ulp_compare import UlpCompare

STANDARDS = {
    "absolute": AbsolutethdCompare,
    "accumulative": AccumulativeErrorCompare,
    "benchmark": BenchmarkCompare,
    "ulp": UlpCompare,
}


class Column(dict):
    """What a standard writes its numbers into."""


def answers(operation, output, golden):
    comparator = Comparator.__new__(Comparator)
    comparator.registry = comparator._register_compare_func()
    status, _, _ = comparator._compare_torch_tensor(operation, golden, output, CompareColumn(), False)
    wide = [each.float() if each.dtype == torch.bfloat16 else each for each in (golden, output)]
    found = {"status": status}
    for name, standard in STANDARDS.items() if output.is_floating_point() else ():
        column = Column()
        given = CompareInput(wide[0].numpy(), wide[1].numpy(), column, output.dtype, None)
        standard(given).compare()
        found[name] = {key: float(value) for key, value in column.items()}
    return found


pairs = torch.load(sys.argv[1], weights_only=True)
Path(sys.argv[2]).write_text(json.dumps([answers(*pair) for pair in pairs]))
