"""The command `msprobe`, under mindstudio-probe's name: our commands, and one clear line for those not here."""

from __future__ import annotations

import importlib
import signal
import sys
from typing import NoReturn

from msprobe_client.exit_codes import EXIT_USAGE

_ELSEWHERE = "use mindstudio-probe's own, in an environment apart from this one"

# Commands of mindstudio-probe that are here: each is main(arguments) of a module.
_PRESENT = {
    "compare": "compare_command",
    "overflow_check": "overflow_command",
    "nan_analyze": "overflow_command",  # its name in 8.x
    "merge_result": "merge_command",
    "graph_visualize": "graph_command",
    "data2db": "trend_command",
    "config_check": "config_check_command",
    "acc_check": "acc_check_command",
    "multi_acc_check": "multi_acc_check_command",
    "api_precision_compare": "precision_compare_command",
    "run_overflow_check": "overflow_replay_command",  # of the 1.0 line
    "op_generate": "op_generate_command",  # of 1.2 to 8.3
    "parse": "parse_command",
    "run_ut": "acc_check_command",  # its name in the 1.0 line
    "multi_run_ut": "multi_acc_check_command",
}

# What to use instead of a command of mindstudio-probe.
_ABSENT = {
    "offline_dump": "use `msprobe-client onnx MODEL --input x=x.npy --run NAME`; models other than .onnx need CANN",
    "install_deps": "use pip: `pip install msprobe-client`",
    # Names that older versions had.
    "graph": "use `msprobe graph_visualize -tp DIR [-gp DIR] -o OUT`",
    "free_benchmark": "use `msprobe-client sensitivity RUN` for a capture with task tensor",
    "grad_probe": _ELSEWHERE,
    "code_mapping": _ELSEWHERE,
}


def main(arguments: list[str] | None = None) -> NoReturn:
    given = sys.argv[1:] if arguments is None else arguments
    # Older versions named the framework first: msprobe -f pytorch compare ...
    older = given[:1] in (["-f"], ["--framework"])
    words = given[2:] if older else given
    if words and words[0] in _ABSENT:
        print(f"msprobe: {words[0]} is not part of this version; {_ABSENT[words[0]]}", file=sys.stderr)
        sys.exit(EXIT_USAGE)
    if older and words[:1] == ["compare"] and not {"-tp", "--target_path", "-gp", "--golden_path"} & set(words):
        from msprobe_client.compat.v1_compare_command import main as v1_compare

        v1_compare(given[1], words[1:])
    if older and words[:1] == ["parse"]:
        from msprobe_client.compat.parse_shell import main as parse_shell

        parse_shell(words[1:])
    if words and words[0] in _PRESENT:
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C, as for msprobe-client
        importlib.import_module(f"msprobe_client.compat.{_PRESENT[words[0]]}").main(words[1:])
    from msprobe_client.commands import main as client_main

    client_main(words, name="msprobe")
