"""One value says how two sides are compared; every request that compares has its options under their own names."""

from __future__ import annotations

import pytest
from google.protobuf.message import Message

from msprobe_client.compare_options import DEFAULTS, CompareOptions
from msprobe_client.errors import InvalidArgument
from msprobe_client.name_mapping import ToleranceRule
from msprobe_client.proto import analysis_pb2

EVERYTHING = CompareOptions(
    matching="fuzzy",
    mode="statistics",
    rtol=0.1,
    tolerances={"bfloat16": (0.2, None)},
    policy=[ToleranceRule(name="*.output.0", atol=1.0)],
    mapping=analysis_pb2.NameMapping(cells=True),
    across_layouts=True,
)


def test_a_comparison_carries_them_all() -> None:
    fields = EVERYTHING.fields_of(analysis_pb2.CompareRequest)
    request = analysis_pb2.CompareRequest(**fields)
    assert sorted(fields) == sorted(field.name for field in analysis_pb2.CompareOptions.DESCRIPTOR.fields)
    assert request.matching == analysis_pb2.MATCHING_FUZZY
    assert request.mode == analysis_pb2.COMPARE_STATISTICS
    assert [(each.dtype, each.name_glob) for each in request.tolerances] == [
        ("", ""),
        ("bfloat16", ""),
        ("", "*.output.0"),
    ]
    assert request.tolerances[1].relative == 0.2 and not request.tolerances[1].HasField("absolute")
    assert request.mapping.cells and request.across_layouts


def test_what_is_default_is_not_sent() -> None:
    assert DEFAULTS.fields_of(analysis_pb2.CompareRequest) == {}


@pytest.mark.parametrize(
    ("request_type", "lacking"),
    [
        (analysis_pb2.CompareRequest, set()),
        (analysis_pb2.FirstDivergenceRequest, {"matching"}),
        (analysis_pb2.CompareTableRequest, {"mode", "tolerances", "across_layouts"}),
    ],
)
def test_requests_and_options_call_the_same_the_same(request_type: type[Message], lacking: set[str]) -> None:
    theirs = request_type.DESCRIPTOR.fields_by_name
    for field in analysis_pb2.CompareOptions.DESCRIPTOR.fields:
        assert (field.name in theirs) is (field.name not in lacking)
        if field.name in theirs:
            other = theirs[field.name]
            assert (field.type, field.message_type, field.enum_type) == (
                other.type,
                other.message_type,
                other.enum_type,
            )


def test_an_option_that_a_question_does_not_take_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="FirstDivergenceRequest takes no matching"):
        EVERYTHING.fields_of(analysis_pb2.FirstDivergenceRequest)


def test_options_given_by_name_win() -> None:
    assert EVERYTHING.but({"mode": "checksum"}).mode == "checksum"
    assert EVERYTHING.but({"mode": "checksum"}).matching == "fuzzy"
    with pytest.raises(TypeError, match="tolerance"):
        DEFAULTS.but({"tolerance": 1})
