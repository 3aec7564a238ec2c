"""docs/compatibility.md has a row for each difference that the comparer allows, and for each defect that is absent
here.
"""

import re

import pytest
from allowed import ALLOWED, DOCUMENTED_RULES, FAMILY_ALLOWED, NET_ALLOWED
from harness.processes import REPOSITORY

RULES = [rule for allowed in (ALLOWED, FAMILY_ALLOWED, NET_ALLOWED) for rules in allowed.values() for rule in rules]
ROWS = sorted({rule.row for rule in RULES} | set(DOCUMENTED_RULES))

# Row of docs/compatibility.md -> the tests that show it.
SHOWN_BY = {
    "exception-in-api": ["integration/test_bad_input.py::test_every_call_leaves_a_record"],
    "non-reentrant-checkpoint": ["integration/test_process_life.py::test_activation_checkpointing_loses_nothing"],
    "unusual-tensors": [
        "integration/test_bad_input.py::test_odd_values_reach_the_program_as_they_would_without_us",
        "integration/test_bad_input.py::test_what_the_records_of_odd_tensors_say",
    ],
    "not-json": ["integration/test_bad_input.py::test_every_call_leaves_a_record"],
    "checksum-race": ["integration/test_numbers.py::test_checksums_are_of_the_bytes_at_the_call"],
    "one-cpu": ["integration/test_defects.py::test_one_cpu_is_enough"],
    "fp16-norm-overflow": ["interop/test_side_by_side.py::test_same_dump"],
    "not-captured": [
        "integration/test_undisturbed.py::test_names_bound_earlier_are_recorded",
        "integration/test_all_that_runs.py::test_capture_all_records_indexing_every_operator_and_the_root",
    ],
    "strict-json": ["integration/test_external_server.py::test_strict_json_has_null_where_the_default_has_nan"],
    "patched-names": ["integration/test_undisturbed.py::test_holds"],
    "torch-compile": [
        "integration/test_undisturbed.py::test_holds",
        "integration/test_compiled.py::test_graphs_that_are_compiled_after_the_first_start_are_those_without_us",
    ],
    "print-tensor": ["integration/test_undisturbed.py::test_printing_a_tensor_leaves_no_records"],
    "killed-process": [
        "integration/test_killed_process.py::test_kill_in_step_five_keeps_five_whole_steps_and_the_part_of_the_sixth",
        "integration/test_killed_process.py::test_sigterm_loses_no_finished_step",
    ],
    "empty-skeletons": ["integration/test_killed_process.py::test_files_appear_whole"],
    "threads": ["integration/test_process_life.py::test_threads_do_not_mix_their_calls"],
    "forked-child": ["integration/test_process_life.py::test_a_forked_child_records_nothing_and_says_so_once"],
    "one-dump-path": ["integration/test_defects.py::test_two_programs_with_one_dump_path_keep_their_own"],
    "rank-filter": ["integration/test_defects.py::test_a_rank_filter_without_ranks_is_said_and_nothing_is_written"],
    "second-configuration": ["integration/test_api_surface.py::test_a_second_construction_says_what_stays"],
    "scope-of-one-module": ["integration/test_defects.py::test_a_scope_from_a_module_to_itself_holds_what_runs_inside"],
    "regular-expressions": ["integration/test_config.py::test_a_regular_expression_in_list"],
    "core-linear": ["interop/test_side_by_side.py::test_same_dump"],
    "paths": ["integration/test_bad_input.py::test_any_path_will_do"],
    "bounded-memory": ["../agent/core/payload/memory_budget_test.cc::TEST"],
    "refused-tasks": ["integration/test_config.py::test_what_other_tools_do_is_refused_with_a_word_of_why"],
    "module-backward": ["integration/test_bit_identity.py::test_nothing_changes"],
    "misspelt-fields": ["integration/test_bad_input.py::test_a_misspelt_field_is_warned_about"],
    "two-passes": ["integration/test_newcomers.py::test_two_passes_over_one_forward_are_both_kept"],
    "inside-transforms": ["integration/test_newcomers.py::test_inside_vmap_a_record_says_why_it_has_no_numbers"],
    "log-lines": ["integration/test_newcomers.py::test_a_step_says_one_line_and_that_at_its_end"],
    "empty-step": ["integration/test_defects.py::test_a_step_without_a_record_ends_at_once"],
}


def documented():
    text = (REPOSITORY / "docs" / "compatibility.md").read_text()
    return re.findall(r"^\| `([a-z0-9-]+)` \|", text, re.MULTILINE)


@pytest.mark.parametrize("row", sorted({*ROWS, *SHOWN_BY}))
def test_the_difference_is_documented(row):
    assert row in documented(), f"docs/compatibility.md has no row `{row}`"


def test_no_row_stands_twice():
    rows = documented()
    assert sorted(rows) == sorted(set(rows))


@pytest.mark.parametrize("row", SHOWN_BY)
def test_the_row_is_shown_by_a_test(row):
    for test in SHOWN_BY[row]:
        path, function = test.split("::")
        text = (REPOSITORY / "tests" / path).read_text()
        assert function in text if function == "TEST" else re.search(rf"^def {function}\(", text, re.MULTILINE), test
