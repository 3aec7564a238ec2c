#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/exporter/file_sink.h"
#include "server/store/record_source.h"

namespace msprobe::server {

// Stacks as stack.json has them, by their id in a run: most are in every step of a session, and are made text once.
// Threads: one at a time.
class StackTexts {
 public:
  // Of all texts together. A stack that would be beyond that takes the place of all others.
  static constexpr size_t kMaxBytes = size_t{4} << 20;

  // Null: it is not here. Valid until the next Keep.
  const std::string* Find(uint64_t stack_id) const;
  const std::string& Keep(uint64_t stack_id, std::string text);

 private:
  absl::flat_hash_map<uint64_t, std::string> texts_;
  size_t bytes_ = 0;
};

struct StepExportOptions {
  // Adds an "extended" object to each tensor: variance, counts, finite-only statistics, and the Mean and Norm that
  // mindstudio-probe leaves null.
  bool extended = false;
  // null instead of NaN, Infinity and -Infinity.
  bool strict_json = false;
  // Leaves out dump_tensor_data and data_name.
  bool omit_tensors = false;
  // Absolute path at which the reader will find the rank directory, for dump_data_dir. Empty: dump_data_dir is
  // "dump_tensor_data", relative to dump.json, if there are tensors.
  std::string directory;
  // Of the same run, for its other steps; null: every stack is read.
  StackTexts* stacks = nullptr;
};

struct StepExportSummary {
  uint64_t records = 0;
  uint64_t tensors = 0;               // files in dump_tensor_data
  uint64_t tensor_bytes = 0;          // bytes of tensor content in those files
  std::vector<std::string> warnings;  // one for each payload that never arrived or does not fit its tensor
};

// Whether mindstudio-probe's files have anything to say of a step: not where all its records are others than those of
// its level, as digests of weights are.
absl::StatusOr<bool> HasFiles(RecordSource& reader);

// "step3/rank0" or "step3/proc4711".
std::string StepDirectory(uint32_t step, const v1::Rank& rank);

// Writes one step of one rank in the layout of mindstudio-probe:
//   dump.json and dump_tensor_data/*; stack.json and construct.json only if settings.stack_and_construct;
//   debug.json instead of all these for level debug;
//   dump_error_info.log only if there were faults, gaps or missing payloads;
//   INCOMPLETE, with the reason, only if the step never ended or lost records.
// Reads the records twice and never holds the JSON of more than one record. The sink is left between two files.
absl::StatusOr<StepExportSummary> ExportStep(RecordSource& reader, const StepExportOptions& options, FileSink& sink);

}  // namespace msprobe::server
