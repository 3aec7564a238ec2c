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

// The options of an export in any format. A format returns an error for an option that it cannot honour.
struct ExportOptions {
  bool extended = false;         // adds statistics that mindstudio-probe does not have
  bool strict_json = false;      // null instead of NaN, Infinity and -Infinity
  bool omit_tensors = false;     // leaves out the contents of tensors
  std::string output_directory;  // absolute path at which the reader will find the files; empty: not known
  // Hears of each payload that never arrived or does not fit its tensor. May be empty.
  std::function<void(const std::string& warning)> on_warning;
};

// One export: writes steps of one run as files below one directory.
// Threads: one.
class StepsExport {
 public:
  virtual ~StepsExport() = default;
  // Adds a step of a rank. Steps come in order of step and rank.
  virtual absl::Status Add(RecordSource& step) = 0;
  // Called after the last step, to write files that cover all steps.
  virtual absl::Status Finish() { return absl::OkStatus(); }
};

// The export formats of a server, by name. A new format is one file that implements StepsExport and one line in
// Standard().
// Threads: any, once all formats are registered.
class ExportFormats {
 public:
  // Begins an export. The sink outlives it.
  using Begin = std::function<std::unique_ptr<StepsExport>(const ExportOptions& options, FileSink& sink)>;

  static ExportFormats Standard();

  void Register(std::string name, Begin begin) { formats_[std::move(name)] = std::move(begin); }
  // An empty name means "dump". InvalidArgument: the format does not exist; the message lists those that do.
  absl::StatusOr<Begin> Find(std::string_view name) const;

 private:
  std::map<std::string, Begin, std::less<>> formats_;
};

// "dump": the files of mindstudio-probe (ExportStep), in one directory step{N}/rank{R} for each step and rank.
std::unique_ptr<StepsExport> BeginDump(const ExportOptions& options, FileSink& sink);

}  // namespace msprobe::server
