#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "agent/capture/fragment_builder.h"
#include "agent/core/record.h"

namespace msprobe::capture {

// The calls that one thread is inside. Only its own thread touches it.
struct ThreadState {
  explicit ThreadState(uint32_t thread_number) : number(thread_number) {}

  struct OpenModule {
    // What the framework keeps of the call; only the room that pushed it looks inside. Null for a backward.
    std::shared_ptr<void> call;
    core::ParentId name = 0;
  };
  const uint32_t number;            // small, from 0, in order of first use
  uint32_t generation = 0;          // of the recorder whose modules are listed
  uint32_t lane = 0;                // its place among the threads that record in the step
  uint32_t lane_epoch = 0;          // the Recorder::lanes_epoch() that `lane` belongs to
  int api_depth = 0;                // inside a recorded API: what it calls is its own business
  int suppressed = 0;               // inside something that is never recorded (printing a tensor)
  std::vector<OpenModule> modules;  // forward and backward, innermost last
  FragmentBuilder builder;
  std::string text;  // scratch; keeps its memory from call to call

  // The calling thread's.
  static ThreadState& Get();
};

}  // namespace msprobe::capture
