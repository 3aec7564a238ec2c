"""The command of the established tool's name: ours under it, and one clear line for what it had and this does not."""

from __future__ import annotations

import sys
from typing import NoReturn

from msprobe_client.exit_codes import EXIT_USAGE

_EXPORT = "export the run (`msprobe-client export RUN --output DIR`) and use mindstudio-probe's own"
_ELSEWHERE = "use mindstudio-probe's own, in an environment apart from this one"

_OLDER_COMPARE = "not part of this version; use `msprobe compare -tp TARGET -gp GOLDEN -o OUTPUT`"

# What to use instead of a command of the established tool.
_ABSENT = {
    "acc_check": f"{_EXPORT} `msprobe acc_check`",
    "multi_acc_check": f"{_EXPORT} `msprobe multi_acc_check`",
    "merge_result": _ELSEWHERE,
    "overflow_check": "use the NaN and Inf columns of `msprobe-client steps RUN` and `msprobe-client records RUN`",
    "config_check": _ELSEWHERE,
    "api_precision_compare": _ELSEWHERE,
    "graph_visualize": f"{_EXPORT} `msprobe graph_visualize`, which reads it",
    "data2db": f"{_EXPORT} `msprobe data2db`",
    "parse": "use `msprobe-client tensor RUN NAME -o FILE.npy` for tensors that were captured",
    "offline_dump": _ELSEWHERE,
    "install_deps": "use pip: `pip install msprobe-client`",
    # Names that older versions had.
    "run_ut": f"{_EXPORT} `msprobe acc_check`",
    "multi_run_ut": f"{_EXPORT} `msprobe multi_acc_check`",
    "graph": f"{_EXPORT} `msprobe graph_visualize`",
    "run_overflow_check": "use the NaN and Inf columns of `msprobe-client steps RUN` and `msprobe-client records RUN`",
    "nan_analyze": "use the NaN and Inf columns of `msprobe-client steps RUN` and `msprobe-client records RUN`",
}


def main(arguments: list[str] | None = None) -> NoReturn:
    given = sys.argv[1:] if arguments is None else arguments
    # Older versions named the framework first: msprobe -f pytorch compare ...
    words = given[2:] if given[:1] in (["-f"], ["--framework"]) else given
    if words and words[0] in _ABSENT:
        print(f"msprobe: {words[0]} is not part of this version; {_ABSENT[words[0]]}", file=sys.stderr)
        sys.exit(EXIT_USAGE)
    if words[:1] == ["compare"] and words is not given:
        print(f"msprobe: -f {given[1]} compare is {_OLDER_COMPARE}", file=sys.stderr)
        sys.exit(EXIT_USAGE)
    if words[:1] == ["compare"]:
        from msprobe_client.compare_command import main as compare

        compare(words[1:])
    from msprobe_client.commands import main as client_main

    client_main(words, name="msprobe")
