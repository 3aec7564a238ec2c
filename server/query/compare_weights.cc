#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/analysis/checkpoint/checkpoint_pairs.h"
#include "server/analysis/checkpoint/weight_comparison.h"
#include "server/analysis/compare/in_order.h"
#include "server/format/cat.h"
#include "server/format/storage/key.h"
#include "server/query/checkpoints_service.h"
#include "server/shards/run_view.h"
#include "server/stored/live_weights.h"

namespace msprobe::server {
namespace {

using WeightMessage = v1::WeightDifference;

// How far back a stale tensor is looked for, in steps that have weights.
constexpr size_t kEarlierVersions = 16;
constexpr std::string_view kRunLayout = "run";

// The weights of a run at one step. A tensor that ranks have otherwise is there once for each content.
struct LiveVersion {
  uint32_t step = 0;
  std::vector<v1::Rank> ranks;
  std::map<std::string, std::vector<HeldWeight>> held;

  // What the first rank has of each, put together with the others' shards.
  DigestedWeights First() const {
    DigestedWeights weights;
    for (const auto& [name, contents] : held) weights.emplace(name, contents.front().weight);
    return weights;
  }
};

class LiveRun {
 public:
  static absl::StatusOr<LiveRun> Open(const AnalysisContext& context, const v1::WeightsPlace& place) {
    auto view = RunView::Open(context.shards(), place.run());
    if (!view.ok()) return view.status();
    return LiveRun(*std::move(view), place);
  }

  // The last version at or before `step` (nothing: the last one); nothing: there is none.
  absl::StatusOr<std::optional<LiveVersion>> Last(std::optional<uint32_t> step,
                                                  const std::function<bool()>& cancelled) {
    const std::vector<ShownStep>& steps = view_.steps();
    for (size_t end = steps.size(); end > 0;) {
      if (cancelled()) return PeerGone();
      size_t begin = end - 1;
      while (begin > 0 && steps[begin - 1].key.step == steps[begin].key.step) --begin;
      if (!step || steps[begin].key.step <= *step) {
        auto version = Read(begin, end);
        if (!version.ok()) return version.status();
        if (!version->held.empty()) return *std::move(version);
      }
      end = begin;
    }
    return std::nullopt;
  }

  const std::string& name() const { return view_.run(); }

 private:
  LiveRun(RunView view, const v1::WeightsPlace& place) : view_(std::move(view)), place_(place) {}

  absl::StatusOr<LiveVersion> Read(size_t begin, size_t end) const {
    LiveVersion version{.step = view_.steps()[begin].key.step, .ranks = {}, .held = {}};
    std::vector<std::map<std::string, RecordedWeight>> recorded;
    for (size_t i = begin; i < end; ++i) {
      auto source = view_.Records(view_.steps()[i]);
      if (!source.ok()) return source.status();
      const v1::Rank& rank = (*source)->rank();
      if (place_.has_rank() && (rank.kind() != place_.rank().kind() || rank.number() != place_.rank().number()))
        continue;
      auto weights = WeightsIn(**source);
      if (!weights.ok()) return weights.status();
      if (weights->empty()) continue;
      version.ranks.push_back(rank);
      recorded.push_back(*std::move(weights));
    }
    std::map<std::string, std::vector<std::pair<size_t, const RecordedWeight*>>> by_name;
    for (size_t rank = 0; rank < recorded.size(); ++rank) {
      for (const auto& [name, weight] : recorded[rank]) by_name[name].emplace_back(rank, &weight);
    }
    for (const auto& [name, parts] : by_name) {
      auto held = JoinRanks(parts);
      if (!held.empty()) version.held.emplace(name, std::move(held));
    }
    return version;
  }

