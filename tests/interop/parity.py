"""Finds the differences of two dumps of one program: ours and mindstudio-probe's.

    python parity.py OURS REAL      # two rank directories; prints every difference, exits 1 if there is one

A rank directory holds dump.json (or debug.json), stack.json, construct.json and perhaps dump_tensor_data/. Compared are
entries and their order, keys and their order, types, dtypes, shapes, requires_grad, null rules, numbers by the rules
below, construct.json, the groups of stack.json, and the bits of saved tensors. NaN equals NaN.

Numbers: Max, Min and values are equal and of the same JSON type. Norm of fp32 agrees to 1e-5 relative; Mean to
1e-5 * |Mean| + 1e-6 * Norm / sqrt(n), because neither float32 sum is exact. Mean and Norm of fp16 and bf16 must be at
least as near to a float64 computation as mindstudio-probe's, so they need a Truth. Checksums are equal, or equal
to the Truth's where there is one (mindstudio-probe's race with in-place changes).
"""

import dataclasses
import fnmatch
import json
import math
import pathlib
import re
import sys
import zlib

HALF = {"torch.float16", "torch.bfloat16"}
NORM_RTOL = 1e-5
MEAN_RTOL = 1e-5
MEAN_NORM_SHARE = 1e-6
STORED_RTOL = 2.0**-23  # a statistic is kept as fp32
ROUNDED = 1e-4
NOISE = 1e-10  # of gradients that are zero but for rounding
STATISTICS = ("Max", "Min", "Mean", "Norm")
ABSENT = "<absent>"


@dataclasses.dataclass(frozen=True)
class Difference:
    entry: str  # full name, or the file where the difference is not inside an entry
    key: str  # path inside the entry: "input_args.0.Norm"
    ours: object
    real: object
    rule: str  # what should have held

    def __str__(self):
        return f"{self.entry} [{self.key}] ours={shown(self.ours)} real={shown(self.real)}: {self.rule}"


@dataclasses.dataclass(frozen=True)
class Allowed:
    """An intended difference, with its row of docs/compatibility.md.

    entry and key are shell patterns. ours, if given, is the value that must stand there instead of mindstudio-probe.
    """

    entry: str
    key: str
    row: str
    ours: object = None

    def covers(self, difference):
        if not (fnmatch.fnmatchcase(difference.entry, self.entry) and fnmatch.fnmatchcase(difference.key, self.key)):
            return False
        return self.ours is None or close(difference.ours, self.ours, NORM_RTOL)


@dataclasses.dataclass(frozen=True)
class TensorTruth:
    """A tensor's true values. mean and norm are float64 computations, None if the dtype has none."""

    mean: float | None
    norm: float | None
    crc32: str | None


class Truth:
    """True statistics by row name (`Functional.linear.0.forward.input.1`, as tensor files are named)."""

    def of(self, row):
        raise NotImplementedError


class FileTruth(Truth):
    """From the tensors that a run of the same program with task tensor saved; they are copied inside the call."""

    def __init__(self, directory):
        self._directory = pathlib.Path(directory)
        self._known = {}

    def of(self, row):
        if row not in self._known:
            import torch

            path = self._directory / f"{row}.pt"
            self._known[row] = tensor_truth(torch.load(path)) if path.exists() else None
        return self._known[row]


class ValueTruth(Truth):
    """From tensors in hand; name_of gives the key of a row in the mapping, or None."""

    def __init__(self, tensors, name_of):
        self._tensors = tensors
        self._name_of = name_of

    def of(self, row):
        tensor = self._tensors.get(self._name_of(row))
        return None if tensor is None else tensor_truth(tensor)


class RecordedTruth(Truth):
    """Checksums only, by row name."""

    def __init__(self, checksums):
        self._checksums = checksums

    def of(self, row):
        return TensorTruth(None, None, self._checksums[row]) if row in self._checksums else None


