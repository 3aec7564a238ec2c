"""Grafts modules of a small net in turn, and says what came: a line of JSON for each."""

import copy
import json
import sys

import torch
from msprobe.pytorch import MsprobeError, PrecisionDebugger


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(4, 6)
        self.batch = torch.nn.BatchNorm1d(6)
        self.drop = torch.nn.Dropout(0.5)
        self.second = torch.nn.Linear(6, 2).bfloat16()

    def forward(self, x):
        return self.second(self.batch(self.first(x)).bfloat16())


class Variance(torch.nn.Module):
    """Of numbers far from 0, by a formula that loses all digits of float32."""

    def forward(self, x):
        return x.square().mean(-1, keepdim=True) - x.mean(-1, keepdim=True).square()


class Spread(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lift = torch.nn.Linear(4, 6)
        self.variance = Variance()
        self.out = torch.nn.Linear(1, 2)

    def forward(self, x):
        return self.out(self.variance(self.lift(x) + 3000))


def say(case, **what):
    sys.stdout.write(json.dumps({"case": case} | what) + "\n")  # at once: the agent logs from other threads


def main():
    torch.manual_seed(0)
    net, x = Net(), torch.randn(3, 4)
    as_it_was = {name: each.clone() for name, each in net.state_dict().items()}
    debugger = PrecisionDebugger(sys.argv[sys.argv.index("--config") + 1])
    golden = debugger.config.dump_path

    def step():
        for parameter in net.parameters():
            parameter.grad = None
        debugger.start(net)
        y = net(x)
        y.float().square().sum().backward()
        debugger.stop()
        debugger.step()
        return y

    right = step()
    gradients = [each.grad.clone() for each in net.parameters()]
    assert debugger.wait()
    running = net.batch.running_mean.clone()
    with torch.no_grad():
        net.first.weight[:, 0].add_(1)
        net.second.bias.add_(1)

    wrong = step()
    say("wrong", equal=torch.equal(wrong, right), moved=not torch.equal(net.batch.running_mean, running))

    debugger.graft(["first", "Module.second.Linear"], golden, step=0)
    y = step()
    straight = (2 * y.detach().float()).sum(0)
    say(
        "stored",
        equal=torch.equal(y, right),
        dtype=str(y.dtype),
        straight=torch.allclose(net.second.bias.grad.float(), straight, rtol=2e-2),
        reached=all(float(each.grad.abs().sum()) > 0 for each in (net.first.weight, net.second.weight)),
    )

    before = net.batch.running_mean.clone()
    debugger.graft("*", golden, step=0, inherit=True)
    y = step()
    say("inherit", equal=torch.equal(y, right), once=not torch.equal(net.batch.running_mean, before))

    debugger.graft("second", golden, step=0, inherit=True)
    y = step()
    say("one of two", equal=torch.equal(y, right), nearer=bool((y - right).norm() < (wrong - right).norm()))

    net.load_state_dict(as_it_was)
    debugger.graft(["second"], "float64")
    y = step()
    say("float64", dtype=str(y.dtype), near=torch.allclose(y.float(), right.float(), rtol=1e-2, atol=1e-2))

    debugger.graft([], None)
    y = step()
    same = all(torch.equal(each.grad, was) for each, was in zip(net.parameters(), gradients))
    say("ended", equal=torch.equal(y, right), same=same)

    debugger.graft(["drop", "second"], golden, step=7)
    y = step()
    say("no such step", equal=torch.equal(y, right))

    refused = []
    for names, source, more in (
        (["secnd"], golden, {"step": 0}),
        (["second"], "nowhere", {}),
        (3, golden, {}),
        (["second"], 3, {}),
        (["second"], "float64", {"inherit": True}),
        (["second"], golden, {"step": -1}),
    ):
        try:
            debugger.graft(names, source, **more)
            debugger.start(net)
            refused.append("")
        except MsprobeError as error:
            refused.append(str(error))
    say("refused", messages=refused)
    debugger.graft([], None)
    debugger.start(net)
    bisected = []
    for ends in (False, True):
        if ends:
            debugger.stop()
            debugger.step()
        for distance, names in ((lambda: 1.0, "*"), (lambda: 1.0, "nobody"), (lambda: 0.0, "*")):
            try:
                found = debugger.bisect(distance, golden, model=net, limit=0.5, names=names, step=0)
                bisected.append(f"found {found.names} in {len(found.trials)}")
            except MsprobeError as error:
                bisected.append(str(error))
    say("bisected", messages=bisected)

    spread = Spread()
    exact = copy.deepcopy(spread).double()(x.double()).detach()
    found = debugger.bisect(
        lambda: (spread(x).double() - exact).norm() / exact.norm(), "float64", model=spread, limit=1e-2
    )
    say("precision", names=found.names, distances=[each.distance for each in found.trials])
    debugger.wait()


main()
