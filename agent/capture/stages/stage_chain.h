#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "agent/capture/open_record.h"
#include "agent/capture/stages/call_stage.h"

namespace msprobe::capture {

// The stages that a call passes through, in order, the observer among them. By default the observer stands alone, and
// then nothing of this is run.
//
// A call is one record, whatever its stages do with it:
// 1. The observer records the call the first time that it comes by. Where a stage runs the call again, the later runs
//    pass the observer unrecorded; calls that are made inside them are recorded as ever.
// 2. A call that a stage before the observer answers by itself leaves no record.
//
// Threads: the GIL guards it. Stages may be set while a call is under way, which goes on with those it began with.
class StageChain {
 public:
  enum class Place : uint8_t {
    kBeforeObserver,  // the record shows the arguments that the stage hands on and the result that it gets
    kBehindObserver,  // the record shows the program's arguments and the result that the stage gives
  };

  // Puts `stage` into the chain, behind the others of its place, or where the stage of this name stood. Null takes the
  // stage of this name out.
  void Set(std::string_view name, Place place, std::shared_ptr<CallStage> stage);

  bool empty() const { return stages_ == nullptr; }
  // Whether a stage takes part in this call.
  bool Touches(const OpenRecord& record) const { return stages_ != nullptr && AnyTouches(record); }

  // Records a call around `rest`, which it runs once.
  using Observer = absl::FunctionRef<PyObject*(PyObject* arguments, PyObject* keywords, RestOfCall rest)>;

  // Sends a call through the stages that touch it. Gives what the first of them gives.
  PyObject* Run(const OpenRecord& record, PyObject* arguments, PyObject* keywords, Observer observer,
                RestOfCall function) const;

 private:
  struct Standing {
    std::string name;
    Place place;
    std::shared_ptr<CallStage> stage;
  };
  using Stages = std::vector<Standing>;  // those before the observer first
  struct Passage;                        // one call on its way

  bool AnyTouches(const OpenRecord& record) const;

  std::shared_ptr<const Stages> stages_;  // null: the observer alone
};

}  // namespace msprobe::capture