  RunView view_;
  const v1::WeightsPlace place_;
};

absl::StatusOr<LiveVersion> AskedVersion(LiveRun& run, const v1::WeightsPlace& place,
                                         const std::function<bool()>& cancelled) {
  auto found = run.Last(place.has_step() ? std::optional(place.step()) : std::nullopt, cancelled);
  if (!found.ok()) return found.status();
  if (*found && (!place.has_step() || (*found)->step == place.step())) return **std::move(found);
  const std::string of_rank = place.has_rank() ? Cat(" of ", RankName(place.rank())) : "";
  if (!place.has_step()) {
    return absl::NotFoundError(
        Cat("run ", run.name(), of_rank, " has no weights; debugger.weights(model) records them"));
  }
  return absl::NotFoundError(Cat("run ", run.name(), of_rank, " has no weights at step ", place.step(),
                                 *found ? Cat("; the last before it are those of step ", (*found)->step) : ""));
}

// Names and shapes alone, for PairCheckpoints. The path of its one piece says which of `names` a tensor is; tied
// tensors share it.
Checkpoint NamesOf(const DigestedWeights& weights, std::vector<std::string>& names) {
  Checkpoint checkpoint;
  checkpoint.has_elements = false;
  std::map<std::pair<std::vector<int64_t>, BlockDigests>, std::string> first;
  for (const auto& [name, weight] : weights) {
    const auto [tied, is_new] = first.try_emplace({weight.shape, weight.own()}, std::to_string(names.size()));
    LogicalTensor tensor = PlainTensor(weight.dtype, weight.shape, tied->second, 0);
    checkpoint.tensors.emplace(name, std::move(tensor));
    names.push_back(name);
  }
  return checkpoint;
}

std::map<std::string, std::string> RecordedNames(const Checkpoint& paired, const std::vector<std::string>& names) {
  std::map<std::string, std::string> recorded;
  for (const auto& [name, tensor] : paired.tensors) {
    const bool stayed = std::binary_search(names.begin(), names.end(), name);
    recorded.emplace(name, stayed ? name : names[std::stoul(tensor.pieces.front().path)]);
  }
  return recorded;
}

void FillSide(const std::string& name, const DigestedWeight& weight, v1::DType compared_as,
              const std::set<size_t>& ranks, const std::vector<v1::Rank>& all, WeightMessage::Side& out) {
  out.set_name(name);
  out.set_dtype(weight.dtype);
  out.mutable_shape()->Add(weight.shape.begin(), weight.shape.end());
  const auto digest = weight.digests.find(compared_as);
  out.set_digest(WholeDigest(digest == weight.digests.end() ? weight.own() : digest->second));
  for (const size_t rank : ranks) *out.add_ranks() = all[rank];
}

// One comparison, in the order of its answers.
class CompareWeightsCall {
 public:
  CompareWeightsCall(const AnalysisContext& context, const v1::CompareWeightsRequest& request,
                     const std::function<bool()>& cancelled, const Send<v1::CompareWeightsResponse>& send)
      : context_(context), request_(request), cancelled_(cancelled), send_(send) {}

  absl::Status Run() {
    auto run = LiveRun::Open(context_, request_.target());
    if (!run.ok()) return run.status();
    target_run_.emplace(*std::move(run));
    auto target = AskedVersion(*target_run_, request_.target(), cancelled_);
    if (!target.ok()) return target.status();
    target_ = *std::move(target);
    if (absl::Status status = OpenGolden(); !status.ok()) return status;
    if (absl::Status status = SayOpened(); !status.ok()) return status;
    std::vector<std::string> target_names, golden_names;
    Checkpoint target_tensors = NamesOf(target_.First(), target_names);
    if (golden_live_) golden_files_ = NamesOf(golden_live_->First(), golden_names);
    Renames renames;
    for (const auto& rename : request_.renames()) renames.emplace_back(rename.from(), rename.to());
    pairs_ = PairCheckpoints(target_tensors, golden_files_, renames);
    target_recorded_ = RecordedNames(target_tensors, target_names);
    if (golden_live_) golden_recorded_ = RecordedNames(golden_files_, golden_names);
    std::erase_if(pairs_, [&](const CheckpointPair& pair) { return !IsNamed(pair, request_.name_glob()); });
    if (pairs_.empty() && !request_.name_glob().empty()) {
      return absl::NotFoundError(Cat("no tensor of either side is called ", request_.name_glob()));
    }
    for (const std::string& note : golden_files_.notes) {
      v1::CompareWeightsResponse response;
      response.set_note(Cat("golden: ", note));
      if (!send_(response)) return PeerGone();
    }
    if (absl::Status status = DigestGolden(); !status.ok()) return status;
    return Judge();
  }

 private:
  absl::Status OpenGolden() {
    const v1::WeightsPlace& place = request_.golden();
    if (!place.path().empty()) {
      if (!context_.paths_allowed) {
        return absl::FailedPreconditionError(Cat("path ", place.path(), ": this server reads no checkpoints; ",
                                                 "ask the server of a data directory that is yours (--data-dir)"));
      }
      auto opened = OpenCheckpoint(place.path(), {});
      if (!opened.ok()) return opened.status();
      golden_files_ = *std::move(opened);
      return absl::OkStatus();
    }
    auto run = LiveRun::Open(context_, place);
    if (!run.ok()) return run.status();
    v1::WeightsPlace asked = place;
    if (!asked.has_step()) {
      auto same = run->Last(target_.step, cancelled_);
      if (!same.ok()) return same.status();
      if (*same && (*same)->step == target_.step) asked.set_step(target_.step);
    }
    auto golden = AskedVersion(*run, asked, cancelled_);
    if (!golden.ok()) return golden.status();
    golden_live_ = *std::move(golden);
    while (earlier_.size() < kEarlierVersions) {
      const uint32_t step = earlier_.empty() ? golden_live_->step : earlier_.back().first;
      if (step == 0) break;
      auto before = run->Last(step - 1, cancelled_);
      if (!before.ok()) return before.status();
      if (!*before) break;
      earlier_.emplace_back((*before)->step, (*before)->First());
    }
    return absl::OkStatus();
  }

