#include <filesystem>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/exporter/monitor_trend.h"
#include "server/exporter/trend_export.h"
#include "server/format/cat.h"
#include "server/query/analysis_context.h"
#include "server/query/analysis_request.h"
#include "server/query/opened_source.h"
#include "server/query/rank_numbers.h"
#include "server/query/spool_directory.h"

namespace msprobe::server {
namespace {

class TrendFile {
 public:
  TrendFile(const AnalysisContext& context, const v1::TrendDatabaseRequest& request,
            const std::function<bool()>& cancelled, const Send<v1::TrendDatabaseResponse>& send)
      : context_(context), request_(request), cancelled_(cancelled), send_(send), scope_(ScopeOf(request.scope())) {}

  absl::Status Run() {
    if (!request_.scope().name_glob().empty()) {
      return absl::InvalidArgumentError("a trend database has all tensors of its steps: leave out the name");
    }
    options_.micro_steps = request_.micro_steps();
    for (const v1::NameMapping::Name& each : request_.renames()) {
      if (each.target().empty()) return absl::InvalidArgumentError("a name to be replaced is empty");
      options_.renames.emplace_back(each.target(), each.golden());
    }
    auto spool = SpoolDirectory::Make(context_.spool_directory, "trend");
    if (!spool.ok()) return spool.status();
    const std::string path = Cat(spool->path(), "/a.trend.db");
    const bool monitored = request_.kind() == v1::TrendDatabaseRequest::KIND_MONITOR;
    if (absl::Status status = monitored ? WriteMonitored(path) : WriteRecords(path); !status.ok()) return status;
    v1::TrendDatabaseResponse response;
    return ForEachPart(path, [&](std::string_view part) {
      response.set_content(part.data(), part.size());
      return send_(response) ? absl::OkStatus() : PeerGone();
    });
  }

 private:
  absl::Status WriteMonitored(const std::string& path) {
    const std::string& directory = request_.source().path();
    if (directory.empty()) return absl::InvalidArgumentError("files of a training monitor need a path, not a run");
    if (!context_.paths_allowed) {
      return absl::FailedPreconditionError(
          Cat("path ", directory, ": this server reads no directories; let the client start a server of its own"));
    }
    const std::vector<std::string> known(std::begin(TrendDatabase::kStatistics), std::end(TrendDatabase::kStatistics));
    auto files = MonitorFiles::Find(directory, known);
    if (!files.ok()) return files.status();
    bool gone = false;
    const auto wanted = [&](uint32_t step, uint32_t rank) { return scope_.Takes({step, {v1::Rank::RANK, rank}}); };
    absl::Status status = WriteMonitorTrend(*files, path, options_, wanted, [&](const std::string& warning) {
      v1::TrendDatabaseResponse response;
      response.set_warning(warning);
      gone = gone || !send_(response);
    });
    return gone ? PeerGone() : status;
  }

  absl::Status WriteRecords(const std::string& path) {
    auto source = OpenedSource::Open(request_.source(), context_);
    if (!source.ok()) return source.status();
    auto places = PlacesIn(*source, scope_);
    if (!places.ok()) return places.status();
    const RankNumbers ranks(*places);
    const bool calls = options_.micro_steps;
    const DumpReading reading{.stacks = true, .construct = calls, .calls = calls};
    const auto read = [&](size_t i) { return source->Read((*places)[i], reading); };
    TrendExport file(path, options_);
    // The next step is read while this one is written.
    auto next = std::async(std::launch::async, read, 0);
    for (size_t i = 0; i < places->size(); ++i) {
      if (cancelled_()) return PeerGone();
      auto step = next.get();
      if (i + 1 < places->size()) next = std::async(std::launch::async, read, i + 1);
      if (!step.ok()) return step.status();
      const StepTables::Place& place = (*places)[i];
      absl::Status status = CheckCalls(*source, place, (*step)->table());
      if (status.ok()) status = file.Add(place.first, ranks.Of(place), (*step)->table());
      if (status.ok()) status = Tell(i + 1, places->size());
      if (!status.ok()) return status;
    }
    absl::Status status = file.Finish();
    return status.ok() ? status : absl::Status(status.code(), Cat(source->name(), ": ", StdView(status.message())));
  }

  absl::Status CheckCalls(const OpenedSource& source, const StepTables::Place& place, const StepTable& table) const {
    const DumpFiles* const files = source.Files(place);
    if (!options_.micro_steps || !table.calls.empty() || files == nullptr) return absl::OkStatus();
    v1::TrendDatabaseResponse response;
    response.set_warning(Cat((std::filesystem::path(files->dump).parent_path() / "construct.json").string(),
                             files->construct.empty() ? " is missing" : " names no module",
                             ": the step counts as one micro step"));
    return send_(response) ? absl::OkStatus() : PeerGone();
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
  TrendOptions options_;
};

}  // namespace

absl::Status WriteTrendDatabase(const AnalysisContext& context, const v1::TrendDatabaseRequest& request,
                                const std::function<bool()>& cancelled, const Send<v1::TrendDatabaseResponse>& send) {
  return TrendFile(context, request, cancelled, send).Run();
}

}  // namespace msprobe::server
