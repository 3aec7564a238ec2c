"""Runs one case of test_capture.py: python calls.py CASE OUT. Prints `said JSON`."""

import importlib.abc
import json
import os
import pathlib
import sys
import types

if os.environ.get("WITHOUT_TORCH"):

    class NoTorch(importlib.abc.MetaPathFinder):
        def find_spec(self, name, path=None, target=None):
            if name.partition(".")[0] == "torch":
                raise ImportError("torch is not here")

    sys.meta_path.insert(0, NoTorch())

import mindspore as ms
import msprobe.mindspore as tool
import numpy as np
from lines import tell
from mindspore import Tensor, mint, nn, ops
from msprobe.mindspore import PrecisionDebugger

ms.set_context(mode=ms.PYNATIVE_MODE)
ms.set_device("CPU")


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Dense(4, 4), nn.Dense(4, 2)

    def construct(self, x):
        return self.second(ops.relu(self.first(x)))


def configure(out, level="mix", task="statistics", section=None, **fields):
    path = pathlib.Path(out, "config.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"task": task, "level": level, "dump_path": out, task: section or {}, **fields}))
    return PrecisionDebugger(config_path=path)


def train(debugger, steps=1, net=None):
    net = net or Net()
    step = ms.value_and_grad(net, None, net.trainable_params())
    x = Tensor(np.ones((3, 4), np.float32))
    for _ in range(steps):
        debugger.start(net)
        step(x)
        debugger.stop()
        debugger.step()
    return net


def say(value):
    tell("said", json.dumps(value))


def abs_without_kernel(tensor):
    """A CPU has none for bfloat16: the call is recorded, and raises."""
    try:
        mint.abs(tensor)
    except TypeError:
        return
    raise AssertionError("a CPU has this kernel; take another operator")


def bfloat16(out):
    debugger = configure(out, section={"summary_mode": "md5"})
    debugger.start(Net())
    abs_without_kernel(ops.cast(Tensor(np.array([1, -2, 3], np.float32)), ms.bfloat16))
    debugger.stop()
    debugger.step()


def tensors(out):
    debugger = configure(out, task="tensor", level="L1")
    debugger.start()
    half = ops.cast(Tensor(np.array([1.5, -2, 3], np.float32)), ms.bfloat16)
    abs_without_kernel(half)
    mint.abs(Tensor(np.arange(3), ms.int64))
    mint.mul(Tensor(np.array(2.0, np.float32)), Tensor(np.array([True, False])))
    debugger.stop()
    debugger.step()


def in_place(out):
    """The memory of a tensor is written after it was recorded."""
    debugger = configure(out, level="L1", section={"list": ["abs"]})
    debugger.start()
    x = ms.Parameter(Tensor(np.array([1.0, 2.0], np.float32)), name="x")
    for _ in range(5):
        mint.abs(x)
        ops.assign_add(x, Tensor(np.ones(2, np.float32)))
    debugger.stop()
    debugger.step()
    say(x.asnumpy().tolist())


def saved(out):
    debugger = configure(out, level="debug")

    def net(x):
        y = mint.tanh(x)
        PrecisionDebugger.save(y, "y")
        PrecisionDebugger.save({"a": [y, 3]}, "nest", save_backward=False)
        PrecisionDebugger.save(object(), "wrong")
        return mint.sum(mint.mul(y, y))

    for _ in range(2):
        ms.grad(net)(Tensor(np.array([0.5, 1.0], np.float32)))
        debugger.step()


def callback(out):
    debugger = configure(out, level="L0")

    def rows():
        for _ in range(2):
            yield np.ones(4, np.float32), np.zeros(2, np.float32)

    net = Net()
    dataset = ms.dataset.GeneratorDataset(rows, ["x", "y"], shuffle=False).batch(1)
    model = ms.train.Model(net, nn.MSELoss(), nn.SGD(net.trainable_params(), 0.1))
    model.train(1, dataset, callbacks=[tool.MsprobeStep(debugger)], dataset_sink_mode=False)


def init_step(out):
    debugger = configure(out, level="L1")
    run_context = types.SimpleNamespace(original_args=lambda: types.SimpleNamespace(cur_step_num=7))
    tool.MsprobeInitStep().on_train_begin(run_context)
    debugger.start()
    mint.abs(Tensor([1.0]))
    debugger.stop()
    debugger.forward_backward_dump_end()
    debugger.step()


def custom(out):
    module = types.ModuleType("mymod")
    original = module.double = lambda x: x * 2
    debugger = configure(out, level="L1")
    debugger.register_custom_api(module, "double")
    debugger.start()
    module.double(Tensor([1.0]))
    debugger.stop()
    debugger.step()
    debugger.restore_custom_api(module, "double")
    say(module.double is original)


def put_back(out):
    before = [mint.abs, ops.relu, vars(nn.Cell)["__call__"], vars(Tensor).get("astype"), Tensor.__add__]
    debugger = configure(out)
    train(debugger)
    after = [mint.abs, ops.relu, vars(nn.Cell)["__call__"], vars(Tensor).get("astype"), Tensor.__add__]
    say([left is right for left, right in zip(before, after)])


def faults(out):
    """Whatever fails on our side, the program goes on and gets its own errors."""
    debugger = configure(out, level="L1")
    debugger.start()
    debugger._calls.agent.recorder  # the capture is there
    said = []
    try:
        mint.abs("a text")
    except TypeError as error:
        said.append(type(error).__name__)
    import msprobe.mindspore._gradients as gradients

    gradients.Passage.enter = gradients.Passage.leave = lambda self, value: 1 / 0
    said.append(float(ms.grad(lambda x: mint.sum(mint.mul(x, x)))(Tensor([3.0])).asnumpy()[0]))
    debugger.stop()
    debugger.step()
    say(said)


def program_errors(out):
    """What MindSpore raises for the program's operators, at whatever waits for them first."""
    table = Tensor(np.ones((3, 2), np.float32))

    class Looks(nn.Cell):
        def construct(self, index):
            return ops.gather(table, index, 0)

    looks = Looks()

    def looked_up(x):
        return looks(Tensor([9], ms.int32)) + x[0, 0]

    def unused(x):
        ops.gather(table, Tensor([9], ms.int32), 0)
        return ops.relu(x)

    def unregistered(x):
        mint.nn.functional.gelu(x)
        return ops.relu(x)

    programs = [looked_up, unused, unregistered]
    programs += [lambda x, each=each: ms.grad(lambda y: each(y * 1).sum())(x) for each in programs]
    debugger = configure(out) if os.environ.get("WITH_DEBUGGER") else None
    said = []
    for each in programs:
        if debugger:
            debugger.start(looks)
        try:
            said.append(each(Tensor(np.ones((3, 4), np.float32))).asnumpy().tolist())
        except RuntimeError as error:
            said.append(str(error).partition("\n")[0])
        if debugger:
            debugger.stop()
            debugger.step()
    said.append(ops.relu(Tensor([-1.0, 2.0])).asnumpy().tolist())
    say(said)


def cell_writes(out):
    class Zero(nn.Cell):
        def construct(self, x):
            x[0] = 0.0
            return x

    class Outside(nn.Cell):
        """Writes into its argument, but not through it."""

        def construct(self, x):
            self.kept[0] = 1.0
            return x * 1

    class Named(nn.Cell):
        def construct(self, x):
            return {"twice": x * 2}

    class Writes(nn.Cell):
        def __init__(self):
            super().__init__()
            self.zero, self.weight = Zero(), ms.Parameter(Tensor([2.0, 3.0]), name="weight")
            self.outside, self.named = Outside(), Named()

        def construct(self, x):
            h = x * self.weight
            self.zero(h)
            self.outside.kept = k = x * self.weight
            self.outside(k)
            return (h * h).sum() + (k * self.named(k)["twice"]).sum()

    net, said = Writes(), []
    step = ms.value_and_grad(net, None, net.trainable_params())
    debugger = configure(out)
    for captured in (False, True):
        if captured:
            debugger.start(net)
        value, (gradient,) = step(Tensor([1.0, 1.0]))
        said.append([float(value.asnumpy()), gradient.asnumpy().tolist()])
    debugger.stop()
    say(said)


def changes(out):
    """Its configuration becomes what MindSpore refuses."""
    debugger = configure(out, dump_enable=True)
    net = train(debugger)
    for fields in ({"level": "L2"}, {"task": "overflow_check"}, {"backward": "exact"}, {}):
        path = pathlib.Path(out, "config.json")
        written = {"task": "statistics", "level": "mix", "dump_path": out, "dump_enable": True, **fields}
        path.with_suffix(".new").write_text(json.dumps(written))
        path.with_suffix(".new").replace(path)
        debugger._file._next_poll = 0  # it is looked at now, not a while later
        train(debugger, net=net)


def structure(out):
    train(configure(out, level="L0", task="structure"))


def thawed(out):
    """A weight needs no gradient in step 0, and one from step 1 on."""
    debugger = configure(out, level="L0")
    net = Net()
    net.second.weight.requires_grad = False
    train(debugger, net=net)
    net.second.weight.requires_grad = True
    train(debugger, net=net)


def filters(out):
    train(configure(out, level="mix", section={"list": ["relu"], "data_mode": ["forward"]}, step=[1]), steps=3)


def graph_mode(out):
    ms.set_context(mode=ms.GRAPH_MODE)
    say_refusal(out, task=os.environ.get("TASK", "statistics"))


def kernels(out):
    """What MindSpore is told by some configurations of level L2; then two steps, of which it dumps the second."""
    from msprobe.mindspore._kernel_dump import KernelConfigFile, KernelDump

    def told(name, **fields):
        path = pathlib.Path(out, f"{name}.json")
        path.write_text(json.dumps({"level": "L2", "dump_path": f"{out}/{name}", **fields}))
        file = KernelConfigFile(path, None, None, None, None)
        try:
            KernelDump.of(file.asked(), file.parse())
        except tool.MsprobeError as error:
            return str(error)
        (written,) = (
            os.environ[name] for name in ("MINDSPORE_DUMP_CONFIG", "MS_ACL_DUMP_CFG_PATH") if name in os.environ
        )
        return [pathlib.Path(written).name, json.loads(pathlib.Path(written).read_text())]

    ms.set_context(mode=ms.GRAPH_MODE)
    pathlib.Path(out).mkdir()
    asked = {
        "plain": {"task": "statistics"},
        "chosen": {
            "task": "statistics",
            "rank": [0, 1],
            "step": [1, "3-4"],
            "async_dump": True,
            "statistics": {
                **{"list": ["name-regex(ReLU)"], "data_mode": ["output"], "summary_mode": ["mean", "md5"]},
                **{"device": "device", "precision": "low"},
            },
        },
        "exception": {"task": "exception_dump", "step": [1]},
        "overflow": {"task": "overflow_check", "overflow_check": {"check_mode": "atomic"}},
        "level": {"task": "exception_dump", "level": "L1"},
        "task": {"task": "structure"},
        "device": {"task": "statistics", "statistics": {"device": "npu"}},
        "summary": {"task": "statistics", "statistics": {"summary_mode": ["median"]}},
        "schedule": {"task": "statistics", "schedule": {"wait": 1, "active": 1}},
        "select": {"task": "statistics", "select": "Linear"},
    }
    files = {name: told(name, **fields) for name, fields in asked.items()}
    ms.set_context(jit_level="O2")
    files["acl"] = told("acl", **asked["chosen"])
    ms.set_context(jit_level="O0")
    debugger = configure(out, level="L2", task="tensor", step=[1])
    net = Net()
    step = ms.value_and_grad(net, None, net.trainable_params())
    outputs = []
    for number in (1.0, 2.0):
        debugger.start(net)
        output, _ = step(Tensor(np.full((3, 4), number, np.float32)))
        debugger.stop()
        debugger.step()
        outputs.append(output.asnumpy().tolist())
    say([files, outputs])


def tokens(out):
    """Of four forward passes the second and third, whose words are joined by XOR."""
    section = {"summary_mode": "xor", "list": ["first"]}
    debugger = configure(out, level="L0", section=section, async_dump=True)
    net = Net()
    debugger.start(net, token_range=[1, 2])
    for number in range(4):
        net(Tensor((np.arange(12, dtype=np.float32) + number).reshape(3, 4)))
    debugger.stop()
    debugger.step()


def for_torch(out):
    series = {"model_series": ["weights"]}
    load = {"path": "/", "modules": ["Cell.fc.Dense.forward.0"]}
    say(
        [
            refusal(configure, out, capture="all"),
            refusal(configure, out, task="monitor", section=series),
            refusal(configure, out, load=load),
            refusal(configure, out, level="L9"),
            refusal(configure, out, task="nan_dump"),
        ]
    )


def say_refusal(out, **fields):
    say(refusal(configure, out, **fields))


def refusal(call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except tool.MsprobeError as error:
        return str(error)


def files(out):
    def net(x):
        y = mint.mul(x, x)
        tool.save(out, "y", y)
        return mint.sum(tool.save_grad(out, "y", y))

    ms.grad(net)(Tensor(np.array([2.0], np.float32)))
    tool.step()
    tool.save(out, "pair", [Tensor([1.0]), Tensor([2.0])])


def imported(out):
    say(["torch" in sys.modules, sorted(tool.__all__)])


globals()[sys.argv[1]](sys.argv[2])
