#include <array>

#include "agent/core/queue/dictionary.h"
#include "agent/core/queue/fragment_digest.h"
#include "agent/core/queue/fragment_queue.h"
#include "benchmark/benchmark.h"

namespace msprobe::core {
namespace {

// The cost of one fragment with `leaves` tensors for a capturing thread, while chunks are taken and recycled.
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

// The cost of its digest.
void BM_Digest(benchmark::State& state) {
  static constexpr std::array<int64_t, 3> kShape = {8, 64, 896};
  Structure structure;
  structure.name = "Functional.linear";
  structure.fields.kind = NodeKind::kDict;
  Dictionary dictionary;
  std::vector<Leaf> leaves(static_cast<size_t>(state.range(0)));
  for (Leaf& leaf : leaves) {
    leaf.shape = kShape;
    leaf.has_statistics = true;
  }
  Fragment fragment;
  fragment.structure = dictionary.DefineStructure(structure);
  fragment.parent = dictionary.DefineParent("Module.root.Root.forward.0");
  fragment.leaves = leaves;
  for (auto _ : state) benchmark::DoNotOptimize(DigestAtCapture(fragment, dictionary));
}
BENCHMARK(BM_Digest)->Arg(0)->Arg(4)->Arg(32);

}  // namespace
}  // namespace msprobe::core
