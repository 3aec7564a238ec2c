#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "msprobe/v1/ingest.pb.h"
#include "rapidjson/document.h"
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

// Reads the files of one step. With a builder its records go there and its tensor files are hashed into `payloads`;
// without one they are only checked. Errors name the file and the place.
absl::StatusOr<ImportedStep> ImportStep(FileSource& files, uint32_t step, const StepFiles& step_files,
                                        BatchBuilder* builder, PayloadFiles& payloads,
                                        std::vector<std::string>& warnings);

}  // namespace msprobe::server
