#include "agent/capture/stages/stage_chain.h"

#include <algorithm>
#include <utility>

namespace msprobe::capture {

void StageChain::Set(std::string_view name, Place place, std::shared_ptr<CallStage> stage) {
  Stages stages = stages_ == nullptr ? Stages() : *stages_;
  const auto found =
      std::find_if(stages.begin(), stages.end(), [&](const Standing& each) { return each.name == name; });
  if (found != stages.end() && stage != nullptr && found->place == place) {
    found->stage = std::move(stage);
  } else {
    if (found != stages.end()) stages.erase(found);
    if (stage != nullptr) {
      const auto end = std::find_if(stages.begin(), stages.end(), [&](const Standing& each) {
        return place == Place::kBeforeObserver && each.place == Place::kBehindObserver;
      });
      stages.insert(end, Standing{std::string(name), place, std::move(stage)});
    }
  }
  stages_ = stages.empty() ? nullptr : std::make_shared<const Stages>(std::move(stages));
}

bool StageChain::AnyTouches(const OpenRecord& record) const {
  return std::any_of(stages_->begin(), stages_->end(),
                     [&](const Standing& each) { return each.stage->Touches(record); });
}

struct StageChain::Passage {
  const OpenRecord& record;
  const Stages& stages;
  const Observer observer;
  const RestOfCall function;
  bool observed = false;

  // The stages from `next` on; is_behind: the observer has been passed.
  PyObject* From(size_t next, bool is_behind, PyObject* arguments, PyObject* keywords) {
    const bool at_observer = !is_behind && (next == stages.size() || stages[next].place == Place::kBehindObserver);
    if (at_observer) {
      if (std::exchange(observed, true)) return From(next, true, arguments, keywords);
      return observer(arguments, keywords,
                      [&](PyObject* given, PyObject* named) { return From(next, true, given, named); });
    }
    if (next == stages.size()) return function(arguments, keywords);
    CallStage& stage = *stages[next].stage;
    if (!stage.Touches(record)) return From(next + 1, is_behind, arguments, keywords);
    return stage.Run(record, arguments, keywords,
                     [&](PyObject* given, PyObject* named) { return From(next + 1, is_behind, given, named); });
  }
};

PyObject* StageChain::Run(const OpenRecord& record, PyObject* arguments, PyObject* keywords, Observer observer,
                          RestOfCall function) const {
  const std::shared_ptr<const Stages> stages = stages_;
  if (stages == nullptr) return observer(arguments, keywords, function);
  return Passage{record, *stages, observer, function}.From(0, false, arguments, keywords);
}

}  // namespace msprobe::capture
