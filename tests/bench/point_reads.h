#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/bench/latency.h"
#include "tests/bench/simulated_rank.h"

namespace msprobe::bench {

// One record of one step of one rank, asked for again and again while ranks emit: any of the calls, of a step from the
// oldest quarter of what was emitted. What is measured is a whole call, in this process, as a client sees it.
// Threads: one. What it is given outlives it.
class PointReads {
 public:
  // `a_second`: calls, one at a time; 0: none.
  PointReads(const std::string& server, std::string run, const RecordedStep* step,
             const std::vector<std::unique_ptr<SimulatedRank>>* ranks, double a_second);
  ~PointReads() { Stop(); }

  struct Result {
    Latency::Result latency;
    uint64_t missed = 0;  // not there (yet): no sample
    uint64_t failed = 0;
  };
  Result Stop();

 private:
  void Run(const std::string& server);

  const std::string run_;
  const std::vector<std::unique_ptr<SimulatedRank>>* const ranks_;
  const double a_second_;
  std::vector<std::string> names_;   // of records
  std::vector<float> milliseconds_;  // the thread's until it has been joined, as are the next two
  uint64_t missed_ = 0, failed_ = 0;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace msprobe::bench
