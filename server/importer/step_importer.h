#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "msprobe/v1/ingest.pb.h"
#include "server/format/tensor_file/tensor_file.h"
#include "server/importer/batch_builder.h"
#include "server/importer/dump_layout.h"
#include "server/importer/file_source.h"

namespace msprobe::server {

// Where the bytes of a payload are: needed again when the server wants them.
struct PayloadFile {
  std::string path;
  uint64_t size = 0;
  bool narrow_to_bfloat16 = false;  // the file holds bfloat16 widened to float32
};
// By hash.
using PayloadFiles = absl::flat_hash_map<std::string, PayloadFile>;

// The content of a tensor file as the store keeps it, in chunks.
absl::Status ReadTensorContent(FileSource& files, const PayloadFile& payload, ContentVisitor visit);

struct ImportedStep {
  v1::CaptureSettings settings;
  uint64_t records = 0;
};

// Reads the files of one step. With a builder the records go to it, and the tensor files are hashed into `payloads`.
// Without one the JSON files are only checked.
// InvalidArgument: "FILE: line 3, column 7: what is wrong"; "FILE: nested over 64 deep"; "FILE: N bytes; at most 4
// GiB"; "FILE: data.NAME.output.0.Max: what is expected, not what stands there".
absl::StatusOr<ImportedStep> ImportStep(FileSource& files, uint32_t step, const StepFiles& step_files,
                                        BatchBuilder* builder, PayloadFiles& payloads,
                                        std::vector<std::string>& warnings);

}  // namespace msprobe::server
