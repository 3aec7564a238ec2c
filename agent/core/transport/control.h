#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "agent/core/mutex.h"

namespace msprobe::core {

// A command from a user to a running process, through its server. Numbered as msprobe.v1.ControlCommand.Action.
struct ControlCommand {
  enum class Action : uint8_t { kStatus = 0, kStart = 1, kStop = 2, kSet = 3, kNext = 4, kRequest = 5, kDeeper = 6 };
  uint64_t id = 0;
  Action action = Action::kStatus;
  std::string settings_json;  // kSet, kDeeper: fields of the configuration, an object
  uint32_t steps = 0;         // kNext, kRequest, kDeeper: capture so many steps; kRequest: 0 is no end
  std::string request;        // kRequest
  std::string asked_by;
};

struct ControlAnswer {
  uint64_t command = 0;
  std::string said;
  bool refused = false;
  uint32_t step = 0;  // from which the command holds: that of the SetState behind the answer
};

// The state that the program reports.
struct ControlState {
  bool enabled = false;    // the next step that begins is captured (as far as step, rank and request allow)
  bool capturing = false;  // between start() and stop()
  std::string task, level, summary_mode;
  std::string list;  // as configured, JSON
  std::string request;
  uint32_t step = 0;        // the present or next one
  int64_t steps_left = -1;  // of kNext; -1: no end
};

// Hands commands from the sender, which hears the server, to the program, which obeys where a step begins or ends, and
// hands the program's answers back.
//
// Threads: any.
class ControlMailbox {
 public:
  // `ring` wakes the sender, since there is an answer.
  explicit ControlMailbox(std::function<void()> ring) : ring_(std::move(ring)) {}

  // Called by the sender: a command came.
  void Put(ControlCommand command);

  // Called by the program: whether there are commands to Take. Cheap.
  bool waiting() const { return waiting_.load(std::memory_order_acquire); }
  std::vector<ControlCommand> Take();
  // The program has obeyed or refused a command. The answer goes out with the next SetState, so that nobody hears of
  // the command together with the state before it.
  void Answer(uint64_t command, std::string said, bool refused);
  void SetState(ControlState state);

  struct Report {
    ControlState state;
    uint64_t version = 0;   // grows with every change
    uint64_t received = 0;  // commands
    ControlAnswer answer;   // the latest
  };
  Report report() const;

 private:
  const std::function<void()> ring_;
  std::atomic<bool> waiting_{false};
  mutable Mutex mu_;
  std::vector<ControlCommand> commands_ ABSL_GUARDED_BY(mu_);
  std::optional<ControlAnswer> answer_ ABSL_GUARDED_BY(mu_);  // not yet told
  Report report_ ABSL_GUARDED_BY(mu_);
};

// A session through which a server can reach the program.
class Controlled {
 public:
  virtual ~Controlled() = default;
  virtual ControlMailbox& control() = 0;
  // Connects now, and again whenever the connection is lost, even while there is nothing to send.
  virtual void StayConnected() = 0;
};

}  // namespace msprobe::core
