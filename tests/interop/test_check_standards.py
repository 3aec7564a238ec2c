"""The checker's numbers beside mindstudio-probe's own functions, and the verdict of acc_check's first stage."""

import json
import math
import pathlib

import pytest
from harness.processes import run

torch = pytest.importorskip("torch")

from msprobe_client.check.measuring import Measuring  # noqa: E402
from msprobe_client.client import Client  # noqa: E402
from msprobe_client.proto import check_pb2  # noqa: E402

SCRIPT = pathlib.Path(__file__).with_name("check_oracle.py")
GOLDEN = {torch.float16: torch.float32, torch.bfloat16: torch.float32, torch.float32: torch.float64}


def pairs():
    """(operator, output, golden) of three dtypes, several sizes of error, with small values among them."""
    generator = torch.Generator().manual_seed(5)
    made = []
    for dtype, wide in GOLDEN.items():
        for count in (2, 65, 5000):
            golden = torch.randn(count, generator=generator, dtype=torch.float64)
            golden *= torch.exp2(torch.randint(-24, 3, (count,), generator=generator))
            noise = torch.randn(count, generator=generator, dtype=torch.float64)
            golden = golden.to(dtype).to(wide)  # rounded as ours and theirs
            for size in (0.0, 1e-6, 1e-4, 3e-3, 0.2):
                output = (golden.double() * (1 + size * noise)).to(dtype)
                made.append(("softmax", output, golden))
            made.append(("softmax", torch.zeros(count, dtype=dtype), golden))
    return made


@pytest.fixture(scope="module")
def both(tmp_path_factory, oracle_python):
    """[(pair, their answer, ours)]"""
    folder = tmp_path_factory.mktemp("standards")
    given = pairs()
    torch.save(given, folder / "pairs.pt")
    run([oracle_python, SCRIPT, folder / "pairs.pt", folder / "answers.json"], PYTHONPATH=None, timeout=200)
    theirs = json.loads((folder / "answers.json").read_text())
    with Client(data_dir=folder / "data", create=True) as client, Measuring(client, "documented") as measuring:
        ours = [measuring.measured(*pair) for pair in given]
    return list(zip(given, theirs, ours, strict=True))


def share(part, whole):
    return part / whole if whole else 0


def test_the_numbers_of_every_standard_are_equal(both):
    assert len(both) > 50
    for (_, output, _golden), theirs, ours in both:
        accuracy = ours.accuracy
        assert not ours.error
        where = f"{output.dtype}, {output.numel()} elements, largest error {accuracy.max_abs}"
        expected = {
            "absolute": {
                "inf_nan_error_ratio": 0,
                "rel_err_ratio": share(accuracy.normal_over, accuracy.normal),
                "abs_err_ratio": share(accuracy.small_over_threshold, accuracy.small),
            },
            "benchmark": {
                "small_value_err_ratio": share(accuracy.small_over_benchmark, accuracy.small),
                "max_rel_error": accuracy.normal_max_rel,
                "mean_rel_error": accuracy.normal_mean_rel,
                "eb": abs(accuracy.higher - accuracy.lower) / accuracy.elements,
            },
            "ulp": {
                "max_ulp_error": accuracy.ulp_max,
                "mean_ulp_error": accuracy.ulp_mean,
                "ulp_error_proportion": accuracy.ulp_over_limit / accuracy.elements,
            },
        }
        for standard, numbers in expected.items():
            for name, number in numbers.items():
                # mindstudio-probe computes 16 bits in float32.
                assert theirs[standard][name] == pytest.approx(number, rel=2e-6, abs=1e-12), (standard, name, where)
        mean = accuracy.normal_squares / accuracy.elements
        normal = accuracy.normal
        rms = math.sqrt(mean * (accuracy.elements / (normal + 1e-4) + 1e-4)) if normal else 0
        assert theirs["benchmark"]["rmse"] == pytest.approx(rms, rel=2e-6, abs=1e-12), where
        accumulated = theirs["accumulative"]
        over = accumulated["rel_err_ratio"] > 0 or accumulated["abs_err_ratio"] > 0
        assert over == (accuracy.over_accumulative > 0), where


def test_the_first_stage_has_the_same_verdict(both):
    words = {"pass": "PASS", "error": "FAIL", "warning": "WARNING"}
    seen = set()
    for (_, output, _), theirs, ours in both:
        verdict = check_pb2.Verdict.Outcome.Name(ours.verdict.outcome)
        assert verdict == words[theirs["status"]], (output.dtype, output.numel(), ours.verdict)
        seen.add(verdict)
    assert seen == {"PASS", "FAIL", "WARNING"}
