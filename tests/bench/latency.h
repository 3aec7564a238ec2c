#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "tests/bench/simulated_rank.h"

namespace msprobe::bench {

// From the moment at which a batch was handed to the transport to the moment at which its durability was known, as a
// thread sees that looks at the counters of every rank each kLook (2 ms): that is the resolution.
// Threads: one. `ranks` outlives it.
class Latency {
 public:
  explicit Latency(const std::vector<std::unique_ptr<SimulatedRank>>& ranks);
  ~Latency() { Stop(); }

  struct Result {
    uint64_t samples = 0;
    double p50_ms = 0, p99_ms = 0;
  };
  Result Stop();
  // Sorts them.
  static Result Summarize(std::vector<float>* milliseconds);

 private:
  void Run();

  const std::vector<std::unique_ptr<SimulatedRank>>& ranks_;
  std::vector<float> milliseconds_;  // the thread's until it has been joined
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace msprobe::bench
