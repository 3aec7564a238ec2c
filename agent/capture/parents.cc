#include "agent/capture/parents.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace msprobe::capture {
namespace {

uint32_t NextNumber() {
  static std::atomic<uint32_t> next{1};
  return next.fetch_add(1);
}

}  // namespace

Parents::Parents(core::Session* session) : session_(session), number_(NextNumber()) {}

core::ParentId Parents::Of(core::RecordKind kind, const ThreadState& thread) const {
  const core::ParentId phase = kind == core::RecordKind::kApi ? phase_.load(std::memory_order_relaxed) : 0;
  if (phase != 0) return phase;
  return thread.parents == number_ && !thread.modules.empty() ? thread.modules.back().name : 0;
}

void Parents::Push(ThreadState& thread, std::shared_ptr<void> call, OpenRecord& record) const {
  if (thread.parents != number_) {
    thread.modules.clear();
    thread.parents = number_;
  }
  thread.text.clear();
  record.AppendFullName(&thread.text);
  record.self = session_->DefineParent(thread.text);
  thread.modules.push_back({std::move(call), record.self});
}

void Parents::Pop(ThreadState& thread, const OpenRecord& record) const {
  if (thread.parents != number_) return;
  const auto innermost = std::find_if(thread.modules.rbegin(), thread.modules.rend(),
                                      [&](const ThreadState::OpenModule& open) { return open.name == record.self; });
  if (innermost != thread.modules.rend()) thread.modules.erase(std::next(innermost).base());
}

void Parents::SetPhase(std::string_view phase) {
  phase_.store(phase.empty() ? 0 : session_->DefineParent(phase), std::memory_order_relaxed);
}

}  // namespace msprobe::capture
