#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "agent/capture/fragments/fragment_builder.h"
#include "agent/core/record.h"

namespace msprobe::capture {

// The calls that one thread is inside. Only its own thread touches it.
struct ThreadState {
  explicit ThreadState(uint32_t thread_number) : number(thread_number) {}

  struct OpenModule {
    // The framework's state of the call. Only the room that pushed it looks inside. Null for a backward.
    std::shared_ptr<void> call;
    core::ParentId name = 0;
  };
  const uint32_t number;            // small, from 0, in order of first use
  uint32_t parents = 0;             // the Parents whose modules are listed, by its number
  uint32_t slot = 0;                // the thread's slot among the threads that record in the step
  uint32_t slot_step = 0;           // the step that `slot` belongs to (StepState::id)
  int api_depth = 0;                // above 0 inside a recorded API, whose inner calls are not recorded
  int suppressed = 0;               // above 0 where nothing is recorded (printing a tensor)
  std::vector<OpenModule> modules;  // forward and backward, innermost last
  // Names of the modules that run, innermost last, recorded or not; only where CallSelection::reads_around.
  std::vector<std::shared_ptr<const std::string>> around;
  FragmentBuilder builder;
  std::string text;  // scratch; keeps its memory from call to call

  // The calling thread's.
  static ThreadState& Get();
};

}  // namespace msprobe::capture
