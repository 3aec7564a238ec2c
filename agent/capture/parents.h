#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>

#include "agent/capture/open_record.h"
#include "agent/capture/thread_state.h"
#include "agent/core/session.h"

namespace msprobe::capture {

// The parent of each record: the innermost open module of its thread. While a phase is set, the phase is the parent of
// API calls, whatever module they are in.
//
// Thread-safe. A ThreadState is the calling thread's own.
class Parents {
 public:
  // `session` outlives this.
  explicit Parents(core::Session* session);

  // 0: the record has no parent.
  core::ParentId Of(core::RecordKind kind, const ThreadState& thread) const;

  // `record` is the innermost parent on this thread until Pop. call: as ThreadState::OpenModule has it. Sets
  // record.self.
  void Push(ThreadState& thread, std::shared_ptr<void> call, OpenRecord& record) const;
  void Pop(ThreadState& thread, const OpenRecord& record) const;

  // "optimizer", "clip_grad". Empty ends the phase.
  void SetPhase(std::string_view phase);

 private:
  core::Session* const session_;
  const uint32_t number_;  // another one for each object; tells whose modules a ThreadState lists
  std::atomic<core::ParentId> phase_{0};
};

}  // namespace msprobe::capture
