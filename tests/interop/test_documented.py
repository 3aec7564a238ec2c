"""docs/compatibility.md has a row for each difference that the comparer allows, and for each defect that is absent
here.
"""

import re
import sys

import pytest
from allowed import ALLOWED, DOCUMENTED_RULES, FAMILY_ALLOWED, NET_ALLOWED
from harness.processes import REPOSITORY, run

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
    "compile-check-tolerance": ["interop/test_compile_check.py::test_the_tolerance_is_that_of_the_dtype"],
    "compile-check-inside": ["interop/test_compile_check.py::test_a_compiled_module_stays_one_graph"],
    "compile-check-cast": ["interop/test_compile_check.py::test_cast_modules_are_compiled_and_cast"],
    "compile-check-unwrapped": [
        "interop/test_compile_check.py::test_a_model_without_wrapped_modules_is_compiled_whole"
    ],
    "compile-check-random": [
        "interop/test_compile_check.py::test_dropout_drops_the_same_elements_in_both",
        "interop/test_compile_check.py::test_a_model_in_evaluation_mode_stays_in_it",
    ],
    "print-tensor": ["integration/test_undisturbed.py::test_printing_a_tensor_leaves_no_records"],
    "killed-process": [
        "integration/test_killed_process.py::test_kill_in_step_five_keeps_five_whole_steps_and_the_part_of_the_sixth",
        "integration/test_killed_process.py::test_sigterm_loses_no_finished_step",
    ],
    "empty-skeletons": ["integration/test_killed_process.py::test_files_appear_whole"],
    "threads": ["integration/test_process_life.py::test_threads_do_not_mix_their_calls"],
    "forked-child": [
        "integration/test_process_life.py::test_a_forked_child_that_does_not_start_records_and_says_nothing",
        "integration/test_process_life.py::test_a_forked_child_that_starts_captures_or_says_why_not",
    ],
    "one-dump-path": ["integration/test_defects.py::test_two_programs_with_one_dump_path_keep_their_own"],
    "rank-filter": ["integration/test_defects.py::test_a_rank_filter_without_ranks_is_said_and_nothing_is_written"],
    "second-configuration": ["integration/test_api_surface.py::test_a_second_construction_says_what_stays"],
    "scope-of-one-module": ["integration/test_defects.py::test_a_scope_from_a_module_to_itself_holds_what_runs_inside"],
    "regular-expressions": ["integration/test_config.py::test_a_regular_expression_in_list"],
    "core-linear": ["interop/test_side_by_side.py::test_same_dump"],
    "paths": ["integration/test_bad_input.py::test_any_path_will_do"],
    "bounded-memory": ["integration/test_memory_held.py::test_the_ceiling_holds_all_of_it"],
    "refused-tasks": ["integration/test_config.py::test_what_other_tools_do_is_refused_with_a_word_of_why"],
    "module-backward": ["integration/test_bit_identity.py::test_nothing_changes"],
    "misspelt-fields": ["integration/test_bad_input.py::test_a_misspelt_field_is_warned_about"],
    "two-passes": ["integration/test_newcomers.py::test_two_passes_over_one_forward_are_both_kept"],
    "inside-transforms": ["integration/test_newcomers.py::test_inside_vmap_a_record_says_why_it_has_no_numbers"],
    "log-lines": ["integration/test_newcomers.py::test_a_step_says_one_line_and_that_at_its_end"],
    "shared-files": [
        "integration/test_remembered.py::test_a_saved_tensor_that_stays_as_it_was_is_one_file_of_all_steps"
    ],
    "empty-step": ["integration/test_defects.py::test_a_step_without_a_record_ends_at_once"],
    "half-precision-statistics": [
        "interop/test_parity.py::test_half_precision_may_not_be_farther_from_the_truth",
        "interop/test_side_by_side.py::test_same_dump",
    ],
    "fp32-sum-overflow": ["interop/test_side_by_side.py::test_same_dump"],
    "xor-of-one-element": ["interop/test_side_by_side.py::test_same_dump"],
    "zeros-of-both-signs": ["integration/test_random.py::test_argument_trees"],
    "tiny-norms": ["interop/test_nets.py::test_where_the_numbers_differ_ours_are_true"],
    "gradient-before-in-place": ["interop/test_nets.py::test_same_dump"],
    "recursive-module": ["interop/test_nets.py::test_where_the_numbers_differ_ours_are_true"],
    "recompute": ["integration/test_all_that_runs.py::test_capture_all_records_indexing_every_operator_and_the_root"],
    "asynchronous-collectives": [
        "integration/test_all_that_runs.py::test_asynchronous_collectives_are_recorded_at_wait",
    ],
    "custom-operators": [
        "integration/test_all_that_runs.py::test_default_capture_names_what_the_lists_and_the_namespaces_name",
    ],
    "grad-probe-signs": [
        "integration/test_gradient_signs.py::test_equal_signs_are_stored_once_and_take_a_bit",
        "interop/test_grad_probe.py::test_distributions_and_signs_are_equal_byte_for_byte",
    ],
    "grad-probe-dtypes": ["integration/test_gradient_signs.py::test_intervals_of_float16_are_counted"],
    "grad-probe-missing": [
        "integration/test_gradient_signs.py::test_a_parameter_without_a_gradient_leaves_a_cell_empty",
    ],
    "free-benchmark-rank": [
        "integration/test_free_benchmark.py::test_violations_are_written_and_the_program_computes_the_same_bits",
    ],
    "free-benchmark-pieces": ["integration/test_free_benchmark.py::test_a_large_tensor_is_judged_by_all_of_it"],
    "free-benchmark-small": ["integration/test_free_benchmark.py::test_small_numbers_are_judged_by_their_own_size"],
    "free-benchmark-nan": ["integration/test_free_benchmark.py::test_a_nan_on_one_side_is_a_difference"],
    "free-benchmark-inputs": ["integration/test_free_benchmark.py::test_each_input_is_perturbed_by_itself"],
    "free-benchmark-gradients": [
        "integration/test_free_benchmark.py::test_a_shared_inputs_gradient_is_judged_call_by_call",
    ],
    "free-benchmark-casts": [
        "integration/test_free_benchmark.py::test_violations_are_written_and_the_program_computes_the_same_bits",
    ],
    "free-benchmark-place": [
        "integration/test_free_benchmark.py::test_violations_are_written_and_the_program_computes_the_same_bits",
    ],
    "free-benchmark-random": [
        "integration/test_free_benchmark.py::test_what_draws_numbers_is_left_out_and_draws_the_same",
    ],
    "free-benchmark-samples": ["integration/test_free_benchmark.py::test_samples_are_twenty_where_nobody_says"],
    "free-benchmark-mindspore-list": ["mindspore/test_free_benchmark.py::test_gradients_are_computed_again_on_copies"],
    "free-benchmark-mindspore-random": [
        "mindspore/test_free_benchmark.py::test_a_call_is_made_once_where_twice_would_show",
    ],
    "free-benchmark-mindspore-gradients": [
        "mindspore/test_free_benchmark.py::test_gradients_are_computed_again_on_copies",
    ],
    "free-benchmark-mindspore-sign": ["mindspore/test_free_benchmark.py::test_what_is_a_difference"],
    "free-benchmark-mindspore-bfloat16": ["mindspore/test_free_benchmark.py::test_numbers_change_as_in_pytorch"],
    "linear-weight": [
        "integration/test_all_that_runs.py::test_the_gradient_of_a_linears_weight_is_there_when_asked_for",
    ],
    "module-handed-through": ["interop/test_families.py::test_same_dump"],
    "exact-and-hooks": ["interop/test_families.py::test_exact_gradients_are_those_of_full_backward_hooks"],
    "unset-memory": ["interop/test_families.py::test_same_dump"],
    "changed-in-place": ["interop/test_nets.py::test_same_dump"],
    "gradient-stops": ["interop/test_nets.py::test_a_module_that_no_gradient_reaches_ends_with_its_last_node"],
    "deep-stacks": ["integration/test_memory_held.py::test_the_ceiling_holds_the_stacks_of_calls_that_nest_deeply"],
    "stack-frames": ["interop/test_side_by_side.py::test_same_dump"],
    "token-range": ["integration/test_config.py::test_token_range_is_that_of_mindstudio"],
    "bench-path": ["integration/test_config.py::test_bench_path_keeps_what_mindstudio_keeps"],
    "precision-high": ["integration/test_config.py::test_precision_high_leaves_no_mean_or_norm_out"],
    "sliced-strides": ["interop/test_switches.py::test_same_dump"],
    "euclidean-distance": ["interop/test_compare.py::test_tables_are_the_same_cell_for_cell"],
    "fuzzy-statistics": ["interop/test_compare_differences.py::test_fuzzy_rows_have_the_numbers_of_their_partners"],
    "fuzzy-end": [
        "interop/test_compare_differences.py::test_fuzzy_rows_behind_the_end_of_the_shorter_side_have_no_partner",
    ],
    "steps-and-ranks": ["interop/test_compare_differences.py::test_all_steps_are_compared_and_ranks_by_their_numbers"],
    "complex-contents": ["interop/test_compare_differences.py::test_both_parts_of_complex_contents_are_compared"],
    "special-characters": ["interop/test_compare_differences.py::test_values_that_a_spreadsheet_would_run_are_written"],
    "post-processing": ["interop/test_compare_differences.py::test_contents_are_compared_as_they_are"],
    "reply-harmonic": ["interop/test_response_anomaly.py::test_every_verdict_is_the_same_but_where_a_harmonic_decides"],
    "reply-candidates": ["interop/test_response_anomaly.py::test_a_reply_with_few_candidates_cuts_those_of_no_other"],
    "reply-arguments": ["interop/test_response_anomaly.py::test_what_is_wrong_is_named"],
    "reply-model-files": ["interop/test_gen_model_config.py::test_files_are_the_same_and_another_model_stays"],
    "reply-vocabulary": [
        "interop/test_response_anomaly.py::test_a_vocabulary_is_used_where_the_model_and_the_last_token_are_known",
    ],
    "first-difference-peers": ["interop/test_old_commands.py::test_first_differences_are_the_same"],
    "calibration-files": ["interop/test_old_commands.py::test_a_calibration_that_cannot_be_is_refused"],
    "training-order": [
        "interop/test_train_infer.py::test_rows_whose_orders_contradict_each_other_are_in_the_training_sides",
    ],
    "training-checksums": ["interop/test_train_infer.py::test_checksums_are_refused_in_one_line"],
    "frameworks-grad": ["interop/test_compare_mapping.py::test_the_table_is_the_same_cell_for_cell"],
    "frameworks-dtype": ["interop/test_compare_mapping.py::test_the_table_is_the_same_cell_for_cell"],
    "frameworks-classes": ["interop/test_compare_mapping.py::test_the_table_is_the_same_cell_for_cell"],
    "frameworks-unasked": [
        "mindspore/test_across_frameworks.py::test_a_table_of_mindstudio_probe_condemns_only_what_differs",
    ],
    "frameworks-swapped": [
        "mindspore/test_across_frameworks.py::test_what_has_a_counterpart_has_its_partner_and_agrees",
    ],
    "mapped-backward": ["interop/test_compare_mapping.py::test_the_table_is_the_same_cell_for_cell"],
    "mapped-together": [
        "mindspore/test_across_frameworks.py::test_a_table_of_mindstudio_probe_condemns_only_what_differs",
    ],
    "layer-mapping": ["interop/test_compare_differences.py::test_a_layer_mapping_is_applied_to_pytorch"],
    "overflow-of-weights": [
        "interop/test_compare_differences.py::test_overflow_check_lists_weights_and_inputs_that_nobody_made",
    ],
    "first-line-pairs": ["interop/test_old_commands.py::test_tables_of_the_first_line"],
    "first-line-rows": ["interop/test_old_commands.py::test_tables_of_the_first_line"],
    "first-line-groups": ["interop/test_old_commands.py::test_tables_of_the_first_line"],
    "first-line-words": ["interop/test_old_commands.py::test_tables_of_the_first_line"],
    "first-line-scalars": ["interop/test_old_commands.py::test_tables_of_the_first_line"],
    "first-line-nothing": ["interop/test_old_commands.py::test_tables_of_the_first_line"],
    "first-line-zeros": ["interop/test_old_commands.py::test_tables_of_the_first_line"],
    "first-line-advice": ["interop/test_old_commands.py::test_tables_of_the_first_line"],
    "first-line-stacks": ["interop/test_old_commands.py::test_functions_of_either_line"],
    "graph-json": ["interop/test_graph_databases.py::test_merged_ranks_as_a_dump"],
    "parse-cann": ["interop/test_parse.py::test_the_shell_reads_kernel_dumps_without_cann"],
    "parse-vc": ["interop/test_parse.py::test_what_is_wrong_is_one_line_and_the_shell_goes_on"],
    "parse-vc-zero": ["interop/test_parse.py::test_relative_errors_of_directories_leave_zeros_out"],
    "parse-directory": ["interop/test_parse.py::test_what_is_wrong_is_one_line_and_the_shell_goes_on"],
    "parse-channels": ["interop/test_parse.py::test_the_shell_reads_kernel_dumps_without_cann"],
    "parse-sizes": ["interop/test_parse.py::test_what_is_wrong_is_one_line_and_the_shell_goes_on"],
    "parse-pk": ["interop/test_parse.py::test_the_shell_shows_an_operation"],
    "parse-numbers": ["interop/test_parse.py::test_the_shell_compares_two_tensors"],
    "op-generate-device": ["interop/test_op_generate.py::test_real_data_lie_beside_the_script_which_needs_torch_alone"],
    "op-generate-saved": ["interop/test_op_generate.py::test_real_data_lie_beside_the_script_which_needs_torch_alone"],
    "op-generate-keywords": [
        "interop/test_op_generate.py::test_real_data_lie_beside_the_script_which_needs_torch_alone"
    ],
    "op-generate-stale": ["interop/test_op_generate.py::test_what_is_wrong_is_said_in_one_line"],
    "op-generate-non-finite": ["interop/test_op_generate.py::test_what_an_operator_does_wrong_is_in_the_table"],
    "op-generate-text": ["interop/test_op_generate.py::test_real_data_lie_beside_the_script_which_needs_torch_alone"],
    "op-generate-random": ["interop/test_op_generate.py::test_a_random_operator_and_one_of_complex_numbers"],
    "op-generate-complex": ["interop/test_op_generate.py::test_a_random_operator_and_one_of_complex_numbers"],
    "op-generate-defaults": ["interop/test_op_generate.py::test_tables_are_the_same"],
    "acc-check-non-finite": ["interop/test_acc_check.py::test_where_mindstudio_passes_what_is_wrong"],
    "acc-check-scale": ["interop/test_acc_check.py::test_where_mindstudio_passes_what_is_wrong"],
    "acc-check-int8": ["interop/test_acc_check.py::test_where_mindstudio_passes_what_is_wrong"],
    "acc-check-float8": ["interop/test_acc_check.py::test_every_code_of_float8_is_what_it_stands_for"],
    "acc-check-bfloat16": ["interop/test_acc_check.py::test_the_tables_are_the_same"],
    "acc-check-standards": [
        "interop/test_acc_check.py::test_what_every_standard_reads_is_the_same",
        "interop/test_acc_check.py::test_three_ways_are_judged_the_same",
    ],
    "acc-check-random": ["interop/test_acc_check.py::test_the_tables_are_the_same"],
    "acc-check-keywords": ["interop/test_acc_check.py::test_the_tables_are_the_same"],
    "acc-check-drawn": ["interop/test_acc_check.py::test_drawn_inputs_have_the_same_rows"],
    "acc-check-filter": ["interop/test_acc_check.py::test_an_interrupted_check_goes_on"],
    "acc-check-messages": ["interop/test_acc_check.py::test_the_tables_are_the_same"],
    "acc-check-digits": ["interop/test_acc_check.py::test_the_tables_are_the_same"],
    "acc-check-refused": ["interop/test_acc_check.py::test_processes_share_the_calls_and_one_that_dies_costs_one"],
    "acc-check-crashed": ["interop/test_acc_check.py::test_processes_share_the_calls_and_one_that_dies_costs_one"],
    "acc-check-numbers": ["interop/test_acc_check.py::test_numbers_are_outputs_like_others"],
    "acc-check-hf32": [
        "interop/test_acc_check.py::test_the_tables_are_the_same",
        "interop/test_acc_check.py::test_a_convolution_in_hf32_is_right_by_the_table_and_not_by_default",
    ],
    "acc-check-recorded": [
        "integration/test_check.py::test_a_wrong_kernel_is_found_in_what_it_computed",
        "mindspore/test_check.py::test_check_runs_mindspore_and_takes_what_was_saved",
    ],
    "mindspore-check-scale": [
        "mindspore/test_check.py::test_small_numbers_that_are_wrong_fail_and_a_check_goes_on_where_it_was"
    ],
    "mindspore-check-lists": ["mindspore/test_check.py::test_acc_check_s_tables_are_those_of_mindstudio_probe"],
    "mindspore-check-unasked": ["mindspore/test_check.py::test_acc_check_s_tables_are_those_of_mindstudio_probe"],
    "mindspore-check-numbers": ["mindspore/test_check.py::test_acc_check_s_tables_are_those_of_mindstudio_probe"],
    "mindspore-check-messages": ["mindspore/test_check.py::test_acc_check_s_tables_are_those_of_mindstudio_probe"],
    "mindspore-check-crashed": ["mindspore/test_check.py::test_a_call_that_ends_mindspore_costs_that_call"],
    "acc-check-names": ["interop/test_acc_check.py::test_processes_share_the_calls_and_one_that_dies_costs_one"],
    "acc-check-saved": ["interop/test_acc_check.py::test_processes_share_the_calls_and_one_that_dies_costs_one"],
    "acc-check-unmeasured": ["interop/test_acc_check.py::test_a_row_without_numbers_has_the_first_stages_verdict"],
    "config-check-secrets": ["interop/test_config_packs.py::test_no_secret_is_in_a_pack"],
    "config-check-pcie": ["interop/test_config_check.py::test_pcie_is_a_variable_of_its_own"],
    "config-check-sides": ["interop/test_config_check.py::test_workbooks_have_the_same_rows"],
    "config-check-values": ["interop/test_config_packs.py::test_a_pack_replaces_another"],
    "config-check-defaults": ["interop/test_config_check.py::test_pcie_is_a_variable_of_its_own"],
    "config-check-relative": ["interop/test_config_packs.py::test_a_weight_that_one_side_lacks_is_no_pass"],
    "config-check-lacking": ["interop/test_config_packs.py::test_a_weight_that_one_side_lacks_is_no_pass"],
    "config-check-permuted": ["interop/test_config_packs.py::test_the_same_numbers_in_another_order_are_not_equal"],
    "config-check-scripts": ["interop/test_config_packs.py::test_a_launch_script_is_read_as_the_shell_reads_it"],
    "config-check-names": [
        "interop/test_config_packs.py::test_parameters_whose_names_end_alike_keep_their_own_partners",
    ],
    "config-check-logs": ["interop/test_config_packs.py::test_the_configuration_of_verl_is_found_among_other_lines"],
    "config-check-replaced": ["interop/test_config_packs.py::test_a_pack_replaces_another"],
    "config-check-extracted": ["interop/test_config_check.py::test_results_have_the_workbook_alone"],
    "config-check-checkpoints": ["interop/test_config_check.py::test_checkpoints_have_the_same_numbers"],
    "single-members": ["interop/test_single_save.py::test_members_have_rows_of_their_own"],
    "single-non-finite": ["interop/test_single_save.py::test_numbers_that_mindstudio_gets_wrong"],
    "single-types": ["interop/test_single_save.py::test_numbers_that_mindstudio_gets_wrong"],
    "single-half": ["interop/test_single_save.py::test_half_precision_is_measured_in_float32"],
    "single-silent": ["interop/test_single_save.py::test_what_is_compared_in_part_or_not_at_all_is_said"],
    "graph-overflow": ["interop/test_graph_databases.py::test_the_recorded_database"],
    "graph-micro-steps": ["interop/test_graph_databases.py::test_calls_without_their_parents_are_shown"],
    "graph-values": ["interop/test_graph_databases.py::test_every_row_is_the_same"],
    "graph-stacks": ["interop/test_graph_databases.py::test_every_row_is_the_same"],
    "graph-infinities": ["interop/test_graph_databases.py::test_every_row_is_the_same"],
    "graph-language": ["interop/test_graph_databases.py::test_every_row_is_the_same"],
    "graph-orphans": ["interop/test_graph_databases.py::test_calls_without_their_parents_are_shown"],
    "graph-frameworks": ["mindspore/test_across_frameworks.py::test_trends_and_graphs_of_both_belong_together"],
    "graph-mapping": ["interop/test_graph_databases.py::test_what_cannot_be_shown_is_refused"],
    "graph-merged-tensors": ["interop/test_graph_databases.py::test_what_cannot_be_shown_is_refused"],
    "graph-vpp": ["interop/test_graph_databases.py::test_what_is_outside_of_layers_stays"],
    "graph-place": ["interop/test_graph_databases.py::test_step_and_rank_are_those_of_the_path"],
    "graph-index": ["interop/test_graph_databases.py::test_step_and_rank_are_those_of_the_path"],
    "graph-repeated": ["interop/test_graph_databases.py::test_a_graph_is_replaced_whole_and_needs_no_stacks"],
    "graph-no-stacks": ["interop/test_graph_databases.py::test_a_graph_is_replaced_whole_and_needs_no_stacks"],
    "graph-packed": ["interop/test_graph_databases.py::test_step_and_rank_are_those_of_the_path"],
    "trend-values": ["interop/test_trend_databases.py::test_every_row_of_the_first_monitor"],
    "trend-more": ["interop/test_trend_databases.py::test_every_row_of_several_ranks"],
    "trend-counts": ["interop/test_trend_databases.py::test_a_stored_run_has_counts"],
    "trend-micro-steps": ["interop/test_trend_databases.py::test_every_row_of_a_model"],
    "trend-recompute": ["interop/test_trend_databases.py::test_what_checkpointing_computes_again_is_a_metric"],
    "trend-roots": ["interop/test_trend_databases.py::test_every_row_of_several_ranks"],
    "trend-processes": ["interop/test_trend_databases.py::test_processes_without_a_rank_keep_their_number"],
    "trend-second-monitor": ["interop/test_trend_databases.py::test_every_row_of_the_second_monitor"],
    "trend-restarts": ["interop/test_trend_databases.py::test_a_monitor_that_began_again_has_all_of_its_output"],
    "trend-numbers": ["interop/test_trend_databases.py::test_the_plugin_answers_the_same"],
    "trend-index": ["interop/test_trend_databases.py::test_processes_without_a_rank_keep_their_number"],
    "trend-nothing": ["interop/test_trend_databases.py::test_where_nothing_can_be_read_it_says_so"],
}

