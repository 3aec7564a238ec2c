#include <filesystem>
#include <utility>

#include "server/exporter/export_formats.h"
#include "server/exporter/spool_directory.h"
#include "server/format/cat.h"

namespace msprobe::server {
namespace {

constexpr std::string_view kTrendFile = "steps.trend.db";

class TrendFormat : public StepsExport {
 public:
  TrendFormat(const ExportOptions& options, FileSink& sink, SpoolDirectory spool)
      : options_(options),
        sink_(sink),
        spool_(std::move(spool)),
        path_(Cat(spool_.path(), "/", kTrendFile)),
        file_(path_, options.trend) {}

  std::optional<DumpReading> reading() const override {
    const bool calls = options_.trend.micro_steps;
    return DumpReading{.stacks = true, .construct = calls, .calls = calls};
  }

  absl::Status Add(const ExportedStep& step, const ExportedStep& golden) override {
    if (!golden.empty()) return absl::InvalidArgumentError("a trend is of one side: leave out the golden one");
    WarnOfCalls(step);
    return file_.Add(step.step, step.rank, step.table->table());
  }

  absl::Status Finish() override {
    absl::Status status = file_.Finish();
    return status.ok() ? CopyFile(path_, kTrendFile, sink_) : status;
  }

 private:
  void WarnOfCalls(const ExportedStep& step) const {
    if (!options_.trend.micro_steps || !step.table->table().calls.empty() || step.files == nullptr) return;
    options_.Warn(Cat((std::filesystem::path(step.files->dump).parent_path() / "construct.json").string(),
                      step.files->construct.empty() ? " is missing" : " names no module",
                      ": the step counts as one micro step"));
  }

  const ExportOptions options_;
  FileSink& sink_;
  const SpoolDirectory spool_;
  const std::string path_;
  TrendExport file_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<StepsExport>> BeginTrend(const ExportOptions& options, FileSink& sink) {
  if (absl::Status status = RefuseDumpOptions(options, "trend"); !status.ok()) return status;
  auto spool = SpoolDirectory::Make(options.spool_directory, "trend");
  if (!spool.ok()) return spool.status();
  return std::make_unique<TrendFormat>(options, sink, *std::move(spool));
}

}  // namespace msprobe::server
