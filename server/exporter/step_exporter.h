#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/exporter/file_sink.h"
#include "server/format/tensor_file/tensor_file.h"
#include "server/store/record_source.h"

namespace msprobe::server {

struct StepExportOptions {
  // Adds an "extended" object to each tensor: variance, counts, finite-only statistics, and the Mean and Norm that
  // mindstudio-probe leaves null.
  bool extended = false;
  // null instead of NaN, Infinity and -Infinity.
  bool strict_json = false;
  // No dump_tensor_data, no data_name.
  bool omit_tensors = false;
  // Absolute path of the rank directory as its reader will see it, for dump_data_dir. Empty: dump_data_dir is
  // "dump_tensor_data", relative to dump.json, where there are tensors.
  std::string directory;
};

struct StepExportSummary {
  uint64_t records = 0;
  uint64_t tensors = 0;               // files of dump_tensor_data
  uint64_t tensor_bytes = 0;          // their content
  std::vector<std::string> warnings;  // payloads that never arrived or do not fit their tensor
};

// A frame as a line of stack.json.
std::string FrameText(const v1::Frame& frame);

// "step3/rank0" or "step3/proc4711".
std::string StepDirectory(uint32_t step, const v1::Rank& rank);

// What the file of a leaf says about its tensor; a quantized one has its scale in attributes_json.
TensorDescription DescribeTensor(const v1::TensorLeaf& leaf);

// Writes one step of one rank as mindstudio-probe lays it out:
//   dump.json, stack.json and construct.json (both only if settings.stack_and_construct), dump_tensor_data/*;
//   debug.json alone for level debug; dump_error_info.log only if there were faults, gaps or missing payloads;
//   INCOMPLETE, saying why, beside a step that never ended or lost records.
// Reads the records twice and never holds the JSON of more than one record. The sink is left between files.
absl::StatusOr<StepExportSummary> ExportStep(RecordSource& reader, const StepExportOptions& options, FileSink& sink);

}  // namespace msprobe::server