def tensor_truth(tensor):
    import torch

    mean = norm = None
    if tensor.is_floating_point() and tensor.numel() and not tensor.is_meta:
        wide = tensor.detach().to(torch.float64)
        mean = wide.mean().item()
        norm = wide.pow(2).sum().sqrt().item()
    crc = None
    if not (tensor.is_meta or tensor.is_sparse or tensor.is_quantized):
        crc = f"{zlib.crc32(raw_bytes(tensor)):08x}"
    return TensorTruth(mean, norm, crc)


def raw_bytes(tensor):
    import torch

    if not tensor.numel():
        return b""
    flat = torch.empty(tensor.numel(), dtype=tensor.dtype)  # of stride 1 even where there is one element
    flat.copy_(tensor.detach().reshape(-1))
    return flat.view(torch.uint8).numpy().tobytes()


def shown(value):
    text = value if value is ABSENT else json.dumps(value)
    return text if len(text) <= 160 else text[:157] + "..."


def close(a, b, rtol, atol=0.0):
    if not (is_number(a) and is_number(b)):
        return a == b
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    if math.isinf(a) or math.isinf(b):
        return a == b
    return abs(a - b) <= rtol * abs(b) + atol


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def same(a, b):
    """Equal as JSON: 7 is not 7.0, true is not 1, -0.0 is not 0.0, NaN is NaN."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    return a == b


def is_leaf(value):
    return isinstance(value, dict) and "dtype" in value and "shape" in value and "type" in value


# Where a row's file name leaves out the part of the entry: `.parameters.` stays, parameters_grad has none.
PARTS = {"input_args": "input", "input_kwargs": "input", "input": "input", "output": "output"}


@dataclasses.dataclass(frozen=True)
class Rules:
    """How strictly numbers are compared; names, order, types and nulls always are.

    rounded: gradients may have added up in another order. Numbers agree to 1e-4 of the tensor's largest; checksums and
    contents of saved tensors are not compared.
    signed_zeros: whether the sign of a zero in Max and Min matters. Where a tensor has zeros of both signs, torch.max
    takes the one it meets last.
    """

    truth: Truth | None = None
    unknown_checksum_ok: bool = False
    rounded: bool = False
    signed_zeros: bool = True


STRICT = Rules()


class _Comparer:
    def __init__(self, rules=STRICT):
        self._rules = rules
        self._truth = rules.truth
        self.found = []

    def report(self, entry, key, ours, real, rule):
        self.found.append(Difference(entry, ".".join(str(part) for part in key), ours, real, rule))

    def names(self, where, ours, real, what, ordered=True):
        """Reports missing and extra names, then, if it matters, the first difference of order. Returns the common
        names.
        """
        ours, real = list(ours), list(real)
        mine, theirs = set(ours), set(real)
        for name in real:
            if name not in mine:
                self.report(name, (what,), ABSENT, "present", f"missing {what}")
        for name in ours:
            if name not in theirs:
                self.report(name, (what,), "present", ABSENT, f"extra {what}")
        common_ours = [name for name in ours if name in theirs]
        common_real = [name for name in real if name in mine]
        for index, (a, b) in enumerate(zip(common_ours, common_real, strict=False)):
            if ordered and a != b:
                self.report(where, (f"{what} order", index), a, b, f"the same order of each {what}")
                break
        return common_real

    def value(self, entry, key, ours, real):
        if is_leaf(real) and is_leaf(ours):
            self.leaf(entry, key, ours, real)
        elif isinstance(real, dict) and isinstance(ours, dict):
            for name in self.keys(entry, key, ours, real):
                self.value(entry, (*key, name), ours[name], real[name])
        elif isinstance(real, list) and isinstance(ours, list):
            if len(ours) != len(real):
                self.report(entry, (*key, "length"), len(ours), len(real), "lists of another length")
            for index, (a, b) in enumerate(zip(ours, real, strict=False)):
                self.value(entry, (*key, index), a, b)
        elif not same(ours, real):
            self.report(entry, key, ours, real, "equal")

    def keys(self, entry, key, ours, real):
        if list(ours) == list(real):
            return list(real)
        for name in real:
            if name not in ours:
                self.report(entry, (*key, name), ABSENT, real[name], "missing key")
        for name in ours:
            if name not in real:
                self.report(entry, (*key, name), ours[name], ABSENT, "extra key")
        common = [name for name in real if name in ours]
        if [name for name in ours if name in real] != common:
            self.report(entry, (*key, "key order"), list(ours), list(real), "keys in another order")
        return common

    def leaf(self, entry, key, ours, real):
        for name in self.keys(entry, key, ours, real):
            a, b = ours[name], real[name]
            path = (*key, name)
            if self._rules.rounded and (name == "md5" or self.rounded(name, a, b, real)):
                continue
            if name == "Norm" and is_number(a) and is_number(b) and real["shape"]:
                self.norm(entry, path, a, b, real)
            elif name == "Mean" and is_number(a) and is_number(b) and real["shape"]:
                self.mean(entry, path, a, b, real)
            elif name == "md5" and isinstance(b, str) and not b.startswith("0x"):
                self.checksum(entry, path, a, b)
            elif not (same(a, b) or (self.zeros(name, a, b) and not self._rules.signed_zeros)):
                self.report(entry, path, a, b, "equal")

    @staticmethod
    def zeros(name, a, b):
        return name in ("Max", "Min") and isinstance(a, float) and isinstance(b, float) and a == b == 0

    def rounded(self, name, a, b, leaf):
        if name not in STATISTICS or type(a) is not type(b) or not isinstance(b, float) or not math.isfinite(b):
            return False
        largest = max(abs(leaf[key]) for key in ("Max", "Min") if is_number(leaf[key]))
        return close(a, b, ROUNDED, ROUNDED * largest + NOISE)

    def truth_of(self, entry, path):
        return self._truth.of(row_name(entry, path[:-1])) if self._truth else None

    def nearer(self, entry, path, a, b, true):
        if true is None:
            self.report(entry, path, a, b, "half precision needs a truth and there is none")
            return
        if math.isnan(true) or math.isinf(true):
            if not close(a, true, 0):
                self.report(entry, path, a, b, f"the true value is {true}")
            return
        error_real = abs(b - true) if math.isfinite(b) else math.inf
        if not math.isfinite(a) or abs(a - true) > error_real + STORED_RTOL * abs(true):
            self.report(entry, path, a, b, f"at least as near to {true!r} as the real tool's")

    def norm(self, entry, path, a, b, leaf):
        if leaf["dtype"] in HALF:
            truth = self.truth_of(entry, path)
            self.nearer(entry, path, a, b, truth and truth.norm)
        elif not close(a, b, NORM_RTOL):
            self.report(entry, path, a, b, f"within {NORM_RTOL} relative")

    def mean(self, entry, path, a, b, leaf):
        if leaf["dtype"] in HALF:
            truth = self.truth_of(entry, path)
            self.nearer(entry, path, a, b, truth and truth.mean)
            return
        norm = leaf.get("Norm")
        share = 0.0
        if is_number(norm) and math.isfinite(norm):
            share = MEAN_NORM_SHARE * abs(norm) / math.sqrt(math.prod(leaf["shape"]))
        if not close(a, b, MEAN_RTOL, share):
            self.report(entry, path, a, b, f"within {MEAN_RTOL} * |Mean| + {MEAN_NORM_SHARE} * Norm / sqrt(n)")

    def checksum(self, entry, path, a, b):
        truth = self.truth_of(entry, path)
        true = truth.crc32 if truth else None
        if true is None:
            if self._truth and not self._rules.unknown_checksum_ok:
                self.report(entry, path, a, b, "a checksum whose true value is unknown")
            true = b
        if a != true:
            self.report(entry, path, a, true, "the checksum of the bytes at the call")


def row_name(entry, path):
    """The name of a tensor's row, as its file is named."""
    head, rest = path[0], path[1:]
    parts = [str(part) for part in rest]
    if head == "input_kwargs":
        return ".".join([entry, "kwargs", *parts])
    if head in PARTS:
        return ".".join([entry, PARTS[head], *parts])
    if head == "parameters":
        return ".".join([entry, "parameters", *parts])
    return ".".join([entry, str(head), *parts[1:]])  # parameters_grad: {name: [tensor]}


