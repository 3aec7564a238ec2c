#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/exporter/exported_step.h"
#include "server/exporter/file_sink.h"
#include "server/exporter/trend_export.h"
#include "server/exporter/vis_export.h"

namespace msprobe::server {

// The options of an export in any format. A format refuses those of another one that it is given.
struct ExportOptions {
  // Of "dump".
  bool extended = false;         // adds statistics that mindstudio-probe does not have
  bool strict_json = false;      // null instead of NaN, Infinity and -Infinity
  bool omit_tensors = false;     // leaves out the contents of tensors
  std::string output_directory;  // absolute path at which the reader will find the files; empty: not known
  // Of "vis" and "model-explorer".
  VisOptions graph;
  // Of "trend".
  TrendOptions trend;

  std::string spool_directory;  // files lie here while they are made, if the format cannot stream them
  // Hears of what the export lacks: each payload that never arrived, each file that is not there. May be empty.
  std::function<void(const std::string& warning)> on_warning;

  void Warn(const std::string& warning) const {
    if (on_warning) on_warning(warning);
  }
};

// One export: writes steps of one run, or of two beside each other, as files below one directory.
// Threads: one.
class StepsExport {
 public:
  virtual ~StepsExport() = default;
  // How the tables are to be read that Add takes; nothing: it takes records. Constant.
  virtual std::optional<DumpReading> reading() const { return std::nullopt; }
  // Adds a step of a rank. Steps come in order of step and rank; each has a golden side, or none has (empty).
  // InvalidArgument: the format shows one side only, or the step is not fit for it.
  virtual absl::Status Add(const ExportedStep& step, const ExportedStep& golden) = 0;
  // Called after the last step, to write files that cover all steps.
  virtual absl::Status Finish() { return absl::OkStatus(); }
};

// The export formats of a server, by name. A new format is one file that implements StepsExport and one line in
// Standard().
// Threads: any, once all formats are registered.
class ExportFormats {
 public:
  // Begins an export. The sink outlives it. InvalidArgument: an option is not the format's. ResourceExhausted: the
  // spool directory takes nothing.
  using Begin =
      std::function<absl::StatusOr<std::unique_ptr<StepsExport>>(const ExportOptions& options, FileSink& sink)>;

  static ExportFormats Standard();

  void Register(std::string name, Begin begin) { formats_[std::move(name)] = std::move(begin); }
  // An empty name means "dump". InvalidArgument: the format does not exist; the message lists those that do.
  absl::StatusOr<Begin> Find(std::string_view name) const;

 private:
  std::map<std::string, Begin, std::less<>> formats_;
};

// InvalidArgument: an option of "dump" is set, which `format` does not take.
absl::Status RefuseDumpOptions(const ExportOptions& options, std::string_view format);

// "dump": the files of mindstudio-probe (ExportStep, and WriteMergedDump of merged ranks), in one directory
// step{N}/rank{R} for each step and rank.
absl::StatusOr<std::unique_ptr<StepsExport>> BeginDump(const ExportOptions& options, FileSink& sink);
// "vis": a graph database (VisExport), graph.vis.db.
absl::StatusOr<std::unique_ptr<StepsExport>> BeginVis(const ExportOptions& options, FileSink& sink);
// "model-explorer": the files of ModelExplorerExport.
absl::StatusOr<std::unique_ptr<StepsExport>> BeginModelExplorer(const ExportOptions& options, FileSink& sink);
// "trend": a trend database (TrendExport), steps.trend.db.
absl::StatusOr<std::unique_ptr<StepsExport>> BeginTrend(const ExportOptions& options, FileSink& sink);

}  // namespace msprobe::server
