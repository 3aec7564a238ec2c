#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/exporter/export_formats.h"
#include "server/format/cat.h"
#include "server/query/analysis_context.h"
#include "server/query/analysis_request.h"
#include "server/query/export_steps.h"
#include "server/query/opened_source.h"
#include "server/query/rank_numbers.h"

namespace msprobe::server {
namespace {

std::string_view FormatName(v1::GraphFormat format) {
  switch (format) {
    case v1::GRAPH_FORMAT_MODEL_EXPLORER:
      return "model-explorer";
    case v1::GRAPH_FORMAT_DUMP:
      return "dump";
    default:
      return "vis";
  }
}

// Files as the parts of an answer.
class GraphFileSink : public FileSink {
 public:
  // named: each file begins with its name.
  GraphFileSink(const Send<v1::GraphResponse>& send, bool named) : send_(send), named_(named) {}

  absl::Status Begin(std::string_view path) override {
    if (!named_) return absl::OkStatus();
    response_.set_file(std::string(path));
    return Tell();
  }
  absl::Status Write(std::string_view content) override {
    buffer_ += content;
    return buffer_.size() < kPartBytes ? absl::OkStatus() : End();
  }
  absl::Status End() override {
    response_.set_content(std::move(buffer_));
    buffer_.clear();
    return Tell();
  }

 private:
  static constexpr size_t kPartBytes = 256 << 10;

  absl::Status Tell() const { return send_(response_) ? absl::OkStatus() : PeerGone(); }

  const Send<v1::GraphResponse>& send_;
  const bool named_;
  v1::GraphResponse response_;
  std::string buffer_;
};

class GraphFile {
 public:
  GraphFile(const AnalysisContext& context, const v1::GraphRequest& request, const std::function<bool()>& cancelled,
            const Send<v1::GraphResponse>& send)
      : context_(context), request_(request), cancelled_(cancelled), send_(send) {}

  absl::Status Run() {
    if (!request_.scope().name_glob().empty()) {
      return absl::InvalidArgumentError("a graph has all nodes of its steps: leave out the name");
    }
    if (absl::Status status = Open(); !status.ok()) return status;
    if (request_.format() == v1::GRAPH_FORMAT_DUMP && (!merges() || golden_)) {
      return absl::InvalidArgumentError("a dump is made of the merged ranks of one side");
    }
    auto begin = context_.formats.Find(FormatName(request_.format()));
    if (!begin.ok()) return begin.status();
    auto options = Options();
    if (!options.ok()) return options.status();
    GraphFileSink files(send_, request_.format() != v1::GRAPH_FORMAT_VIS);
    auto format = (*begin)(*options, files);
    if (!format.ok()) return format.status();
    absl::Status status = merges() ? AddMerged(**format) : AddEach(**format);
    return status.ok() ? (*format)->Finish() : status;
  }

 private:
  absl::Status Open() {
    auto target = OpenedSource::Open(request_.target(), context_);
    if (!target.ok()) return target.status();
    target_.emplace(*std::move(target));
    const PlaceScope scope = ScopeOf(request_.scope());
    if (!request_.has_golden()) {
      auto places = PlacesIn(*target_, scope);
      if (!places.ok()) return places.status();
      pairs_ = PairsOf(*places);
      return absl::OkStatus();
    }
    auto golden = OpenedSource::Open(request_.golden(), context_);
    if (!golden.ok()) return golden.status();
    golden_.emplace(*std::move(golden));
    if (merges()) return absl::OkStatus();  // the sides may have different ranks
    std::vector<UnpairedPlace> unpaired;
    auto pairs = PairPlaces(*target_, *golden_, scope, unpaired);
    if (!pairs.ok()) return pairs.status();
    pairs_ = *std::move(pairs);
    for (const UnpairedPlace& place : unpaired) {
      v1::GraphResponse response;
      response.mutable_unpaired()->set_in_target(place.in_target);
      response.mutable_unpaired()->set_step(place.place.first);
      *response.mutable_unpaired()->mutable_rank() = RankOfPlace(place.place);
      if (!send_(response)) return PeerGone();
    }
    return absl::OkStatus();
  }