  absl::Status SayOpened() {
    const auto say = [&](const std::string& place, const LiveVersion* live, const Checkpoint& files) {
      v1::CompareWeightsResponse response;
      auto& opened = *response.mutable_opened();
      opened.set_place(place);
      opened.set_layout(live != nullptr ? std::string(kRunLayout) : files.layout);
      opened.set_tensors(live != nullptr ? live->held.size() : files.tensors.size());
      if (live != nullptr) {
        opened.set_step(live->step);
        opened.mutable_ranks()->Add(live->ranks.begin(), live->ranks.end());
      }
      return send_(response);
    };
    const v1::WeightsPlace& golden = request_.golden();
    const bool told =
        say(request_.target().run(), &target_, {}) &&
        say(golden_live_ ? golden.run() : golden.path(), golden_live_ ? &*golden_live_ : nullptr, golden_files_);
    return told ? absl::OkStatus() : PeerGone();
  }

  const std::vector<HeldWeight>& Held(const std::string& name) const {
    return target_.held.at(target_recorded_.at(name));
  }

  // Of a version of the golden run, by the names that PairCheckpoints has given.
  DigestedWeights Paired(const DigestedWeights& version) const {
    DigestedWeights paired;
    for (const auto& [name, recorded] : golden_recorded_) {
      if (const auto found = version.find(recorded); found != version.end()) paired.emplace(name, found->second);
    }
    return paired;
  }

  // The golden side's digests, in the dtypes that the target has.
  absl::Status DigestGolden() {
    if (golden_live_) {
      golden_ = Paired(golden_live_->First());
      for (auto& [step, weights] : earlier_) weights = Paired(weights);
      return absl::OkStatus();
    }
    std::vector<std::pair<std::string, const LogicalTensor*>> work;
    std::map<std::string, std::set<v1::DType>> wanted;
    for (const CheckpointPair& pair : pairs_) {
      if (pair.golden.empty()) continue;
      const LogicalTensor& tensor = golden_files_.tensors.at(pair.golden);
      std::set<v1::DType>& dtypes = wanted[pair.golden];
      if (dtypes.empty()) work.emplace_back(pair.golden, &tensor);
      dtypes.insert(tensor.dtype);
      if (pair.target.empty()) continue;
      for (const HeldWeight& held : Held(pair.target)) {
        if (CanCast(tensor.dtype, held.weight.dtype)) dtypes.insert(held.weight.dtype);
      }
    }
    const auto digest = [&](size_t index) -> absl::StatusOr<DigestedWeight> {
      const auto& [name, tensor] = work[index];
      DigestedWeight weight{.dtype = tensor->dtype, .shape = tensor->shape, .digests = {}, .missing = 0};
      for (const v1::DType dtype : wanted.at(name)) {
        auto blocks = DigestBlocks(*tensor, dtype, cancelled_);
        if (!blocks.ok()) return blocks.status();
        weight.digests.emplace(dtype, *std::move(blocks));
      }
      return weight;
    };
    const auto take = [&](size_t index, DigestedWeight weight) -> absl::StatusOr<bool> {
      golden_.emplace(work[index].first, std::move(weight));
      return SayProgress(index + 1, work.size());
    };
    return InOrder<DigestedWeight>::Run(work.size(), context_.threads, digest, take);
  }

  absl::StatusOr<bool> SayProgress(size_t done, size_t total) {
    v1::CompareWeightsResponse response;
    response.mutable_progress()->set_tensors_done(done);
    response.mutable_progress()->set_tensors_total(total);
    if (!send_(response)) return PeerGone();
    return true;
  }

  struct Verdict {
    const CheckpointPair* pair = nullptr;
    const HeldWeight* held = nullptr;  // null: the target lacks it
    WeightDifference found;

    bool both() const { return held != nullptr && !pair->golden.empty(); }
    bool agrees() const {
      return both() && (found.kind == WeightDifference::Kind::kEqual || found.kind == WeightDifference::Kind::kCast);
    }
    // The golden side does not tell what became of it.
    bool is_open() const {
      return both() && !found.step && held->weight.missing == 0 &&
             (found.kind == WeightDifference::Kind::kDiffers || found.kind == WeightDifference::Kind::kPartial);
    }
  };

