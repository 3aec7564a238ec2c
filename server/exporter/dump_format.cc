#include <algorithm>

#include "server/exporter/export_formats.h"
#include "server/exporter/step_exporter.h"
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

  absl::Status Add(RecordSource& step) override {
    const std::string directory = StepDirectory(step.step(), step.rank());
    DirectoryOfSink files(sink_, directory);
    StepExportOptions options;
    options.extended = options_.extended;
    options.strict_json = options_.strict_json;
    options.omit_tensors = options_.omit_tensors;
    if (!options_.output_directory.empty()) options.directory = Cat(options_.output_directory, "/", directory);
    auto summary = ExportStep(step, options, files);
    if (!summary.ok()) return summary.status();
    if (options_.on_warning) std::for_each(summary->warnings.begin(), summary->warnings.end(), options_.on_warning);
    return absl::OkStatus();
  }

 private:
  const ExportOptions options_;
  FileSink& sink_;
};

}  // namespace

std::unique_ptr<StepsExport> BeginDump(const ExportOptions& options, FileSink& sink) {
  return std::make_unique<DumpExport>(options, sink);
}

}  // namespace msprobe::server
