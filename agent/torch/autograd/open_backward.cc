#include "agent/torch/autograd/open_backward.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <atomic>
#include <tuple>
#include <vector>

namespace msprobe::capture {
namespace {

using OpenOnes = std::vector<std::shared_ptr<OpenBackward>>;

OpenOnes& OfThread() {
  thread_local OpenOnes open;
  return open;
}

}  // namespace

uint64_t OpenBackward::NextOrder() {
  static std::atomic<uint64_t> next{0};
  return next.fetch_add(1, std::memory_order_relaxed);
}

void OpenBackward::Open() {
  OpenOnes& open = OfThread();
  // Passes that end on another thread leave theirs here.
  std::erase_if(open, [](const auto& one) { return !one->CanEnd(true); });
  open.push_back(shared_from_this());
  pass_ = torch::autograd::get_current_graph_task_id();
  torch::autograd::Engine::get_default_engine().queue_callback([self = shared_from_this()] {
    // Inside a node, the pass is one of a checkpoint's second forward, and others are under way around it.
    const bool nested = torch::autograd::get_current_node() != nullptr;
    EndWhere(true, [&](const OpenBackward& one) { return !nested || one.pass_ == self->pass_; });
    if (self->CanEnd(true)) self->End(true);
  });
}

void OpenBackward::WaitForEnd() {
  OpenOnes& open = OfThread();
  const auto self = shared_from_this();
  if (std::find(open.begin(), open.end(), self) == open.end()) open.push_back(self);
}

void OpenBackward::EndBehind(uint64_t sequence) {
  EndWhere(false, [&](const OpenBackward& one) { return one.first_sequence_ > sequence; });
}

void OpenBackward::EndAfter(uint64_t order) {
  EndWhere(false, [&](const OpenBackward& one) { return one.order_ >= order; });
}

template <typename Chosen>
void OpenBackward::EndWhere(bool pass_ended, Chosen chosen) {
  OpenOnes& open = OfThread();
  while (!open.empty()) {
    auto latest = open.end();
    for (auto each = open.begin(); each != open.end(); ++each) {
      if (!chosen(**each) || !(*each)->CanEnd(pass_ended)) continue;
      const auto place = [](const OpenBackward& one) { return std::tuple(one.first_sequence_, one.order_); };
      if (latest == open.end() || place(**latest) < place(**each)) latest = each;
    }
    if (latest == open.end()) return;
    const std::shared_ptr<OpenBackward> one = *latest;
    if (one->End(pass_ended)) std::erase(open, one);
  }
}

}  // namespace msprobe::capture
