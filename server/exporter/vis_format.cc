#include <utility>

#include "server/exporter/export_formats.h"
#include "server/exporter/spool_directory.h"
#include "server/format/cat.h"

namespace msprobe::server {
namespace {

constexpr std::string_view kVisFile = "graph.vis.db";

class VisFormat : public StepsExport {
 public:
  VisFormat(const ExportOptions& options, FileSink& sink, SpoolDirectory spool, std::unique_ptr<VisExport> file)
      : options_(options), sink_(sink), spool_(std::move(spool)), file_(std::move(file)) {}

  std::optional<DumpReading> reading() const override { return kGraphReading; }

  absl::Status Add(const ExportedStep& step, const ExportedStep& golden) override {
    absl::Status status = CheckCalls(step, options_.on_warning);
    if (status.ok() && !golden.empty()) status = CheckCalls(golden, options_.on_warning);
    return status.ok() ? file_->Add(step, golden) : status;
  }

  absl::Status Finish() override {
    absl::Status status = file_->Finish();
    return status.ok() ? CopyFile(Cat(spool_.path(), "/", kVisFile), kVisFile, sink_) : status;
  }

 private:
  const ExportOptions options_;
  FileSink& sink_;
  const SpoolDirectory spool_;
  const std::unique_ptr<VisExport> file_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<StepsExport>> BeginVis(const ExportOptions& options, FileSink& sink) {
  if (absl::Status status = RefuseDumpOptions(options, "vis"); !status.ok()) return status;
  auto spool = SpoolDirectory::Make(options.spool_directory, "graph");
  if (!spool.ok()) return spool.status();
  auto file = VisExport::Begin(Cat(spool->path(), "/", kVisFile), options.graph);
  if (!file.ok()) return file.status();
  return std::make_unique<VisFormat>(options, sink, *std::move(spool), *std::move(file));
}

}  // namespace msprobe::server