def read_json(path):
    return json.loads(pathlib.Path(path).read_text())


def compare_data(ours, real, rules=STRICT):
    """Differences of two parsed dump.json (or debug.json)."""
    comparer = _Comparer(rules)
    where = "dump.json"
    comparer.keys(where, (), ours, real)
    for name in ("task", "level", "framework"):
        comparer.value(where, (name,), ours.get(name), real.get(name))
    if (ours.get("dump_data_dir") is None) != (real.get("dump_data_dir") is None):
        comparer.report(
            where,
            ("dump_data_dir",),
            ours.get("dump_data_dir"),
            real.get("dump_data_dir"),
            "null or a path on both sides",
        )
    mine, theirs = ours.get("data", {}), real.get("data", {})
    for name in comparer.names(where, mine, theirs, "entry"):
        comparer.value(name, (), mine[name], theirs[name])
    return comparer.found


def compare_construct(ours, real):
    comparer = _Comparer()
    # A map from name to parent, which readers look up: its order says nothing (docs/compatibility.md).
    for name in comparer.names("construct.json", ours, real, "name", ordered=False):
        if ours[name] != real[name]:
            comparer.report("construct.json", (name,), ours[name], real[name], "equal parents")
    return comparer.found


FRAME = re.compile(r"File (?P<path>.*), line (?P<line>\d+), in (?P<function>[^,]*), \n ?(?P<source>.*)", re.DOTALL)
# Frames that belong to how either tool is called, not to the program.
OWN_FRAMES = re.compile(r"torch/nn/modules/module\.py$|/msprobe/")


