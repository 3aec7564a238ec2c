# Tensors of any file, and their layouts on devices. Includes are "server/format/tensors/kernel_dump.pb.h".
set(kernel_dump_proto ${CMAKE_CURRENT_SOURCE_DIR}/tensors/kernel_dump.proto)
set(kernel_dump_outputs ${PROJECT_BINARY_DIR}/server/format/tensors/kernel_dump.pb.cc
                        ${PROJECT_BINARY_DIR}/server/format/tensors/kernel_dump.pb.h)
add_custom_command(
  OUTPUT ${kernel_dump_outputs}
  COMMAND protobuf::protoc -I ${PROJECT_SOURCE_DIR} --cpp_out=${PROJECT_BINARY_DIR} server/format/tensors/kernel_dump.proto
  WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}
  DEPENDS ${kernel_dump_proto})
add_library(msprobe_kernel_dump_proto STATIC ${kernel_dump_outputs})
target_include_directories(msprobe_kernel_dump_proto SYSTEM PUBLIC ${PROJECT_BINARY_DIR})
target_link_libraries(msprobe_kernel_dump_proto PUBLIC protobuf::libprotobuf)

msprobe_library(msprobe_tensors
  SOURCES tensors/arrangement.cc tensors/atb_tensor.cc tensors/file_tensor.cc tensors/kernel_dump.cc tensors/safetensors_writer.cc
  DEPS msprobe_checkpoint msprobe_tensor_files msprobe_json msprobe_kernel_dump_proto absl::status absl::statusor absl::strings)
msprobe_test(tensors_test SOURCES tensors/arrangement_test.cc DEPS msprobe_tensors)
