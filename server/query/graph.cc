#include <filesystem>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/exporter/file_sink.h"
#include "server/exporter/merged_dump.h"
#include "server/exporter/model_explorer_export.h"
#include "server/exporter/step_exporter.h"
#include "server/exporter/vis_export.h"
#include "server/format/cat.h"
#include "server/query/analysis_context.h"
#include "server/query/analysis_request.h"
#include "server/query/opened_source.h"
#include "server/query/rank_numbers.h"
#include "server/query/spool_directory.h"

namespace msprobe::server {
namespace {

constexpr DumpReading kReading{.stacks = true, .construct = true, .calls = true};

// Files as the parts of an answer.
class ResponseSink : public FileSink {
 public:
  explicit ResponseSink(const Send<v1::GraphResponse>& send) : send_(send) {}

  absl::Status Begin(std::string_view path) override {
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
    if (request_.format() == v1::GRAPH_FORMAT_DUMP) return WriteDump();
    auto scratch = SpoolDirectory::Make(context_.spool_directory, "graph");
    if (!scratch.ok()) return scratch.status();
    if (request_.format() == v1::GRAPH_FORMAT_MODEL_EXPLORER) return WriteFiles(scratch->path());
    const std::string path = Cat(scratch->path(), "/graph.vis.db");
    if (absl::Status status = Write(path); !status.ok()) return status;
    return SendFile(path);
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
      for (const StepTables::Place& place : *places) pairs_.push_back({place, place});
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

  absl::StatusOr<VisOptions> Options() const {
    auto compare = CompareOptionsOf(OptionsIn(request_), "");
    if (!compare.ok()) return compare.status();
    VisOptions options;
    options.overflow = request_.overflow();
    options.fuzzy = compare->fuzzy;
    if (!compare->mapping.layers.empty()) {
      if (!golden_) {
        return absl::InvalidArgumentError("a layer mapping is for two sides: name the golden one, or leave it out");
      }
      options.layers_file = request_.mapping().file();
      options.layers = std::move(compare->mapping.layers);
      std::erase_if(*options.layers, [](const auto& layer) { return layer.second.empty(); });
    } else if (!compare->mapping.empty()) {
      return absl::InvalidArgumentError("a graph takes no mapping but one of layers");
    }
    options.content.threads = context_.threads;
    options.content.cancelled = cancelled_;
    options.fuzzy = options.fuzzy || merges();
    return options;
  }

  absl::Status Write(const std::string& path) {
    auto options = Options();
    if (!options.ok()) return options.status();
    auto file = VisExport::Begin(path, *std::move(options));
    if (!file.ok()) return file.status();
    if (absl::Status status = merges() ? AddMerged(**file) : AddEach(**file); !status.ok()) return status;
    return (*file)->Finish();
  }

  absl::Status WriteFiles(const std::string& directory) {
    if (merges()) return absl::InvalidArgumentError("merged ranks are not part of Model Explorer's files");
    auto options = Options();
    if (!options.ok()) return options.status();
    auto files = ModelExplorerExport::Begin(directory, *std::move(options));
    if (!files.ok()) return files.status();
    absl::Status status = AddEach(**files);
    if (status.ok()) status = (*files)->Finish();
    if (!status.ok()) return status;
    for (const std::string& name : (*files)->files()) {
      v1::GraphResponse response;
      response.set_file(name);
      if (!send_(response)) return PeerGone();
      if (status = SendFile(Cat(directory, "/", name)); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::Status WriteDump() const {
    if (!merges() || golden_) return absl::InvalidArgumentError("a dump is made of the merged ranks of one side");
    ResponseSink files(send_);
    return ForEachMerged([&](uint32_t step, MergedSide& target, MergedSide& /*golden*/) {
      v1::Rank rank;
      rank.set_kind(v1::Rank::RANK);
      for (const std::unique_ptr<MergedStep>& merged : target.merged) {
        rank.set_number(merged->rank());
        absl::Status status = WriteMergedDump(*merged, StepDirectory(step, rank), files);
        if (!status.ok()) return status;
      }
      return absl::OkStatus();
    });
  }

  template <typename File>
  absl::Status AddEach(File& file) {
    std::vector<StepTables::Place> shown;
    for (const PlacePair& pair : pairs_) shown.push_back(pair.target);
    const RankNumbers ranks(shown);
    // One is read while the one before it is written.
    const auto read = [this](size_t i) {
      return std::async(std::launch::async, [this, i] { return Read(pairs_[i]); });
    };
    std::future<absl::StatusOr<StepPair>> next = read(0);
    for (size_t i = 0; i < pairs_.size(); ++i) {
      if (cancelled_()) return PeerGone();
      absl::StatusOr<StepPair> steps = next.get();
      if (!steps.ok()) return steps.status();
      if (i + 1 < pairs_.size()) next = read(i + 1);
      absl::Status status = Add(pairs_[i], *steps, ranks.Of(pairs_[i].target), file);
      if (status.ok()) status = Tell(i + 1, pairs_.size());
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::Status Tell(size_t done, size_t total) const {
    v1::GraphResponse response;
    response.mutable_progress()->set_steps_done(done);
    response.mutable_progress()->set_steps_total(total);
    return send_(response) ? absl::OkStatus() : PeerGone();
  }

  // --- Ranks that are merged.

  bool merges() const { return request_.has_target_layout() || request_.has_golden_layout(); }

  using Steps = std::map<uint32_t, std::vector<StepTables::Place>>;

  // The ranks of one side, merged, with what they were made of.
  struct MergedSide {
    std::vector<std::unique_ptr<TableSource>> ranks;
    std::vector<std::unique_ptr<StepGraph>> graphs;
    std::vector<std::unique_ptr<MergedStep>> merged;
    std::map<uint32_t, std::string> tensors;  // by rank
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
      auto step = source.Read(place, kReading);
      if (!step.ok()) return step.status();
      auto checked = SideOf(source, place, **step);
      if (!checked.ok()) return checked.status();
      if (golden_ && (*step)->table().mode == StepTable::Mode::kTensor) {
        return named(
            absl::InvalidArgumentError("merged ranks are compared by statistics, and these have contents of tensors; "
                                       "capture with task statistics"));
      }
      auto graph = StepGraph::Make((*step)->table());
      if (!graph.ok()) return named(graph.status());
      side.graphs.push_back(std::make_unique<StepGraph>(*std::move(graph)));
      ranks.push_back({numbers.Of(place), &(*step)->table(), side.graphs.back().get()});
      side.tensors[numbers.Of(place)] = std::move(checked->tensor_directory);
      side.ranks.push_back(*std::move(step));
    }
    auto merged = MergeRanks(ranks, layout);
    if (!merged.ok()) return named(merged.status());
    side.merged = *std::move(merged);
    return side;
  }

  absl::Status AddMerged(VisExport& file) const {
    return ForEachMerged([&](uint32_t step, MergedSide& target, MergedSide& golden) {
      if (golden_ && golden.merged.size() != target.merged.size()) {
        return absl::InvalidArgumentError(Cat("the target's ranks are merged into ", target.merged.size(),
                                              " graphs and the golden side's into ", golden.merged.size(),
                                              ": both need the same number of ranks of data parallelism"));
      }
      for (size_t i = 0; i < target.merged.size(); ++i) {
        MergedStep& ours = *target.merged[i];
        VisSide beside;
        if (golden_) {
          MergedStep& theirs = *golden.merged[i];
          beside = {&theirs, golden.tensors.at(theirs.rank())};
        }
        absl::Status status = file.Add(step, ours.rank(), {&ours, target.tensors.at(ours.rank())}, beside);
        if (!status.ok()) return status;
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
      status = visit(step, *target, golden);
      if (status.ok()) status = Tell(++done, steps->size());
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::StatusOr<StepPair> Read(const PlacePair& pair) const {
    if (golden_) return ReadPair(*target_, *golden_, pair, kReading, kReading);
    auto target = target_->Read(pair.target, kReading);
    if (!target.ok()) return target.status();
    return StepPair{*std::move(target), nullptr};
  }

  template <typename File>
  absl::Status Add(const PlacePair& pair, const StepPair& steps, uint32_t rank, File& file) const {
    auto target = SideOf(*target_, pair.target, *steps.target);
    if (!target.ok()) return target.status();
    VisSide golden;
    if (golden_) {
      auto side = SideOf(*golden_, pair.golden, *steps.golden);
      if (!side.ok()) return side.status();
      golden = *std::move(side);
    }
    return file.Add(pair.target.first, rank, *target, golden);
  }

  absl::StatusOr<VisSide> SideOf(const OpenedSource& source, const StepTables::Place& place,
                                 const TableSource& step) const {
    const DumpFiles* const files = source.Files(place);
    const auto beside = [&](const char* name) {
      return (std::filesystem::path(files->dump).parent_path() / name).string();
    };
    if (step.table().calls.empty()) {
      const std::string where =
          files == nullptr ? Cat("run \"", source.name(), "\", step ", place.first) : beside("construct.json");
      return absl::InvalidArgumentError(
          Cat(where,
              files == nullptr           ? " has no modules"
              : files->construct.empty() ? " is missing"
                                         : " names no module",
              ": a graph needs to know which module called what; capture with level L0 or mix"));
    }
    if (files != nullptr && files->stacks.empty()) {
      v1::GraphResponse response;
      response.set_warning(Cat(beside("stack.json"), " is missing: the graph shows no stacks"));
      if (!send_(response)) return PeerGone();
    }
    return VisSide{&step, files == nullptr ? std::string() : files->tensors};
  }

  absl::Status SendFile(const std::string& path) {
    v1::GraphResponse response;
    return ForEachPart(path, [&](std::string_view part) {
      response.set_content(part.data(), part.size());
      return send_(response) ? absl::OkStatus() : PeerGone();
    });
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