def program_frames(frames):
    """(file, line, function, source) of the frames of the user's program, innermost first."""
    kept = []
    for frame in frames:
        match = FRAME.fullmatch(frame)
        if match is None:
            kept.append(("unreadable frame", frame))
        elif not OWN_FRAMES.search(match["path"]):
            kept.append((short_path(match["path"]), match["line"], match["function"], match["source"].strip()))
    return kept


def short_path(path):
    """Without the directories that differ between two environments of the same packages."""
    return re.sub(
        r"^.*/site-packages/", "site-packages/", re.sub(r"^.*/lib/python3\.\d+/(?!site-packages)", "stdlib/", path)
    )


def compare_stack(ours, real):
    """The same groups of names in the same order, each with the same frames of the program."""
    comparer = _Comparer()
    if list(ours) != [str(index) for index in range(len(ours))]:
        comparer.report("stack.json", ("keys",), list(ours)[:5], "0, 1, 2, ...", "groups are numbered from 0")
    mine = {tuple(names): frames for names, frames in ours.values()}
    theirs = {tuple(names): frames for names, frames in real.values()}
    if set(mine) != set(theirs):
        group_of = {name: names for names in mine for name in names}
        for names in theirs:
            if names in mine:
                continue
            found = {group_of.get(name, (ABSENT,)) for name in names}
            comparer.report(
                "stack.json",
                (names[0],),
                sorted(list(group) for group in found),
                list(names),
                "the same group of names",
            )
        known = {name for names in theirs for name in names}
        extra = [name for names in mine for name in names if name not in known]
        if extra:
            comparer.report("stack.json", ("extra",), extra, ABSENT, "only names that the real tool gives a stack")
    elif list(mine) != list(theirs):
        first = next(index for index, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b)
        comparer.report(
            "stack.json",
            ("group order", first),
            list(mine)[first][:3],
            list(theirs)[first][:3],
            "groups in the same order",
        )
    for names, frames in theirs.items():
        if names in mine and program_frames(mine[names]) != program_frames(frames):
            a, b = program_frames(mine[names]), program_frames(frames)
            at = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
            comparer.report(
                "stack.json",
                (names[0], "frame", at),
                list(a[at : at + 2]),
                list(b[at : at + 2]),
                "the same frames of the program",
            )
    return comparer.found