  absl::StatusOr<ExportOptions> Options() const {
    auto compare = CompareOptionsOf(OptionsIn(request_), "");
    if (!compare.ok()) return compare.status();
    ExportOptions options;
    options.spool_directory = context_.spool_directory;
    options.on_warning = [this](const std::string& warning) { Warn(warning); };
    VisOptions& graph = options.graph;
    graph.overflow = request_.overflow();
    graph.fuzzy = compare->fuzzy || merges();
    if (!compare->mapping.layers.empty()) {
      if (!golden_) {
        return absl::InvalidArgumentError("a layer mapping is for two sides: name the golden one, or leave it out");
      }
      graph.layers_file = request_.mapping().file();
      graph.layers = std::move(compare->mapping.layers);
      std::erase_if(*graph.layers, [](const auto& layer) { return layer.second.empty(); });
    } else if (!compare->mapping.empty()) {
      return absl::InvalidArgumentError("a graph takes no mapping but one of layers");
    }
    graph.content.threads = context_.threads;
    graph.content.cancelled = cancelled_;
    return options;
  }

  absl::Status AddEach(StepsExport& format) const {
    return ExportSteps(*target_, golden_ ? &*golden_ : nullptr, pairs_, format, cancelled_,
                       [this](size_t done) { return Tell(done, pairs_.size()); });
  }

  absl::Status Tell(size_t done, size_t total) const {
    v1::GraphResponse response;
    response.mutable_progress()->set_steps_done(done);
    response.mutable_progress()->set_steps_total(total);
    return send_(response) ? absl::OkStatus() : PeerGone();
  }

  // Who is gone is found out by the next answer.
  void Warn(const std::string& warning) const {
    v1::GraphResponse response;
    response.set_warning(warning);
    send_(response);
  }

  // --- Ranks that are merged.

  bool merges() const { return request_.has_target_layout() || request_.has_golden_layout(); }

  using Steps = std::map<uint32_t, std::vector<StepTables::Place>>;

  // The ranks of one side, merged, with what they were made of.
  struct MergedSide {
    std::vector<std::unique_ptr<TableSource>> ranks;
    std::vector<std::unique_ptr<StepGraph>> graphs;
    std::vector<std::unique_ptr<MergedStep>> merged;
    std::map<uint32_t, ExportedStep> of_rank;

    // One of `merged`, as an export takes it.
    ExportedStep Exported(MergedStep& step) const {
      ExportedStep exported = of_rank.at(step.rank());
      exported.table = exported.merged = &step;
      return exported;
    }
  };

  absl::StatusOr<Steps> StepsOf(const OpenedSource& source) const {
    auto places = PlacesIn(source, ScopeOf(request_.scope()));
    if (!places.ok()) return places.status();
    Steps steps;
    for (const StepTables::Place& place : *places) steps[place.first].push_back(place);
    return steps;
  }

  static ParallelLayout LayoutOf(const v1::ParallelLayout& message) {
    ParallelLayout layout;
    layout.ranks = message.ranks();
    layout.tensor = message.tensor();
    layout.pipeline = message.pipeline();
    if (message.virtual_pipeline() != 0) layout.chunks = message.virtual_pipeline();
    if (!message.order().empty()) layout.order = message.order();
    return layout;
  }

