#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "agent/capture/steps/token_window.h"
#include "agent/core/at_fork.h"

namespace msprobe::capture {

// The step that a recorder captures: its number, its forward passes, and whether calls are captured now.
//
// Every call asks this, so the questions take no lock. In a forked child no step is captured, from before fork()
// returns there, and none begins: a thread that stayed with the parent may hold any lock of the capture.
//
// Thread-safe.
class StepState {
 public:
  StepState();

  // A number that no other step of the process has, and greater than those before. It tells whether what a thread
  // remembers belongs to this step.
  uint32_t id() const { return id_.load(std::memory_order_relaxed); }
  uint32_t number() const { return number_.load(std::memory_order_relaxed); }

  // Whether this is a forked child. Then number() is no step's.
  bool forked() const { return forked_.load(std::memory_order_relaxed); }

  // True from Start or GoOn to Stop.
  bool watching() const { return watching_.load(std::memory_order_acquire); }
  // Whether calls are recorded: watching, and inside the forward passes that were asked for.
  bool capturing() const { return watching() && inside_.load(std::memory_order_relaxed); }

  // tokens: captures only these forward passes of the root.
  void Start(uint32_t step, std::optional<TokenWindow::Range> tokens = std::nullopt);
  // Captures into `step` as well. Forward passes are counted on.
  void GoOn(uint32_t step);
  void Stop() { watching_.store(false, std::memory_order_release); }

  // The root module was called: the next forward pass of the step begins, on this thread. Returns its token.
  uint32_t BeginToken();
  // The token of the pass that this thread began in the step; else the latest pass. Several threads may run one pass
  // each (microbatches), and each records into its own.
  uint32_t token() const;
  uint32_t latest_token() const { return token_.load(std::memory_order_relaxed); }

  // A record of the step stands in dump.json.
  void NoteRecord() {
    if (!has_records_.load(std::memory_order_relaxed)) has_records_.store(true);
  }

  struct Contents {
    bool passes = false;   // forward passes of the root module
    bool records = false;  // records that stand in dump.json
  };
  // `step` has ended and the next begins, with the first token. Returns what the ended one had.
  Contents End(uint32_t step);

 private:
  std::atomic<uint32_t> id_;
  std::atomic<uint32_t> number_{0};
  std::atomic<bool> watching_{false};
  std::atomic<bool> inside_{true};  // window_.inside()
  std::atomic<bool> has_records_{false};
  std::atomic<uint32_t> token_{0};  // written under mu_

  absl::Mutex mu_;
  TokenWindow window_ ABSL_GUARDED_BY(mu_);
  bool token_seen_ ABSL_GUARDED_BY(mu_) = false;

  std::atomic<bool> forked_{false};
  const core::AtFork at_fork_;
};

}  // namespace msprobe::capture
