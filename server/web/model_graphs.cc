#include "server/web/model_graphs.h"

#include <algorithm>
#include <functional>
#include <future>
#include <utility>

#include "absl/time/clock.h"
#include "server/analysis/compare/place_pairs.h"
#include "server/analysis/divergence/first_divergence.h"
#include "server/format/cat.h"
#include "server/query/opened_source.h"

namespace msprobe::server {
namespace {

constexpr DumpReading kReading{.stacks = true, .construct = true, .calls = true};
constexpr absl::Duration kPatience = absl::Milliseconds(50);  // between looks at whether a waiting client has gone

std::string_view BlameName(Blame blame) {
  switch (blame) {
    case Blame::kWeight:
      return "weight";
    case Blame::kInput:
      return "input";
    case Blame::kArgument:
      return "argument";
    case Blame::kComputation:
      return "computation";
    case Blame::kCommunication:
      return "communication";
    case Blame::kMissing:
      return "missing";
    case Blame::kUnreadable:
      return "unreadable";
  }
  return "";
}

absl::Status NoCalls(const std::string& run, uint32_t step) {
  return absl::InvalidArgumentError(Cat("run \"", run, "\", step ", step,
                                        " has no modules: a graph needs to know which module called what; capture with "
                                        "level L0 or mix"));
}

// A question, with what it reads found.
class Found {
 public:
  static absl::StatusOr<Found> Open(const AnalysisContext& context, const ModelGraphs::Question& question) {
    auto target = OpenedSource::OpenRun(question.run, context);
    if (!target.ok()) return target.status();
    Found found(*std::move(target));
    if (!question.golden.empty()) {
      auto golden = OpenedSource::OpenRun(question.golden, context);
      if (!golden.ok()) return golden.status();
      found.golden_.emplace(*std::move(golden));
    }
    if (absl::Status status = found.FindPlaces(question); !status.ok()) return status;
    return found;
  }

  uint32_t step() const { return place().target.first; }

  StepsAround Around() const {
    StepsAround around{static_cast<uint32_t>(places_.size()), places_.front().target.first, places_.back().target.first,
                       std::nullopt, std::nullopt};
    if (chosen_ > 0) around.before = places_[chosen_ - 1].target.first;
    if (chosen_ + 1 < places_.size()) around.after = places_[chosen_ + 1].target.first;
    return around;
  }

  // What the store calls its contents; empty: it does not say.
  std::string Version() const {
    const auto text = [](const OpenedSource& source, const StepTables::Place& place) {
      const auto stored = source.FindStored(place);
      if (!stored) return std::string();
      return Cat(stored->key.run, ".", stored->key.rank, ".", stored->key.epoch, ".", stored->key.step, ".",
                 stored->blocks, source.IsOpen(place) ? "+" : "", ";");
    };
    std::string ours = text(target_, place().target);
    if (!golden_ || ours.empty()) return ours;
    const std::string theirs = text(*golden_, place().golden);
    return theirs.empty() ? theirs : ours + theirs;
  }

  absl::StatusOr<StepGraphs> Make(const AnalysisContext& context, const std::function<bool()>& cancelled) const {
    StepPair steps;
    if (golden_) {
      auto read = ReadPair(target_, *golden_, place(), kReading, kReading);
      if (!read.ok()) return read.status();
      steps = *std::move(read);
    } else {
      auto read = target_.Read(place().target, kReading);
      if (!read.ok()) return read.status();
      steps.target = *std::move(read);
    }
    if (cancelled()) return PeerGone();
    if (steps.target->table().calls.empty()) return NoCalls(target_.name(), place().target.first);
    if (golden_ && steps.golden->table().calls.empty()) return NoCalls(golden_->name(), place().golden.first);
    std::future<absl::StatusOr<ModelGraph>> beside;
    if (golden_) beside = std::async(std::launch::async, &ModelGraph::Of, std::cref(steps.golden->table()));
    auto ours = ModelGraph::Of(steps.target->table());
    if (!ours.ok()) return ours.status();
    StepGraphs made(*std::move(ours));
    made.step = place().target.first;
    made.place = place().target;
    made.golden_place = place().golden;
    if (!golden_) return made;
    auto theirs = beside.get();
    if (!theirs.ok()) return theirs.status();
    made.golden = *std::move(theirs);
    DivergenceOptions options;
    options.target_lacks_records = target_.LacksRecords(place().target);
    options.golden_lacks_records = golden_->LacksRecords(place().golden);
    options.comparison.content.threads = context.threads;
    options.comparison.content.cancelled = cancelled;
    if (absl::Status status = Compare(steps, options, made); !status.ok()) return status;
    return made;
  }

 private:
  explicit Found(OpenedSource target) : target_(std::move(target)) {}

  const PlacePair& place() const { return places_[chosen_]; }

