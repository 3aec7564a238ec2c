"""Builds modules from descriptions that are plain JSON, and runs them with and without the agent.

The run without it writes down every call, in the order in which the program makes them: the agent must have seen these.
All tensors are of shape 3 x 4.

A module is {"kind": "node", "children": [...], "ops": [[op, source, other], ...], "returns": KIND, "turns": N}, one of
LEAVES, or {"kind": "alias", "of": N}, the Nth module that was built before. A node calls itself turns times.
"""

import collections

import torch
import torch.nn.functional as F

CALLS = 40  # of modules in one pass; nested loops of calls grow quickly
Outputs = collections.namedtuple("Outputs", "last first")
APIS = {
    "Torch.add": torch.add,
    "Torch.sigmoid": torch.sigmoid,
    "Torch.cat": torch.cat,
    "Torch.split": torch.split,
    "Torch.max": torch.max,
    "Tensor.__add__": lambda a, b: a + b,
    "Tensor.__mul__": lambda a, b: a * b,
    "Tensor.__matmul__": lambda a, b: a @ b,
    "Tensor.add_": lambda a, b: a.add_(b),
    "Torch.clone": torch.clone,
    "Tensor.reshape": lambda a, *shape: a.reshape(*shape),
    "Tensor.transpose": lambda a, i, j: a.transpose(i, j),
    "Tensor.unsqueeze": lambda a, dim: a.unsqueeze(dim),
    "Tensor.sum": lambda a: a.sum(),
    "Functional.relu": F.relu,
    "Functional.softmax": F.softmax,
    "Functional.linear": F.linear,
    "Functional.layer_norm": F.layer_norm,
    "Functional.dropout": F.dropout,
}


class Tracer:
    """Makes the calls. With an encoder it also writes them down; the program does not see what is computed for that."""

    def __init__(self, encoder=None):
        self.encoder = encoder
        self.entries = {}  # in the order of dump.json, forward entries alone
        self.backward = {}  # of API calls
        self.parents = {}
        self.names = {}
        self._counts = collections.Counter()
        self._inside = []
        self.calls = 0

    def name(self, prefix):
        count = self._counts[prefix]
        self._counts[prefix] += 1
        return count

    def api(self, api, *args, **kwargs):
        if self.encoder is None:
            return APIS[api](*args, **kwargs)
        stem = f"{api}.{self.name(api)}"
        entry = self.entries[f"{stem}.forward"] = self.encoder.arguments(args, kwargs)
        self.parents[f"{stem}.forward"] = self._inside[-1] if self._inside else None
        result = APIS[api](*args, **kwargs)
        entry["output"] = self.encoder.output(result)
        tensor = result[0] if isinstance(result, tuple) else result
        if tensor.requires_grad and tensor.grad_fn is not None:
            tensor.grad_fn.register_hook(lambda inner, outer: self.gradients(stem, inner, outer))
        return result

    def gradients(self, stem, inner, outer):
        self.backward[f"{stem}.backward"] = {
            "input": [self.encoder.value(each) for each in outer],
            "output": [self.encoder.value(each) for each in inner],
        }

    def call(self, module, *args, **kwargs):
        self.calls += 1
        name = self.names.get(id(module))
        if self.encoder is None or name is None:
            return module(*args, **kwargs)
        full = f"Module.{name}.forward.{self.name(name)}"
        self.parents[full] = self._inside[-1] if self._inside else None
        entry = self.encoder.arguments(args, kwargs)
        self._inside.append(full)
        result = module(*args, **kwargs)
        self._inside.pop()
        entry["output"] = self.encoder.output(result)
        entry["parameters"] = {key: self.encoder.value(each) for key, each in module.named_parameters(recurse=False)}
        self.entries[full] = entry
        return result


TRACER = Tracer()


class Linear(torch.nn.Linear):
    def __init__(self):
        super().__init__(4, 4)

    def forward(self, x):
        return TRACER.api("Functional.linear", x, self.weight, self.bias)


class Norm(torch.nn.LayerNorm):
    def __init__(self):
        super().__init__(4)

    def forward(self, x):
        return TRACER.api("Functional.layer_norm", x, (4,), self.weight, self.bias, 1e-5)


class Relu(torch.nn.Module):
    def forward(self, x):
        return TRACER.api("Functional.relu", x)


class ReluInPlace(torch.nn.Module):
    def forward(self, x):
        return TRACER.api("Functional.relu", TRACER.api("Torch.clone", x), inplace=True)


class Dropout(torch.nn.Module):
    def forward(self, x):
        return TRACER.api("Functional.dropout", x, p=0.5, training=True)


class Same(torch.nn.Module):
    def forward(self, x):
        return x


LEAVES = {"linear": Linear, "norm": Norm, "relu": Relu, "relu_": ReluInPlace, "dropout": Dropout, "same": Same}


def halves(x, other):
    first, second = TRACER.api("Torch.split", x, 2, dim=1)
    return TRACER.api("Torch.cat", [second, first], dim=1)


def in_place(x, other):
    fresh = TRACER.api("Torch.clone", x)
    return TRACER.api("Tensor.add_", fresh, 1.5)


def largest(x, other):
    found = TRACER.api("Torch.max", x, dim=1)
    return TRACER.api("Tensor.__add__", other, TRACER.api("Tensor.unsqueeze", found.values, 1))


def without_grad(x, other):
    with torch.no_grad():
        return TRACER.api("Tensor.__mul__", x, 2.0)


