#include <array>

#include "agent/core/fragment_queue.h"
#include "benchmark/benchmark.h"

namespace msprobe::core {
namespace {

// What a capturing thread pays for one fragment of `leaves` tensors; the chunks are taken and given back meanwhile.
void BM_Append(benchmark::State& state) {
  static Doorbell bell;
  static FragmentQueue queue(&bell);
  static constexpr std::array<int64_t, 3> kShape = {8, 64, 896};
  std::vector<Leaf> leaves(static_cast<size_t>(state.range(0)));
  for (Leaf& leaf : leaves) {
    leaf.shape = kShape;
    leaf.has_statistics = true;
  }
  Fragment fragment;
  fragment.leaves = leaves;
  size_t since_taken = 0;
  for (auto _ : state) {
    queue.Append(fragment);
    if (state.thread_index() == 0 && ++since_taken == 256) {
      since_taken = 0;
      for (Chunk& chunk : queue.Take()) queue.Recycle(std::move(chunk));
    }
  }
}
BENCHMARK(BM_Append)->Arg(0)->Arg(4)->Arg(32);
BENCHMARK(BM_Append)->Arg(4)->Threads(2);

}  // namespace
}  // namespace msprobe::core
