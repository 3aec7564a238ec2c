#include <utility>

#include "server/exporter/export_formats.h"
#include "server/exporter/model_explorer_export.h"
#include "server/exporter/spool_directory.h"
#include "server/format/cat.h"

namespace msprobe::server {
namespace {

class ModelExplorerFormat : public StepsExport {
 public:
  ModelExplorerFormat(const ExportOptions& options, FileSink& sink, SpoolDirectory spool,
                      std::unique_ptr<ModelExplorerExport> files)
      : options_(options), sink_(sink), spool_(std::move(spool)), files_(std::move(files)) {}

  std::optional<DumpReading> reading() const override { return kGraphReading; }

  absl::Status Add(const ExportedStep& step, const ExportedStep& golden) override {
    if (step.merged != nullptr) {
      return absl::InvalidArgumentError("merged ranks are not part of Model Explorer's files");
    }
    absl::Status status = CheckCalls(step, options_.on_warning);
    if (status.ok() && !golden.empty()) status = CheckCalls(golden, options_.on_warning);
    return status.ok() ? files_->Add(step, golden) : status;
  }

  absl::Status Finish() override {
    absl::Status status = files_->Finish();
    for (const std::string& name : files_->files()) {
      if (status.ok()) status = CopyFile(Cat(spool_.path(), "/", name), name, sink_);
    }
    return status;
  }

 private:
  const ExportOptions options_;
  FileSink& sink_;
  const SpoolDirectory spool_;
  const std::unique_ptr<ModelExplorerExport> files_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<StepsExport>> BeginModelExplorer(const ExportOptions& options, FileSink& sink) {
  if (absl::Status status = RefuseDumpOptions(options, "model-explorer"); !status.ok()) return status;
  auto spool = SpoolDirectory::Make(options.spool_directory, "explorer");
  if (!spool.ok()) return spool.status();
  auto files = ModelExplorerExport::Begin(spool->path(), options.graph);
  if (!files.ok()) return files.status();
  return std::make_unique<ModelExplorerFormat>(options, sink, *std::move(spool), *std::move(files));
}

}  // namespace msprobe::server
