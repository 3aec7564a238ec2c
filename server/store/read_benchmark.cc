// What it takes to read a step back, from rows and from tiles. A record here is a tensor: a leaf with its checksum.

#include <benchmark/benchmark.h>

#include "server/store/disk/scratch_directory.h"
#include "server/store/stored_blocks.h"
#include "server/store/stored_pass.h"
#include "server/store/tiles/tiler.h"

namespace msprobe::server {
namespace {

constexpr uint32_t kSteps = 20;

// A run whose steps have `leaves` tensors each, as rows or as tiles.
struct Filled {
  Filled(uint32_t leaves, bool tiled) : pass({.calls = leaves / 2}) {
    StoreOptions options;
    options.directory = directory / "data";
    store = *Store::Open(options);
    bool written = PutRun(*store, "run", pass).ok();
    for (uint32_t step = 0; step < kSteps; ++step) {
      written = written && PutStep(*store, pass, {1, 0, step, 0}, 1000).ok();
    }
    if (tiled) written = written && Tiler(store.get()).RunOnce().ok();
    ok = written && store->database().Compact().ok();
  }
  ScratchDirectory directory;
  const RepeatedPass pass;
  std::unique_ptr<Store> store;
  bool ok = false;
};

// Blocks with their columns: what analysis takes.
void ReadBlocks(benchmark::State& state) {
  const Filled filled(static_cast<uint32_t>(state.range(0)), state.range(1) != 0);
  if (!filled.ok) state.SkipWithError("not filled");
  uint32_t step = 0;
  for (auto _ : state) {
    auto blocks = filled.store->steps().ReadBlocks({1, 0, step++ % kSteps, 0});
    if (!blocks.ok() || blocks->empty()) state.SkipWithError("not read");
  }
}
BENCHMARK(ReadBlocks)
    ->ArgNames({"tensors", "tiled"})
    ->Args({30'000, 0})
    ->Args({30'000, 1})
    ->Unit(benchmark::kMillisecond);

// Every record, joined and decoded: what an export or a stream of records takes.
void ReadRecords(benchmark::State& state) {
  const Filled filled(static_cast<uint32_t>(state.range(0)), state.range(1) != 0);
  if (!filled.ok) state.SkipWithError("not filled");
  uint32_t step = 0;
  v1::Rank rank;
  rank.set_kind(v1::Rank::RANK);
  for (auto _ : state) {
    auto reader = filled.store->steps().Open("run", step++ % kSteps, rank);
    uint64_t records = 0;
    if (reader.ok()) {
      (*reader)
          ->ForEachRecord([&](const v1::Record&, uint64_t) {
            ++records;
            return absl::OkStatus();
          })
          .IgnoreError();
    }
    if (records == 0) state.SkipWithError("not read");
  }
}
BENCHMARK(ReadRecords)
    ->ArgNames({"tensors", "tiled"})
    ->Args({30'000, 0})
    ->Args({30'000, 1})
    ->Unit(benchmark::kMillisecond);

// The tiler itself, in tensors a second of one core.
void Tile(benchmark::State& state) {
  uint64_t tensors = 0;
  for (auto _ : state) {
    state.PauseTiming();
    const Filled filled(static_cast<uint32_t>(state.range(0)), false);
    state.ResumeTiming();
    if (!Tiler(filled.store.get()).RunOnce().ok()) state.SkipWithError("not tiled");
    tensors += kSteps * filled.pass.leaves();
  }
  state.counters["tensors"] = benchmark::Counter(static_cast<double>(tensors), benchmark::Counter::kIsRate);
}
BENCHMARK(Tile)->Arg(1000)->Iterations(3)->Unit(benchmark::kMillisecond);

// Bytes on disk of a tensor with its checksum: 1,000 steps of 1,000 tensors, tiled and compacted; the second with other
// shapes each step.
void DiskBytes(benchmark::State& state) {
  for (auto _ : state) {
    constexpr uint32_t kManySteps = 1000;
    const RepeatedPass pass({.calls = 500, .varying_shapes = state.range(0) != 0});
    ScratchDirectory directory;
    StoreOptions options;
    options.directory = directory / "data";
    auto store = *Store::Open(options);
    bool ok = PutRun(*store, "run", pass).ok();
    for (uint32_t step = 0; step < kManySteps; ++step) ok = ok && PutStep(*store, pass, {1, 0, step, 0}).ok();
    ok = ok && Tiler(store.get()).RunOnce().ok() && store->database().Compact().ok();
    if (!ok) state.SkipWithError("not filled");
    uint64_t bytes = 0;
    for (Family family : {Family::kMeta, Family::kRows, Family::kTiles}) bytes += store->database().FileBytes(family);
    state.counters["bytes_a_tensor"] = static_cast<double>(bytes) / (kManySteps * pass.leaves());
  }
}
BENCHMARK(DiskBytes)->ArgName("varying_shapes")->Arg(0)->Arg(1)->Iterations(1)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace msprobe::server
