# Tensor files: the zip of torch.save and .npy, read and written without torch.
find_package(ZLIB REQUIRED)
pkg_check_modules(ISAL REQUIRED IMPORTED_TARGET libisal)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)

msprobe_library(msprobe_tensor_files
  SOURCES tensor_file/byte_source.cc tensor_file/describe_tensor.cc tensor_file/npy_file.cc tensor_file/paged_bytes.cc tensor_file/pickle_tree.cc tensor_file/pt_file.cc tensor_file/strided_content.cc tensor_file/tensor_file_name.cc tensor_file/tensor_pickle.cc tensor_file/widen.cc
          tensor_file/zip_reader.cc tensor_file/zip_writer.cc
  DEPS msprobe_proto msprobe_dtype_name absl::any_invocable absl::cleanup absl::flat_hash_map absl::function_ref absl::status absl::statusor absl::strings
       absl::str_format ZLIB::ZLIB PkgConfig::ISAL PkgConfig::XXHASH)

# JSON as Python's json module reads and writes it, and the files of a dump.
msprobe_library(msprobe_json
  SOURCES dump/call_order.cc dump/dump_cursor.cc dump/dump_rules.cc dump/dump_text.cc dump/dump_value.cc dump/frame_text.cc dump/stack_file.cc
          json/json_cursor.cc json/json_value.cc json/json_writer.cc
  DEPS msprobe_tensor_files absl::function_ref absl::status absl::statusor absl::strings)
msprobe_test(json_test
  SOURCES dump/dump_cursor_test.cc dump/dump_rules_test.cc dump/dump_text_test.cc dump/dump_value_test.cc dump/stack_file_test.cc
          json/json_cursor_test.cc json/json_value_test.cc json/json_writer_test.cc
  DEPS msprobe_json)

if(MSPROBE_BUILD_TESTS)
  add_executable(pt_file_tool tensor_file/pt_file_tool.cc)
  target_link_libraries(pt_file_tool PRIVATE msprobe_tensor_files msprobe_warnings)
endif()
msprobe_test(tensor_files_test SOURCES tensor_file/pickle_tree_test.cc tensor_file/tensor_files_test.cc DEPS msprobe_tensor_files)

if(MSPROBE_BUILD_TESTS)
  add_test(NAME pt_file_interop_test
           COMMAND ${PROJECT_SOURCE_DIR}/.venv/bin/python -m pytest -q -p no:cacheprovider
                   ${PROJECT_SOURCE_DIR}/tests/interop/test_pt_file.py)
  set_tests_properties(pt_file_interop_test PROPERTIES TIMEOUT 300
                       ENVIRONMENT MSPROBE_PT_FILE_TOOL=$<TARGET_FILE:pt_file_tool>)
endif()
