#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/exporter/file_sink.h"
#include "server/store/record_source.h"

namespace msprobe::server {

// What a request asks of an export, whatever its format. A format refuses what it cannot do.
struct ExportOptions {
  bool extended = false;         // statistics that mindstudio-probe does not have
  bool strict_json = false;      // null instead of NaN, Infinity and -Infinity
  bool omit_tensors = false;     // no contents of tensors
  std::string output_directory;  // where the files will lie, absolute; empty: not known
};

// One export: steps of one run, in order of step and rank, become files below one directory.
// Threads: one.
class StepsExport {
 public:
  virtual ~StepsExport() = default;
  virtual absl::Status Add(RecordSource& step) = 0;
  // After the last step: what holds all of them.
  virtual absl::Status Finish() { return absl::OkStatus(); }
};

// The formats of a server, by name. A new one is a file that makes a StepsExport, and a line in Standard().
// Threads: any, once all are registered.
class ExportFormats {
 public:
  // The sink outlives the export.
  using Begin = std::function<std::unique_ptr<StepsExport>(const ExportOptions& options, FileSink& sink)>;

  static ExportFormats Standard();

  void Register(std::string name, Begin begin) { formats_[std::move(name)] = std::move(begin); }
  // An empty name is "dump". InvalidArgument: there is no such format; says which there are.
  absl::StatusOr<Begin> Find(std::string_view name) const;

 private:
  std::map<std::string, Begin, std::less<>> formats_;
};

// "dump": each step and rank as mindstudio-probe lays it out (ExportStep), in step{N}/rank{R}.
std::unique_ptr<StepsExport> BeginDump(const ExportOptions& options, FileSink& sink);

}  // namespace msprobe::server