OPS = {
    "add": lambda x, other: TRACER.api("Torch.add", x, other, alpha=2),
    "plus": lambda x, other: TRACER.api("Tensor.__add__", x, other),
    "scaled": lambda x, other: TRACER.api("Tensor.__mul__", x, 0.5),
    "relu": lambda x, other: TRACER.api("Functional.relu", x),
    "softmax": lambda x, other: TRACER.api("Functional.softmax", x, dim=-1),
    "sigmoid": lambda x, other: TRACER.api("Torch.sigmoid", x),
    "in_place": in_place,
    "view": lambda x, other: TRACER.api("Tensor.reshape", TRACER.api("Tensor.reshape", x, 4, 3), 3, 4),
    "transposed": lambda x, other: TRACER.api("Tensor.transpose", TRACER.api("Tensor.transpose", x, 0, 1), 0, 1),
    "matmul": lambda x, other: TRACER.api(
        "Tensor.__matmul__", TRACER.api("Tensor.__matmul__", x, TRACER.api("Tensor.transpose", other, 0, 1)), x
    ),
    "halves": halves,
    "largest": largest,
    "without_grad": without_grad,
}


def first_of(result):
    while not isinstance(result, torch.Tensor):
        result = next(iter(result.values())) if isinstance(result, dict) else result[0]
    return result


class Node(torch.nn.Module):
    def __init__(self, description, built):
        super().__init__()
        self.description = description
        for index, each in enumerate(description["children"]):
            self.add_module(f"part{index}", build(each, built))

    def forward(self, x, again=0):
        parts = list(self._modules.values())
        values = [x]
        for op, source, other in self.description["ops"]:
            taken, second = values[source % len(values)], values[other % len(values)]
            if op in OPS:
                values.append(OPS[op](taken, second))
            elif not parts or TRACER.calls > CALLS:
                continue
            elif op == "call":
                values.append(first_of(TRACER.call(parts[other % len(parts)], taken)))
            elif op == "call by name":
                values.append(first_of(TRACER.call(parts[other % len(parts)], x=taken)))
        if again < self.description["turns"] and TRACER.calls <= CALLS:
            values.append(first_of(TRACER.call(self, values[-1], again=again + 1)))
        last, first = values[-1], values[0]
        return {
            "tensor": lambda: last,
            "tuple": lambda: (last, None, first, 3),
            "list": lambda: [last, first],
            "dict": lambda: {"last": last, "first": {"inner": first}},
            "namedtuple": lambda: Outputs(last, first),
        }[self.description["returns"]]()


def build(description, built):
    if description["kind"] == "alias":
        return built[description["of"] % len(built)] if built else Same()
    made = Node(description, built) if description["kind"] == "node" else LEAVES[description["kind"]]()
    built.append(made)
    return made


def one_pass(tree, step, encoder, around):
    """(results that the program sees, as bytes of outputs and gradients; the tracer)."""
    global TRACER
    torch.manual_seed(step["seed"])
    model = build(tree, [])
    x = torch.randn(3, 4, requires_grad=step["input_grad"])
    TRACER = tracer = Tracer(encoder)
    tracer.names = {id(module): f"{path}.{type(module).__name__}" for path, module in model.named_modules() if path}
    torch.manual_seed(step["seed"] + 1)
    with around(model):
        out = first_of(tracer.call(model, x))
        if step["backward"] and out.requires_grad:
            tracer.api("Tensor.sum", out).backward()
    seen = {"output": out.detach().numpy().tobytes()}
    seen["input gradient"] = None if x.grad is None else x.grad.numpy().tobytes()
    gradients = {name: each.grad for name, each in model.named_parameters()}
    seen.update({name: None if each is None else each.numpy().tobytes() for name, each in gradients.items()})
    return seen, tracer, model


class Captured:
    def __init__(self, debugger):
        self.debugger = debugger

    def __call__(self, model):
        self.model = model
        return self

    def __enter__(self):
        self.debugger.start(model=self.model)

    def __exit__(self, *_):
        self.debugger.stop()
        self.debugger.step()


class Plain:
    """Notes in which order gradients are accumulated: the order of a parameters_grad entry's keys."""

    def __init__(self):
        self.accumulated = []  # ids of parameters

    def __call__(self, model):
        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(lambda each: self.accumulated.append(id(each)))
        return self

    def __enter__(self):
        pass

    def __exit__(self, *_):
        pass


def parameter_gradients(model, tracer, encoder, accumulated):
    called = {full.split(".forward.")[0] for full in tracer.parents}
    found = {}
    for module in model.modules():
        name = tracer.names.get(id(module))
        own = dict(module.named_parameters(recurse=False))
        if own and f"Module.{name}" in called and all(each.grad is not None for each in own.values()):
            by_time = sorted(own.items(), key=lambda item: accumulated.index(id(item[1])))
            grads = {key: [encoder.value(each.grad)] for key, each in by_time}
            found[f"Module.{name}.parameters_grad.0"] = grads
    return found


def run(debugger, step, encoder):
    around = Plain()
    plain, tracer, model = one_pass(step["tree"], step, encoder, around)
    traced, _, _ = one_pass(step["tree"], step, None, Captured(debugger))
    return {
        "expected": tracer.entries,
        "backward": tracer.backward,
        "parameters_grad": parameter_gradients(model, tracer, encoder, around.accumulated),
        "parents": tracer.parents,
        "changed": [name for name in plain if plain[name] != traced[name]],
    }
