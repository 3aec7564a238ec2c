#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/bench/latency.h"
#include "tests/bench/recorded_step.h"

namespace msprobe::bench {

// One record of one step of one rank, asked for again and again while ranks emit: any of the calls, of a step from the
// oldest quarter of what was emitted. What is measured is a whole call, in a process of its own, as a client sees it:
// beside the ranks it would share gRPC's polling, and each answer would wait behind their acknowledgements.
// Threads: Emitted from any; the rest from one.
class PointReads {
 public:
  // Forks, so before anything has made a thread. `a_second`: calls, one at a time; 0: none, and no process.
  PointReads(const std::string& server, const std::string& run, const RecordedStep& step, uint32_t ranks,
             double a_second);
  ~PointReads() { Stop(); }

  // So many steps of the rank can be asked for.
  void Emitted(uint32_t rank, uint32_t steps);

  struct Result {
    Latency::Result latency;
    uint64_t missed = 0;  // not there (yet): no sample
    uint64_t failed = 0;
  };
  // Nothing but failed calls: that process died.
  Result Stop();

 private:
  // What the two processes share.
  struct Shared;

  const uint32_t ranks_;
  Shared* shared_ = nullptr;
  pid_t reader_ = -1;
  int results_ = -1;  // end of a pipe that is read
};

}  // namespace msprobe::bench