# Defect of mindstudio-probe 26.2.0 that must not come back -> rows above and tests that show it.
DEFECTS = {
    "an exception in an API loses the rest of the step": ["exception-in-api"],
    "non-reentrant checkpointing loses the rest of the step": ["non-reentrant-checkpoint"],
    "odd tensors and results raise into the program": ["unusual-tensors"],
    "one value that JSON cannot hold ruins the file": ["not-json"],
    "fp8 with task tensor destroys the program's tensor": [
        "unusual-tensors",
        "integration/test_bad_input.py::test_the_next_step_is_as_if_nothing_had_been",
    ],
    "checksums are of bytes that changed after the call; one CPU is not enough": ["checksum-race", "one-cpu"],
    "xor of quantized and 0-D tensors": ["unusual-tensors", "integration/test_random.py::test_argument_trees"],
    "norms, sums and half-precision statistics are wrong or missing": [
        "fp16-norm-overflow",
        "fp32-sum-overflow",
        "half-precision-statistics",
        "precision-high",
    ],
    "NaN and Infinity in what should be JSON": ["strict-json"],
    "calls that are not captured": ["not-captured", "linear-weight"],
    "compilation, tracing, identity and pickling break": ["torch-compile", "patched-names"],
    "printing a tensor leaves records": ["print-tensor"],
    "a killed process loses its step": ["killed-process"],
    "files are rewritten in place": ["empty-skeletons"],
    "threads mix their records": ["threads"],
    "forks, ranks and a second program disturb the dump": ["forked-child", "one-dump-path", "rank-filter"],
    "a second configuration is ignored, and nothing is put back": [
        "second-configuration",
        "integration/test_api_surface.py::test_every_function_stays_itself_and_is_put_back",
    ],
    "filters that match nothing or too little": ["scope-of-one-module", "regular-expressions", "core-linear"],
    "paths are refused": ["paths"],
    "a step is kept whole in memory": ["bounded-memory"],
    "the error log is never written; acc_check cannot be constructed": [
        "integration/test_stages.py::test_a_mistake_in_a_stage_stays_out_of_the_run",
        "refused-tasks",
    ],
    "hooks change gradients, and reading a value waits for the device": [
        "module-backward",
        "integration/test_device.py::test_nobody_waits_for_the_device",
    ],
    "misspelt fields pass; few fields change while the program runs": [
        "misspelt-fields",
        "integration/test_config.py::test_a_changed_file_changes_the_capture",
    ],
}