def compare_tensors(ours, real, rules=STRICT):
    """Two dump_tensor_data directories: the same files, bit-equal under torch.load.

    The stride of a dimension of one element moves nothing and is not compared.
    """
    import numpy
    import torch

    comparer = _Comparer()
    mine = {path.name: path for path in pathlib.Path(ours).iterdir()}
    theirs = {path.name: path for path in pathlib.Path(real).iterdir()}
    for name in comparer.names("dump_tensor_data", sorted(mine), sorted(theirs), "file"):
        if name.endswith(".npy"):
            a, b = numpy.load(mine[name]), numpy.load(theirs[name])
            if a.dtype != b.dtype or a.shape != b.shape or a.tobytes() != b.tobytes():
                comparer.report("dump_tensor_data", (name,), str(a)[:80], str(b)[:80], "equal arrays")
            continue
        a, b = torch.load(mine[name]), torch.load(theirs[name])
        if not isinstance(b, torch.Tensor) or not isinstance(a, torch.Tensor):
            comparer.report("dump_tensor_data", (name,), type(a).__name__, type(b).__name__, "tensors")
            continue
        for what, x, y in (
            ("dtype", str(a.dtype), str(b.dtype)),
            ("shape", list(a.shape), list(b.shape)),
            ("stride", moving_strides(a), moving_strides(b)),
            ("device", str(a.device), str(b.device)),
            ("requires_grad", a.requires_grad, b.requires_grad),
        ):
            if x != y:
                comparer.report("dump_tensor_data", (name, what), x, y, "equal")
        if not rules.rounded and a.dtype == b.dtype and a.shape == b.shape and raw_bytes(a) != raw_bytes(b):
            comparer.report(
                "dump_tensor_data", (name, "content"), a.flatten()[:4].tolist(), b.flatten()[:4].tolist(), "bit-equal"
            )
    return comparer.found


def moving_strides(tensor):
    return [stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size > 1]


def compare_rank_directories(ours, real, rules=STRICT, only=None):
    """Every Difference between two rank directories; only: the names of the files to look at."""
    ours, real = pathlib.Path(ours), pathlib.Path(real)
    comparer = _Comparer()
    # dump_error_info.log is ours to write; mindstudio-probe has no such file.
    mine = sorted(path.name for path in ours.iterdir() if path.name != "dump_error_info.log")
    theirs = sorted(path.name for path in real.iterdir())
    found = []
    for name in comparer.names(str(ours.name), mine, theirs, "file"):
        if only is not None and name not in only:
            continue
        if name in ("dump.json", "debug.json"):
            found += compare_data(read_json(ours / name), read_json(real / name), rules)
        elif name == "construct.json":
            found += compare_construct(read_json(ours / name), read_json(real / name))
        elif name == "stack.json":
            found += compare_stack(read_json(ours / name), read_json(real / name))
        elif name == "dump_tensor_data":
            found += compare_tensors(ours / name, real / name, rules)
    return comparer.found + found


def judge(differences, allowed):
    """(differences that no Allowed covers, Allowed that covered nothing)."""
    used = set()
    left = []
    for difference in differences:
        covering = [rule for rule in allowed if rule.covers(difference)]
        used.update(covering)
        if not covering:
            left.append(difference)
    return left, [rule for rule in allowed if rule not in used]


def summary(differences, limit=40):
    """Differences as text, those of one kind (the same rule and key, counts of names apart) told once with a number."""
    kinds = {}
    for difference in differences:
        kind = (re.sub(r"\.\d+", ".N", difference.entry), re.sub(r"\.\d+", ".N", difference.key), difference.rule)
        kinds.setdefault(kind, []).append(difference)
    lines = [f"{len(differences)} differences of {len(kinds)} kinds"]
    for members in sorted(kinds.values(), key=len, reverse=True)[:limit]:
        lines.append(f"{len(members):5} x {members[0]}")
    if len(kinds) > limit:
        lines.append(f"... and {len(kinds) - limit} more kinds")
    return "\n".join(lines)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    found = compare_rank_directories(sys.argv[1], sys.argv[2])
    print(summary(found, limit=200))
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
