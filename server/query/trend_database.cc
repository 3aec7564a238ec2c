#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/exporter/export_formats.h"
#include "server/exporter/monitor_trend.h"
#include "server/exporter/spool_directory.h"
#include "server/format/cat.h"
#include "server/query/analysis_context.h"
#include "server/query/analysis_request.h"
#include "server/query/export_steps.h"
#include "server/query/opened_source.h"

namespace msprobe::server {
namespace {

// The parts of the one file of an answer.
class TrendFileSink : public FileSink {
 public:
  explicit TrendFileSink(const Send<v1::TrendDatabaseResponse>& send) : send_(send) {}

  absl::Status Begin(std::string_view) override { return absl::OkStatus(); }
  absl::Status Write(std::string_view content) override {
    v1::TrendDatabaseResponse response;
    response.set_content(content.data(), content.size());
    return send_(response) ? absl::OkStatus() : PeerGone();
  }
  absl::Status End() override { return absl::OkStatus(); }

 private:
  const Send<v1::TrendDatabaseResponse>& send_;
};

class TrendFile {
 public:
  TrendFile(const AnalysisContext& context, const v1::TrendDatabaseRequest& request,
            const std::function<bool()>& cancelled, const Send<v1::TrendDatabaseResponse>& send)
      : context_(context), request_(request), cancelled_(cancelled), send_(send), scope_(ScopeOf(request.scope())) {}

  absl::Status Run() {
    if (!request_.scope().name_glob().empty()) {
      return absl::InvalidArgumentError("a trend database has all tensors of its steps: leave out the name");
    }
    options_.trend.micro_steps = request_.micro_steps();
    for (const v1::NameMapping::Name& each : request_.renames()) {
      if (each.target().empty()) return absl::InvalidArgumentError("a name to be replaced is empty");
      options_.trend.renames.emplace_back(each.target(), each.golden());
    }
    options_.spool_directory = context_.spool_directory;
    options_.on_warning = [this](const std::string& warning) {
      v1::TrendDatabaseResponse response;
      response.set_warning(warning);
      gone_ = gone_ || !send_(response);
    };
    const bool monitored = request_.kind() == v1::TrendDatabaseRequest::KIND_MONITOR;
    absl::Status status = monitored ? WriteMonitored() : WriteRecords();
    return gone_ ? PeerGone() : status;
  }

 private:
  absl::Status WriteMonitored() {
    const std::string& directory = request_.source().path();
    if (directory.empty()) return absl::InvalidArgumentError("files of a training monitor need a path, not a run");
    if (!context_.paths_allowed) {
      return absl::FailedPreconditionError(
          Cat("path ", directory, ": this server reads no directories; let the client start a server of its own"));
    }
    const std::vector<std::string> known(std::begin(TrendDatabase::kStatistics), std::end(TrendDatabase::kStatistics));
    auto files = MonitorFiles::Find(directory, known);
    if (!files.ok()) return files.status();
    auto spool = SpoolDirectory::Make(context_.spool_directory, "trend");
    if (!spool.ok()) return spool.status();
    const std::string path = Cat(spool->path(), "/monitored.trend.db");
    const auto wanted = [&](uint32_t step, uint32_t rank) { return scope_.Takes({step, {v1::Rank::RANK, rank}}); };
    absl::Status status = WriteMonitorTrend(*files, path, options_.trend, wanted, options_.on_warning);
    return status.ok() ? CopyFile(path, "", sink_) : status;
  }

  absl::Status WriteRecords() {
    auto source = OpenedSource::Open(request_.source(), context_);
    if (!source.ok()) return source.status();
    auto places = PlacesIn(*source, scope_);
    if (!places.ok()) return places.status();
    auto begin = context_.formats.Find("trend");
    if (!begin.ok()) return begin.status();
    auto format = (*begin)(options_, sink_);
    if (!format.ok()) return format.status();
    absl::Status status = ExportSteps(*source, nullptr, PairsOf(*places), **format, cancelled_,
                                      [&](size_t done) { return Tell(done, places->size()); });
    if (!status.ok()) return status;
    status = (*format)->Finish();
    return status.ok() ? status : absl::Status(status.code(), Cat(source->name(), ": ", StdView(status.message())));
  }

  absl::Status Tell(size_t done, size_t total) const {
    v1::TrendDatabaseResponse response;
    response.mutable_progress()->set_steps_done(done);
    response.mutable_progress()->set_steps_total(total);
    return send_(response) ? absl::OkStatus() : PeerGone();
  }

  const AnalysisContext& context_;
  const v1::TrendDatabaseRequest& request_;
  const std::function<bool()>& cancelled_;
  const Send<v1::TrendDatabaseResponse>& send_;
  const PlaceScope scope_;
  TrendFileSink sink_{send_};
  ExportOptions options_;
  bool gone_ = false;
};

}  // namespace

absl::Status WriteTrendDatabase(const AnalysisContext& context, const v1::TrendDatabaseRequest& request,
                                const std::function<bool()>& cancelled, const Send<v1::TrendDatabaseResponse>& send) {
  return TrendFile(context, request, cancelled, send).Run();
}

}  // namespace msprobe::server