def documented():
    text = (REPOSITORY / "docs" / "compatibility.md").read_text()
    return re.findall(r"^\| `([a-z0-9-]+)` \|", text, re.MULTILINE)


@pytest.fixture(scope="module")
def collected():
    """Every test that pytest finds in the files named here, without its parameters."""
    named = {test for tests in (*SHOWN_BY.values(), *DEFECTS.values()) for test in tests if "::" in test}
    files = sorted({test.partition("::")[0] for test in named})
    found = set()
    for folder in ("integration", "interop", "mindspore"):  # apart, because programs of two have the same names
        command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "", "-p", "no:cacheprovider"]
        said = run([*command, *(file for file in files if file.startswith(folder))], cwd=REPOSITORY / "tests").stdout
        found |= {line.partition("[")[0].removeprefix("tests/") for line in said.splitlines() if "::" in line}
    return found


def test_every_row_and_no_other_names_its_tests():
    assert set(documented()) == set(SHOWN_BY)


def test_what_the_comparer_allows_is_documented():
    assert set(ROWS) <= set(SHOWN_BY)


def test_no_row_stands_twice():
    rows = documented()
    assert sorted(rows) == sorted(set(rows))


@pytest.mark.timeout(300)
def test_rows_and_defects_name_tests_that_run(collected):
    assert [test for tests in SHOWN_BY.values() for test in tests if test not in collected] == []
    shown = {*SHOWN_BY, *collected}
    assert [each for shows in DEFECTS.values() for each in shows if each not in shown] == []
