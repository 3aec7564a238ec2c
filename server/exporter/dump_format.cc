#include "server/exporter/export_formats.h"
#include "server/exporter/merged_dump.h"
#include "server/exporter/step_exporter.h"
#include "server/exporter/step_parts.h"
#include "server/format/cat.h"

namespace msprobe::server {
namespace {

// Puts the files into a directory of another sink.
class DirectoryOfSink : public FileSink {
 public:
  DirectoryOfSink(FileSink& sink, std::string directory) : sink_(sink), directory_(std::move(directory)) {}

  absl::Status Begin(std::string_view path) override { return sink_.Begin(Cat(directory_, "/", path)); }
  absl::Status Write(std::string_view content) override { return sink_.Write(content); }
  absl::Status End() override { return sink_.End(); }

 private:
  FileSink& sink_;
  const std::string directory_;
};

class DumpExport : public StepsExport {
 public:
  DumpExport(const ExportOptions& options, FileSink& sink) : options_(options), sink_(sink) {}

  absl::Status Add(const ExportedStep& step, const ExportedStep& golden) override {
    if (!golden.empty()) return absl::InvalidArgumentError("a dump is of one side: leave out the golden one");
    if (step.merged != nullptr) {
      v1::Rank rank;
      rank.set_kind(v1::Rank::RANK);
      rank.set_number(step.rank);
      return WriteMergedDump(*step.merged, StepDirectory(step.step, rank), sink_);
    }
    auto has_files = HasFiles(*step.records);
    if (!has_files.ok() || !*has_files) return has_files.status();
    for (const StepPart& part : PartsOf(*step.records)) {
      DirectoryOfSink files(sink_, part.directory);
      StepExportOptions options;
      options.extended = options_.extended;
      options.strict_json = options_.strict_json;
      options.omit_tensors = options_.omit_tensors;
      if (!options_.output_directory.empty()) options.directory = Cat(options_.output_directory, "/", part.directory);
      auto summary = ExportStep(*part.records, options, files);
      if (!summary.ok()) return summary.status();
      for (const std::string& warning : summary->warnings) options_.Warn(warning);
    }
    return absl::OkStatus();
  }

 private:
  const ExportOptions options_;
  FileSink& sink_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<StepsExport>> BeginDump(const ExportOptions& options, FileSink& sink) {
  return std::make_unique<DumpExport>(options, sink);
}

}  // namespace msprobe::server
