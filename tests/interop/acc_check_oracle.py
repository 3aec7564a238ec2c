"""python acc_check_oracle.py REQUEST.json, in mindstudio-probe's environment: its acc_check on the CPU, as it is here.

It knows NPUs and GPUs alone, so that its device is set to the CPU. REQUEST: a list of
{"command": "acc_check" or "api_precision_compare", "arguments": [...], "live": whether standards go by operator}.
Since 26.0 it stops before the operator's name for every float; live gives it back the table that it ships.
"""

import contextlib
import json
import pathlib
import sys
import types

import torch

torch.cuda.set_device = lambda *_: None
torch.cuda.empty_cache = lambda: None

from msprobe.core.acc_check.acc_check_cli import acc_check_cli  # noqa: E402
from msprobe.pytorch.api_accuracy_checker.acc_check import acc_check, acc_check_utils  # noqa: E402
from msprobe.pytorch.api_accuracy_checker.compare import api_precision_compare  # noqa: E402
from msprobe.pytorch.api_accuracy_checker.precision_standard.standard_register import StandardRegistry  # noqa: E402

acc_check.current_device = acc_check_utils.current_device = "cpu"
# Most of its time: it collects garbage, and looks up every operator of torch, twice for each call.
acc_check.gc = types.SimpleNamespace(collect=lambda: None)
register = acc_check_utils.get_api_register()
register.initialize_hook(None)
register.initialize_hook = lambda _: None
acc_check_utils.get_api_register = lambda: register
category = StandardRegistry._get_standard_category


def live_category(self, api_name, out_dtype, in_dtype):
    for name, operators in self.api_standard_function_map.items():
        if api_name in operators and "int" not in str(out_dtype) and "bool" not in str(out_dtype):
            return name
    return category(self, api_name, out_dtype, in_dtype)


for request in json.loads(pathlib.Path(sys.argv[1]).read_text()):
    StandardRegistry._get_standard_category = live_category if request["live"] else category
    if request["command"] == "acc_check":
        acc_check_cli(request["arguments"])
    else:
        sys.argv[1:] = request["arguments"]
        with contextlib.suppress(SystemExit):
            api_precision_compare._api_precision_compare()
