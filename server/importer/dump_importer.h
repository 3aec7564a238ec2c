#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "msprobe/v1/query.pb.h"
#include "server/format/tensor_file/byte_source.h"
#include "server/importer/file_source.h"
#include "server/ingest/session/session.h"

namespace msprobe::server {

struct DumpImportOptions {
  std::string run;  // not empty
  // Of files that lie in no step directory or no rank directory.
  uint32_t default_step = 0;
  v1::Rank default_rank;
  // How long one session may take to become durable.
  absl::Duration durable_timeout = absl::Minutes(5);
};

// Reads the directories of mindstudio-probe (and our own exports) and plays each rank of them as one session:
//   [prefix/][step{N}/][rank{R}|proc{P}/]{dump,stack,construct,debug}.json and dump_tensor_data/*.{pt,npy}
// so the root of a dump, one step or one rank directory may be given. Other files are left out with a warning. What
// graphs of MindSpore dump themselves is read by way of GraphDumpFiles.
//
// Nothing is made up: where a dump has no variance and no counts they stay absent, and a null Mean stays null.
// All JSON files are read and checked before the first session opens, so a run is imported whole or not at all.
// Contents of tensors are streamed. InvalidArgument names the file, the place in it, what stands there and what would
// be right.
absl::StatusOr<v1::ImportResponse> ImportDump(FileSource& files, const DumpImportOptions& options,
                                              SessionOpener& opener);

}  // namespace msprobe::server
