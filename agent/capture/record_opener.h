#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "agent/capture/filter/capture_rules.h"
#include "agent/capture/filter/record_filter.h"
#include "agent/capture/open_record.h"
#include "agent/capture/parents.h"
#include "agent/capture/reading/tensor_source.h"
#include "agent/capture/steps/step_numbers.h"
#include "agent/capture/steps/step_state.h"
#include "agent/capture/thread_state.h"
#include "agent/core/config/config.h"
#include "agent/core/session.h"

namespace msprobe::capture {

// Begins records: names and numbers them, gives them their parent and their place, and asks the filters whether they
// are kept. A call is numbered even where its record is not kept, so that names do not depend on filters.
//
// The caller of BeginApi and BeginModule has set ThreadState::slot for this step.
//
// In a forked child, where nothing begins (StepState), what was open before the fork may end.
//
// Thread-safe. A ThreadState is the calling thread's own. Throws nothing but what TensorSource::BeginCall does.
class RecordOpener {
 public:
  // All outlive this.
  RecordOpener(const core::Config& config, core::Session* session, TensorSource* source, const CaptureRules* rules,
               const StepState* step);

  // The forward record of an API call or module. A module also becomes the parent of its calls (PushModule).
  OpenRecord BeginApi(const Api& api, ThreadState& thread);
  OpenRecord BeginModule(const std::shared_ptr<const std::string>& name, ThreadState& thread);
  // The backward record that belongs to a forward one. Each is another pass over the forward call.
  OpenRecord BeginBackward(const OpenRecord& forward, ThreadState& thread);
  // The backward record that was begun last, again, for fields that come later than the others. It keeps its place.
  OpenRecord BackwardOf(const OpenRecord& forward);
  // A gradient of a parameter was accumulated. Returns the record that it belongs to.
  OpenRecord BeginParameterGradient(const std::shared_ptr<const std::string>& module, const std::string& parameter,
                                    ThreadState& thread);
  OpenRecord BeginDebug(std::string_view name, uint32_t count);

  // Calls that select leaves out. They have no record and stand nowhere, but are counted among the calls of their name.
  // Whether this is one; then it has been counted.
  bool LeavesOut(const Api& api, ThreadState& thread);
  // Whether calls of the module are.
  bool LeavesOut(const std::string& module);
  // The thread is inside of the module, which may be one of them, from here to there.
  void BeginInside(const std::shared_ptr<const std::string>& module, ThreadState& thread);
  void EndInside(ThreadState& thread);

  // Asks the filters again where the call ends: the end of a scope may lie inside it.
  void Recheck(OpenRecord& record);

  // See Parents.
  void PushModule(ThreadState& thread, std::shared_ptr<void> call, OpenRecord& record);
  void PopModule(ThreadState& thread, const OpenRecord& record);
  void SetPhase(std::string_view phase) { parents_.SetPhase(phase); }

  // The next place in dump.json, for a record that moves there because it was updated.
  uint64_t NextOrdinal();

  // Resets counts, places and filters. True: calls were numbered in the step, whether or not a filter kept them.
  bool EndStep();

 private:
  // The innermost module around a call of the thread, where select looks at it; else null.
  const std::shared_ptr<const std::string>& Around(const ThreadState& thread) const;

  // Sets `save` of a record that has been judged.
  void DecideSave(OpenRecord& record) const { record.save = record.wanted && rules_.Saves(record); }

  const core::Level level_;
  const bool selects_;       // by select
  const bool reads_around_;  // CallSelection::reads_around
  const bool saves_debug_;
  TensorSource& source_;
  const CaptureRules& rules_;
  const StepState& step_;
  Parents parents_;

  absl::Mutex mu_;
  RecordFilter filter_ ABSL_GUARDED_BY(mu_);
  StepNumbers numbers_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<const Api*, std::shared_ptr<const std::string>> api_names_ ABSL_GUARDED_BY(mu_);
};

}  // namespace msprobe::capture
