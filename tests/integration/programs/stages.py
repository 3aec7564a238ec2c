"""Calls that pass through stages beside the observer: each case sets some, makes the same calls, and says what came."""

import sys

import torch
from msprobe.pytorch import PrecisionDebugger


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(2, 2, bias=False)
        torch.nn.init.eye_(self.first.weight)

    def forward(self, x):
        return self.first(x)


def doubled(call):
    args = (2 * each if isinstance(each, torch.Tensor) else each for each in call.args)
    return call(*args, **call.kwargs)


def twice(call):
    first = call(*call.args, **call.kwargs)
    again = call(*call.args, **call.kwargs)
    assert torch.equal(first, again)
    return first + again


def answered(call):
    print("CALL", call.name, call.kind, call.direction, call.step, call.token, len(call.args), call.kwargs, flush=True)
    return torch.full((1, 2), 7.0)


def careless(call):
    call(*call.args, **call.kwargs)
    raise ValueError("a mistake in the stage")


def broken(call):
    raise ValueError("a mistake in the stage")


def raised(call):
    try:
        return call(torch.ones(1, 3))
    except RuntimeError as error:
        print("SEEN", type(error).__name__, flush=True)
        raise


kept = []


def keeping(call):
    kept.append(call)
    return call(*call.args)


MODULE, MUL, LINEAR = "Module.first.Linear.forward.0", "Torch.mul.0.forward", "Functional.linear.0.forward"
CASES = {
    "none": [],
    "doubled": [(doubled, [MODULE], False)],
    "doubled behind": [(doubled, [MODULE], True)],
    "doubled apis": [(doubled, [MUL, LINEAR], False)],
    "twice": [(twice, [MODULE], False)],
    "twice api": [(twice, [MUL], False)],
    "answered": [(answered, [MODULE], False)],
    "answered behind": [(answered, [MODULE], True)],
    "careless": [(careless, [MODULE], False)],
    "broken": [(broken, [MODULE], False)],
    "raised": [(raised, [MODULE], False)],
    "keeping": [(keeping, [MODULE], False)],
}


def main():
    case = sys.argv[sys.argv.index("--case") + 1]
    debugger = PrecisionDebugger(sys.argv[sys.argv.index("--config") + 1])
    net, x = Net(), torch.tensor([[1.0, 2.0]], requires_grad=True)
    debugger.start(net)
    for number, (stage, records, behind) in enumerate(CASES[case]):
        debugger._agent.set_stage(f"stage {number}", stage, records=records, behind_observer=behind)
    try:
        out = torch.mul(net(x), x)
        print("OUTPUT", out.tolist(), flush=True)
        out.sum().backward()
    except RuntimeError as error:
        print("RAISED", str(error).splitlines()[0], flush=True)
    debugger.stop()
    debugger.step()
    for call in kept:
        try:
            print("NAME", call.name, flush=True)
        except RuntimeError as error:
            print("KEPT", error, flush=True)
    debugger.wait()


main()