  absl::StatusOr<MergedSide> Merge(const OpenedSource& source, const std::vector<StepTables::Place>& places,
                                   const ParallelLayout& layout) const {
    const auto named = [&](const absl::Status& status) {
      return absl::Status(status.code(),
                          Cat(source.name(), ", step ", places[0].first, ": ", StdView(status.message())));
    };
    MergedSide side;
    std::vector<RankGraph> ranks;
    const RankNumbers numbers(places);
    for (const StepTables::Place& place : places) {
      auto step = source.Read(place, kGraphReading);
      if (!step.ok()) return step.status();
      const uint32_t rank = numbers.Of(place);
      ExportedStep& exported = side.of_rank[rank] = ExportedPlace(source, place, rank);
      exported.table = step->get();
      absl::Status status = CheckCalls(exported, [this](const std::string& warning) { Warn(warning); });
      if (!status.ok()) return status;
      if (golden_ && (*step)->table().mode == StepTable::Mode::kTensor) {
        return named(
            absl::InvalidArgumentError("merged ranks are compared by statistics, and these have contents of tensors; "
                                       "capture with task statistics"));
      }
      auto graph = StepGraph::Make((*step)->table());
      if (!graph.ok()) return named(graph.status());
      side.graphs.push_back(std::make_unique<StepGraph>(*std::move(graph)));
      ranks.push_back({rank, &(*step)->table(), side.graphs.back().get()});
      side.ranks.push_back(*std::move(step));
    }
    auto merged = MergeRanks(ranks, layout);
    if (!merged.ok()) return named(merged.status());
    side.merged = *std::move(merged);
    return side;
  }

  absl::Status AddMerged(StepsExport& format) const {
    return ForEachMerged([&](MergedSide& target, MergedSide& golden) {
      if (golden_ && golden.merged.size() != target.merged.size()) {
        return absl::InvalidArgumentError(Cat("the target's ranks are merged into ", target.merged.size(),
                                              " graphs and the golden side's into ", golden.merged.size(),
                                              ": both need the same number of ranks of data parallelism"));
      }
      for (size_t i = 0; i < target.merged.size(); ++i) {
        const ExportedStep ours = target.Exported(*target.merged[i]);
        const ExportedStep theirs = golden_ ? golden.Exported(*golden.merged[i]) : ExportedStep();
        if (absl::Status status = format.Add(ours, theirs); !status.ok()) return status;
      }
      return absl::OkStatus();
    });
  }

  // Both sides of each step; golden is empty where there is none.
  template <typename Visit>
  absl::Status ForEachMerged(Visit visit) const {
    if (!request_.has_target_layout() || request_.has_golden_layout() != golden_.has_value()) {
      return absl::InvalidArgumentError("merging ranks needs a layout of each side, and of no other");
    }
    const ParallelLayout target_layout = LayoutOf(request_.target_layout());
    const ParallelLayout golden_layout = LayoutOf(golden_ ? request_.golden_layout() : request_.target_layout());
    absl::Status status = CheckLayout(target_layout);
    if (status.ok()) status = CheckLayout(golden_layout);
    if (!status.ok()) return status;
    auto steps = StepsOf(*target_);
    if (!steps.ok()) return steps.status();
    Steps golden_steps;
    if (golden_) {
      auto found = StepsOf(*golden_);
      if (!found.ok()) return found.status();
      golden_steps = *std::move(found);
      std::erase_if(*steps, [&](const auto& step) { return !golden_steps.contains(step.first); });
    }
    size_t done = 0;
    for (const auto& [step, places] : *steps) {
      if (cancelled_()) return PeerGone();
      auto target = Merge(*target_, places, target_layout);
      if (!target.ok()) return target.status();
      MergedSide golden;
      if (golden_) {
        auto merged = Merge(*golden_, golden_steps.at(step), golden_layout);
        if (!merged.ok()) return merged.status();
        golden = *std::move(merged);
      }
      status = visit(*target, golden);
      if (status.ok()) status = Tell(++done, steps->size());
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  const AnalysisContext& context_;
  const v1::GraphRequest& request_;
  const std::function<bool()>& cancelled_;
  const Send<v1::GraphResponse>& send_;
  std::optional<OpenedSource> target_;
  std::optional<OpenedSource> golden_;
  std::vector<PlacePair> pairs_;
};

}  // namespace

absl::Status Graph(const AnalysisContext& context, const v1::GraphRequest& request,
                   const std::function<bool()>& cancelled, const Send<v1::GraphResponse>& send) {
  return GraphFile(context, request, cancelled, send).Run();
}

}  // namespace msprobe::server
