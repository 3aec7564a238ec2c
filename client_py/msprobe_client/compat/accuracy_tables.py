"""acc_check's tables, accuracy_checking_result_* and accuracy_checking_details_*: views of the rows of a check."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from msprobe_client.check.rows import CheckRow, Outcome
from msprobe_client.check.standards import Standard
from msprobe_client.errors import DataError, InvalidArgument
from msprobe_client.output.whole_file import whole_file

RESULT_COLUMNS = ("API name", "Forward Test Success", "Backward Test Success", "Message")
DETAILS_COLUMNS = (
    "API Name",
    "Bench Dtype",
    "DEVICE Dtype",
    "Shape",
    "余弦相似度",
    "最大绝对误差",
    "双百指标",
    "双千指标",
    "双万指标",
    "二进制一致错误率",
    "误差均衡性",
    "均方根误差",
    "小值域错误占比",
    "相对误差最大值",
    "相对误差平均值",
    "inf/nan错误率",
    "相对误差错误率",
    "绝对误差错误率",
    "ULP误差最大值",
    "ULP误差平均值",
    "ULP误差大于阈值占比",
    "Status",
    "Message",
)
BLANK = " "
PASS, WARNING, ERROR, SKIP = "pass", "warning", "error", "SKIP"
_STATUS: dict[Outcome, str] = {
    "pass": PASS,
    "warning": WARNING,
    "fail": ERROR,
    "error": ERROR,
    "skip": SKIP,
    "undecided": SKIP,
}
_HALF = frozenset({"float16", "bfloat16"})
_FIRST_STAGE = ("cosine", "max_abs", "double_hundredth", "double_thousandth", "double_ten_thousandth")
# Shares of elements whose relative error is under 1e-2, 1e-3, 1e-4.
_SHARES = {
    "双百指标": ("double_hundredth", "share_under_1e2"),
    "双千指标": ("double_thousandth", "share_under_1e3"),
    "双万指标": ("double_ten_thousandth", "share_under_1e4"),
}
# Dtypes that the standards of the second stage know.
_WITH_STANDARDS = frozenset({"float16", "bfloat16", "float32", "float8_e4m3fn", "float8_e5m2"})


@dataclass(frozen=True, slots=True)
class Layout:
    """Columns of both tables. message_always: a call without one has an empty cell for it."""

    result: tuple[str, ...]
    details: tuple[str, ...]
    message_always: bool = False


PYTORCH = Layout(RESULT_COLUMNS, DETAILS_COLUMNS)


@dataclass(frozen=True, slots=True)
class CallRows:
    """One API call in both tables."""

    name: str  # "Functional.linear.0"
    forward: str
    backward: str
    message: str = ""
    details: list[list[str]] = field(default_factory=list)

    def result(self, message_always: bool) -> list[str]:
        return [self.name, self.forward, self.backward, *([self.message] * (message_always or bool(self.message)))]


def worst(statuses: Iterable[str]) -> str:
    """Of a call: blank where it has no output."""
    found = set(statuses)
    if found and found <= {SKIP}:
        return SKIP
    return next((status for status in (ERROR, WARNING, PASS) if status in found), BLANK)


def status_of(row: CheckRow) -> str:
    return _STATUS[row.verdict]


def skipped_row(name: str, message: str, status: str = SKIP) -> list[str]:
    return [name, *[BLANK] * (len(DETAILS_COLUMNS) - 3), status, message]


def details_row(name: str, row: CheckRow, golden_dtype: str, standard: Standard) -> list[str]:
    """A row that was measured, or one that has only a reason."""
    if not row.dtype:
        return skipped_row(name, row.reason, status_of(row))
    shape = f"({', '.join(map(str, row.shape))}{',' * (len(row.shape) == 1)})"
    cells = {
        "Bench Dtype": f"torch.{golden_dtype}" if golden_dtype else BLANK,
        "DEVICE Dtype": f"torch.{row.dtype}",
        "Shape": shape,
    }
    if row.accuracy:
        numbers = _floats(row, standard) if "float" in row.dtype or "complex" in row.dtype else _integers(row)
        cells |= {column: f"{value:.14f}" for column, value in numbers.items()}
    status = SKIP if row.rule == "no_elements" else status_of(row)
    return [name, *(cells.get(column, BLANK) for column in DETAILS_COLUMNS[1:-2]), status, _message(row)]


def _message(row: CheckRow) -> str:
    if row.reason:
        return row.reason
    if row.rule == "no_elements":
        return "it has no elements"
    if row.measured is None or row.limit is None:
        return row.rule
    return f"{row.rule}: {row.measured:.6g}, limit {row.limit:.6g}"


def _integers(row: CheckRow) -> dict[str, float]:
    if row.rule == "quantised_max_abs":
        return {"最大绝对误差": row.accuracy["max_abs"]}
    return {"二进制一致错误率": _share(row.accuracy["different"], row.accuracy["elements"])}


def _floats(row: CheckRow, standard: Standard) -> dict[str, float]:
    """The first stage as far as its rules were asked, then what the second stage reads."""
    numbers = row.accuracy
    found: dict[str, float] = {}
    if numbers["elements"] > 1 and numbers["target_norm"] > 0 and numbers["golden_norm"] > 0:
        found["余弦相似度"] = numbers["cosine"]
    asked = _asked(row)
    if "max_abs" in asked:
        found["最大绝对误差"] = numbers["max_abs"]
    shares = {column: _share_under(numbers, name) for column, (_, name) in _SHARES.items()}
    found |= {column: shares[column] for column, (rule, _) in _SHARES.items() if rule in asked}
    if row.dtype not in _WITH_STANDARDS:
        return found
    found |= _benchmark(numbers)
    mismatches = numbers["nan_mismatches"] + numbers["inf_mismatches"] + numbers["inf_sign_mismatches"]
    if standard.name == "binary":
        found["二进制一致错误率"] = _share(numbers["different"] + mismatches, numbers["elements"])
    elif standard.name == "ulp":
        found["ULP误差最大值"] = numbers["ulp_max"]
        found["ULP误差平均值"] = numbers["ulp_mean"]
        found["ULP误差大于阈值占比"] = _share(numbers["ulp_over_limit"], numbers["elements"])
    elif standard.name == "double_thousandth":
        found["双千指标"] = shares["双千指标"]
    elif standard.name == "absolute_threshold":
        found["inf/nan错误率"] = _share(mismatches, mismatches + numbers["non_finite_same"])
        found["相对误差错误率"] = _share(numbers["normal_over"], numbers["normal"])
        found["绝对误差错误率"] = _share(numbers["small_over_threshold"], numbers["small"])
    return found


def _asked(row: CheckRow) -> Sequence[str]:
    """The rules of the first stage up to the one that decided; all where another rule did."""
    other = "double_ten_thousandth" if row.dtype in _HALF else "double_hundredth"
    rules = [rule for rule in _FIRST_STAGE if rule != other]
    decided = row.rule in rules and not (row.rule == "max_abs" and row.verdict == "fail")
    if not decided:
        return rules
    # Of float32 both shares are there before either decides.
    at = "double_ten_thousandth" if row.rule == "double_thousandth" and row.dtype not in _HALF else row.rule
    return rules[: rules.index(at) + 1]


def _benchmark(numbers: Mapping[str, float]) -> dict[str, float]:
    elements, normal = numbers["elements"], numbers["normal"]
    mean = _share(numbers["normal_squares"], elements)
    return {
        "误差均衡性": _share(abs(numbers["higher"] - numbers["lower"]), elements),
        "均方根误差": (mean * (_share(elements, normal + 1e-4) + 1e-4)) ** 0.5,
        "小值域错误占比": _share(numbers["small_over_benchmark"], numbers["small"]),
        "相对误差最大值": numbers["normal_max_rel"],
        "相对误差平均值": numbers["normal_mean_rel"],
    }


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _share_under(numbers: Mapping[str, float], name: str) -> float:
    """Elements that are not finite on one side are not under any error; those alike on both sides do not count."""
    return numbers[name] * _share(numbers["compared"], numbers["elements"] - numbers["non_finite_same"])


class AccuracyTables:
    """Both files. A call is written once it is whole: its details first, so that a result means that they are there."""

    def __init__(self, result: Path, details: Path, layout: Layout) -> None:
        self._paths = (result, details)
        self._layout = layout
        self._texts: list[io.TextIOWrapper] = []

    @property
    def paths(self) -> tuple[Path, Path]:
        return self._paths

    @classmethod
    def new(cls, folder: Path, time: str, layout: Layout = PYTORCH) -> AccuracyTables:
        result, details = (folder / f"accuracy_checking_{word}_{time}.csv" for word in ("result", "details"))
        tables = cls(result, details, layout)
        for path, columns in zip(tables._paths, (layout.result, layout.details), strict=True):
            write_table(path, columns, [])
        return tables

    @classmethod
    def resumed(cls, result: Path, layout: Layout = PYTORCH) -> tuple[AccuracyTables, set[str]]:
        """Those of an interrupted check, and the calls that they have. Details of a call without a result go."""
        details = result.with_name(result.name.replace("result", "details"))
        done = {row[0] for row in read_table(result, layout.result[:1])}
        rows = read_table(details, layout.details)
        whole = [row for row in rows if call_of(row[0]) in done]
        if len(whole) != len(rows):
            write_table(details, layout.details, whole)
        return cls(result, details, layout), done

    def __enter__(self) -> AccuracyTables:
        for path in self._paths:
            self._texts.append(path.open("a", encoding="utf-8", newline=""))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for text in self._texts:
            text.close()

    def add(self, call: CallRows) -> None:
        result, details = self._texts
        for text, rows in ((details, call.details), (result, [call.result(self._layout.message_always)])):
            text.write(_lines(rows))
            text.flush()


def call_of(output: str) -> str:
    """Functional.linear.0 of Functional.linear.0.forward.output.0"""
    return re.split(r"\.(?:forward|backward)\.(?:output|input)\.", output, maxsplit=1)[0]


def write_table(path: Path, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    with whole_file(path) as scratch:
        scratch.write_text(_lines([columns, *rows]), encoding="utf-8-sig", newline="")


def read_table(path: Path, columns: Sequence[str]) -> list[list[str]]:
    """The cells of these columns. A file without one of them is refused."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            header = next(reader, [])
            missing = [column for column in columns if column not in header]
            if missing:
                raise InvalidArgument(f"{path}: it has no column {missing[0]!r}; name a table that acc_check wrote")
            places = [header.index(column) for column in columns]
            return [[row[at] if at < len(row) else "" for at in places] for row in reader if row]
    except FileNotFoundError:
        raise InvalidArgument(f"{path} does not exist") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} is not a table of acc_check: {error}") from None


def _lines(rows: Iterable[Sequence[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerows(rows)
    return text.getvalue()