  absl::Status Judge() {
    std::vector<WeightVersion> earlier;
    for (const auto& [step, weights] : earlier_) earlier.push_back({step, &weights});
    const WeightComparison comparison(golden_, std::move(earlier));
    std::vector<Verdict> verdicts;
    for (const CheckpointPair& pair : pairs_) {
      if (cancelled_()) return PeerGone();
      if (pair.target.empty()) {
        verdicts.push_back({&pair, nullptr, {}});
        continue;
      }
      for (const HeldWeight& held : Held(pair.target)) {
        verdicts.push_back({&pair, &held, {}});
        WeightDifference& found = verdicts.back().found;
        if (pair.golden.empty()) {
          found.other = comparison.NameOf(held.weight, held.weight.dtype);
        } else {
          found = comparison.Judge(held.weight, pair.golden);
        }
      }
    }
    if (absl::Status status = FindLeftBehind(verdicts); !status.ok()) return status;
    for (const Verdict& verdict : verdicts) {
      if (!Say(*verdict.pair, verdict.held, verdict.found)) return PeerGone();
    }
    return absl::OkStatus();
  }

  // A tensor is stale, too, where it is as the target itself had it earlier, while tensors that agree now have changed.
  absl::Status FindLeftBehind(std::vector<Verdict>& verdicts) {
    if (std::none_of(verdicts.begin(), verdicts.end(), [](const Verdict& each) { return each.is_open(); })) {
      return absl::OkStatus();
    }
    uint32_t step = target_.step;
    for (size_t i = 0; i < kEarlierVersions && step > 0; ++i) {
      auto before = target_run_->Last(step - 1, cancelled_);
      if (!before.ok()) return before.status();
      if (!*before) break;
      step = (*before)->step;
      const DigestedWeights then = (*before)->First();
      const auto has_changed = [&](const Verdict& each) {
        const auto found = then.find(target_recorded_.at(each.pair->target));
        return found != then.end() && found->second.digests != each.held->weight.digests;
      };
      if (std::none_of(verdicts.begin(), verdicts.end(),
                       [&](const Verdict& each) { return each.agrees() && has_changed(each); })) {
        continue;
      }
      for (Verdict& each : verdicts) {
        if (!each.is_open() || !then.contains(target_recorded_.at(each.pair->target)) || has_changed(each)) continue;
        each.found.kind = WeightDifference::Kind::kStale;
        each.found.rows.clear();
        each.found.step = step;
        each.found.note = "of the target itself";
      }
      break;
    }
    return absl::OkStatus();
  }

  // False: the peer is gone.
  bool Say(const CheckpointPair& pair, const HeldWeight* held, const WeightDifference& found) {
    v1::CompareWeightsResponse response;
    WeightMessage& message = *response.mutable_difference();
    message.set_kind(held == nullptr       ? WeightMessage::MISSING
                     : pair.golden.empty() ? WeightMessage::EXTRA
                                           : static_cast<WeightMessage::Kind>(found.kind));
    if (held != nullptr) {
      FillSide(pair.target, held->weight, found.compared_as, held->ranks, target_.ranks, *message.mutable_target());
    }
    if (!pair.golden.empty()) {
      const bool live = golden_live_.has_value();
      FillSide(pair.golden, golden_.at(pair.golden), found.compared_as,
               live ? golden_live_->held.at(golden_recorded_.at(pair.golden)).front().ranks : std::set<size_t>(),
               live ? golden_live_->ranks : std::vector<v1::Rank>(), *message.mutable_golden());
    }
    for (const auto& [begin, end] : found.rows) {
      message.add_rows()->set_begin(begin);
      message.mutable_rows()->rbegin()->set_end(end);
    }
    message.set_other(found.other);
    if (found.step) message.set_step(*found.step);
    message.set_note(found.note.empty()  ? pair.note
                     : pair.note.empty() ? found.note
                                         : Cat(pair.note, "; ", found.note));
    return send_(response);
  }

  const AnalysisContext& context_;
  const v1::CompareWeightsRequest& request_;
  const std::function<bool()>& cancelled_;
  const Send<v1::CompareWeightsResponse>& send_;
  std::optional<LiveRun> target_run_;
  LiveVersion target_;
  std::optional<LiveVersion> golden_live_;
  Checkpoint golden_files_;  // of a run: its names
  std::vector<std::pair<uint32_t, DigestedWeights>> earlier_;
  std::vector<CheckpointPair> pairs_;
  // By the name that PairCheckpoints has given: the name under which it was recorded.
  std::map<std::string, std::string> target_recorded_, golden_recorded_;
  DigestedWeights golden_;
};

}  // namespace

absl::Status CompareWeights(const AnalysisContext& context, const v1::CompareWeightsRequest& request,
                            const std::function<bool()>& cancelled, const Send<v1::CompareWeightsResponse>& send) {
  return CompareWeightsCall(context, request, cancelled, send).Run();
}

}  // namespace msprobe::server
