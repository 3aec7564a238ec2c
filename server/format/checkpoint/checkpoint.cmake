# Checkpoints: where the tensors of a model lie in its files, read without a framework.
msprobe_library(msprobe_checkpoint
  SOURCES checkpoint/checkpoint.cc checkpoint/distributed_checkpoint.cc checkpoint/logical_tensor.cc checkpoint/megatron_checkpoint.cc
          checkpoint/safetensors_dtype.cc checkpoint/safetensors_files.cc checkpoint/torch_archive.cc checkpoint/torch_files.cc
  DEPS msprobe_json msprobe_tensor_files absl::status absl::statusor absl::strings absl::str_format)
msprobe_test(checkpoint_test
  SOURCES checkpoint/logical_tensor_test.cc
  DEPS msprobe_checkpoint)
