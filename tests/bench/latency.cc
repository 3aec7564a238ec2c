#include "tests/bench/latency.h"

#include <algorithm>
#include <chrono>
#include <deque>

namespace msprobe::bench {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kLook(2);

double Percentile(std::vector<float>& sorted, double share) {
  if (sorted.empty()) return 0;
  return sorted[std::min(sorted.size() - 1, static_cast<size_t>(share * static_cast<double>(sorted.size())))];
}

struct Sent {
  uint64_t through;
  Clock::time_point when;
};

}  // namespace

Latency::Latency(const std::vector<std::unique_ptr<SimulatedRank>>& ranks)
    : ranks_(ranks), thread_([this] { Run(); }) {}

void Latency::Run() {
  std::vector<std::deque<Sent>> under_way(ranks_.size());
  std::vector<uint64_t> sent(ranks_.size());
  while (!stop_) {
    const Clock::time_point now = Clock::now();
    for (size_t i = 0; i < ranks_.size(); ++i) {
      const core::SessionCounters counters = ranks_[i]->session().counters();
      if (counters.batches_sent > sent[i]) {
        sent[i] = counters.batches_sent;
        under_way[i].push_back({sent[i], now});
      }
      while (!under_way[i].empty() && under_way[i].front().through <= counters.durable_through) {
        milliseconds_.push_back(std::chrono::duration<float, std::milli>(now - under_way[i].front().when).count());
        under_way[i].pop_front();
      }
    }
    std::this_thread::sleep_until(now + kLook);
  }
}

Latency::Result Latency::Stop() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
  return Summarize(&milliseconds_);
}

Latency::Result Latency::Summarize(std::vector<float>* milliseconds) {
  std::sort(milliseconds->begin(), milliseconds->end());
  return {milliseconds->size(), Percentile(*milliseconds, 0.5), Percentile(*milliseconds, 0.99)};
}

}  // namespace msprobe::bench