  absl::Status FindPlaces(const ModelGraphs::Question& question) {
    if (golden_) {
      std::vector<UnpairedPlace> unpaired;
      auto pairs = PairPlaces(target_, *golden_, {}, unpaired);
      if (!pairs.ok()) return pairs.status();
      places_ = *std::move(pairs);
    } else {
      for (const StepTables::Place& each : target_.places()) places_.push_back({each, each});
    }
    std::erase_if(places_, [&](const PlacePair& pair) { return pair.target.second != question.rank; });
    const auto chosen = std::find_if(places_.begin(), places_.end(), [&](const PlacePair& pair) {
      return question.step ? pair.target.first == *question.step : target_.HasNonFinite(pair.target);
    });
    if (chosen != places_.end()) {
      chosen_ = static_cast<size_t>(chosen - places_.begin());
    } else if (question.step || places_.empty()) {
      const std::string both = golden_ ? Cat(" on both sides (", target_.name(), " and ", golden_->name(), ")") : "";
      return absl::NotFoundError(places_.empty()
                                     ? Cat("there is no step of this rank", both)
                                     : Cat("there is no step ", *question.step, " of this rank", both, "; there are ",
                                           places_.size(), ", from ", places_.front().target.first, " to ",
                                           places_.back().target.first));
    }
    return absl::OkStatus();
  }

  static absl::Status Compare(const StepPair& steps, const DivergenceOptions& options, StepGraphs& made) {
    auto beside =
        std::async(std::launch::async, [&] { return FindFirstDivergence(*steps.target, *steps.golden, options); });
    auto comparison = CompareStep(*steps.target, *steps.golden, options.comparison);
    auto divergence = beside.get();
    if (!comparison.ok()) return comparison.status();
    if (!divergence.ok()) return divergence.status();
    const bool any = divergence->has_value();
    ModelGraph::Compare(steps.target->table(), made.target, steps.golden->table(), *made.golden, *comparison,
                        any ? (*divergence)->target_entry : -1, any ? (*divergence)->golden_entry : -1);
    if (any) {
      made.blame = BlameName((*divergence)->blame);
      made.culprit = (*divergence)->culprit;
    }
    return absl::OkStatus();
  }

  OpenedSource target_;
  std::optional<OpenedSource> golden_;
  std::vector<PlacePair> places_;  // of the rank, in order of steps
  size_t chosen_ = 0;
};

}  // namespace

absl::StatusOr<ModelGraphs::Answer> ModelGraphs::Find(const AnalysisContext& context, const Question& question,
                                                      const std::function<bool()>& cancelled, bool anew) {
  if (question.step && !anew) {
    absl::MutexLock lock(&mu_);
    auto kept = Await(question, cancelled);
    if (!kept.ok()) return kept.status();
    if (*kept != kept_.end() && absl::Now() - (*kept)->checked < kFresh) {
      return Answer{(*kept)->graphs, (*kept)->around};
    }
  }
  auto found = Found::Open(context, question);
  if (!found.ok()) return found.status();
  Question exact = question;
  exact.step = found->step();
  std::string version = found->Version();
  {
    absl::MutexLock lock(&mu_);
    auto kept = Await(exact, cancelled);
    if (!kept.ok()) return kept.status();
    if (*kept != kept_.end()) {
      if (!version.empty() && version == (*kept)->version) {
        (*kept)->checked = absl::Now();
        (*kept)->around = found->Around();
        return Answer{(*kept)->graphs, (*kept)->around};
      }
      kept_.erase(*kept);
    }
    kept_.push_front({exact, std::move(version), absl::InfinitePast(), nullptr, found->Around()});
  }
  auto made = found->Make(context, cancelled);
  absl::MutexLock lock(&mu_);
  made_.SignalAll();
  const auto kept = FindKept(exact);
  if (!made.ok()) {
    kept_.erase(kept);
    return made.status();
  }
  kept->graphs = std::make_shared<const StepGraphs>(*std::move(made));
  kept->checked = absl::Now();
  Answer answer{kept->graphs, kept->around};
  Evict();
  return answer;
}

absl::StatusOr<std::list<ModelGraphs::Kept>::iterator> ModelGraphs::Await(const Question& question,
                                                                          const std::function<bool()>& cancelled) {
  auto kept = FindKept(question);
  while (kept != kept_.end() && kept->graphs == nullptr) {
    if (cancelled()) return PeerGone();
    made_.WaitWithTimeout(&mu_, kPatience);
    kept = FindKept(question);
  }
  if (kept != kept_.end()) kept_.splice(kept_.begin(), kept_, kept);
  return kept;
}

std::list<ModelGraphs::Kept>::iterator ModelGraphs::FindKept(const Question& question) {
  return std::find_if(kept_.begin(), kept_.end(),
                      [&](const Kept& kept) { return kept.question.Key() == question.Key(); });
}

void ModelGraphs::Evict() {
  size_t nodes = 0;
  bool first = true;
  std::erase_if(kept_, [&](const Kept& kept) {
    if (kept.graphs == nullptr) return false;
    nodes += kept.graphs->nodes();
    return !std::exchange(first, false) && nodes > max_nodes_;
  });
}

size_t ModelGraphs::nodes() const {
  absl::MutexLock lock(&mu_);
  size_t nodes = 0;
  for (const Kept& kept : kept_) nodes += kept.graphs == nullptr ? 0 : kept.graphs->nodes();
  return nodes;
}

}  // namespace msprobe::server
