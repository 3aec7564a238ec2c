"""Configurations in which every two settings of two switches occur together: all pairs, not all products.

The programs are those of the one-layer llama in families.py: one pass, and one training step.
"""

import itertools

SWITCHES = {
    "program": ("one_layer_forward", "one_layer_train"),
    "level": ("L0", "L1", "mix"),
    "task": ("statistics", "tensor", "structure"),
    "summary_mode": ("statistics", "md5", "xor"),
    "data_mode": ("all", "", "forward", "backward", "input", "output", "forward input", "backward output"),
    "filter": ("", "list of an API", "list of a module", "list of a direction", "scope"),
    "risk_level": ("FOCUS", "CORE", "ALL", ""),
    "extra_info": (True, False),
    "slice": ("", "middle", "two"),
    "async_dump": (False, True),
    "tensor_list": (False, True),
}
LISTS = {
    "list of an API": ["linear", "Linear"],
    "list of a module": ["layers.0.mlp"],
    "list of a direction": ["forward"],
}
SLICES = {
    "middle": [{"dim": 1, "begin": 1, "end": 4}],
    "two": [{"dim": 0, "begin": 0, "end": 2}, {"dim": 1, "begin": 2}],
}
SCOPES = {
    "L0": ["Module.model.layers.0.LlamaDecoderLayer.forward.0"] * 2,
    "L1": ["Functional.linear.1.forward", "Functional.linear.5.forward"],
    "mix": ["Functional.linear.1.forward", "Functional.linear.5.forward"],
}


def possible(case):
    """False for settings that mindstudio-probe refuses together, or that mean nothing together."""
    task, summary, training = (case.get(name) for name in ("task", "summary_mode", "program"))
    if case.get("async_dump") and summary == "md5":
        return False  # refused
    if case.get("async_dump") and task == "tensor" and not case.get("filter", "list").startswith("list"):
        return False  # refused: needs a list
    if task == "structure" and (case.get("level") == "L1" or summary not in (None, "statistics")):
        return False
    if task == "structure" and (case.get("slice") or case.get("async_dump")):
        return False
    if case.get("filter") == "list of a module" and case.get("level") == "L1":
        return False  # nothing is left
    if case.get("tensor_list") and task not in (None, "statistics"):
        return False
    # Its checksums of what a step changes in place race (docs/compatibility.md, "checksum-race").
    return not (summary == "md5" and training == "one_layer_train")


def all_pairs():
    """A short list of cases, dictionaries of SWITCHES' names, that hold every possible pair. Always the same."""
    names = list(SWITCHES)
    wanted = {
        ((a, x), (b, y))
        for a, b in itertools.combinations(names, 2)
        for x in SWITCHES[a]
        for y in SWITCHES[b]
        if possible({a: x, b: y})
    }
    cases = []
    while wanted:
        case = dict(min(wanted, key=repr))
        for name in names:
            if name not in case:
                case[name] = max(
                    (value for value in SWITCHES[name] if possible({**case, name: value})),
                    key=lambda value, name=name: sum(pair in wanted for pair in pairs_with(case, name, value)),
                )
        case = {name: case[name] for name in names}
        wanted -= set(pairs_of(case))
        cases.append(case)
    return cases


def pairs_of(case):
    return [(a, b) for a, b in itertools.combinations(case.items(), 2)]


def pairs_with(case, name, value):
    order = list(SWITCHES)
    for other, setting in case.items():
        pair = ((other, setting), (name, value))
        yield pair if order.index(other) < order.index(name) else pair[::-1]


def name_of(number, case):
    return f"pair_{number:02}_{case['program']}_{case['task']}_{case['level']}"


PAIRS = {name_of(number, case): case for number, case in enumerate(all_pairs())}


def cases(make):
    return {name: as_case(make, case) for name, case in PAIRS.items()}


def as_case(make, case):
    section = {"data_mode": case["data_mode"].split(), "list": LISTS.get(case["filter"], [])}
    if case["filter"] == "scope":
        section["scope"] = SCOPES[case["level"]]
    if case["task"] != "structure":
        section["summary_mode"] = case["summary_mode"]
    if case["slice"]:
        section["slice"] = SLICES[case["slice"]]
    if case["tensor_list"]:
        section["tensor_list"] = ["linear", "mlp"]
    top = {name: case[name] for name in ("risk_level", "extra_info", "async_dump")}
    return make.Case(case["program"], case["level"], task=case["task"], section=section, top=top)
