// One tensor over 10,000 steps of 8 ranks, and one step found among them.

#include <benchmark/benchmark.h>

#include "server/query/analysis_context.h"
#include "server/store/disk/scratch_directory.h"
#include "server/store/stored_pass.h"
#include "server/store/tiles/tiler.h"

namespace msprobe::server {
namespace {

constexpr uint32_t kSteps = 10'000;
constexpr uint32_t kRanks = 8;
constexpr uint32_t kTensors = 40;

struct Filled {
  Filled() : pass({.calls = kTensors / 2}) {
    StoreOptions options;
    options.directory = directory / "data";
    store = *Store::Open(options);
    ok = PutRun(*store, "run", pass).ok();
    for (uint32_t step = 0; step < kSteps; ++step) {
      for (uint32_t rank = 0; rank < kRanks; ++rank) ok = ok && PutStep(*store, pass, {1, rank, step, 0}).ok();
    }
    ok = ok && Tiler(store.get()).RunOnce().ok() && store->database().Compact().ok();
  }
  ScratchDirectory directory;
  const RepeatedPass pass;
  std::unique_ptr<Store> store;
  TableLayouts layouts;
  bool ok = false;
};

const Filled& TheRun() {
  static const Filled filled;
  return filled;
}

void OneTensor(benchmark::State& state) {
  const Filled& filled = TheRun();
  AnalysisContext context{.store = filled.store.get(), .layouts = const_cast<TableLayouts*>(&filled.layouts)};
  v1::TrendRequest request;
  request.mutable_source()->set_run("run");
  request.mutable_scope()->set_name_glob("Torch.matmul.3.forward.output.0");
  for (auto _ : state) {
    int points = 0;
    absl::Status status = Trend(
        context, request, [] { return false; },
        [&](const v1::TrendResponse& response) {
          points += response.series().value_size();
          return true;
        });
    if (!filled.ok || !status.ok() || points != kSteps * kRanks) state.SkipWithError("not all points");
  }
}
BENCHMARK(OneTensor)->Unit(benchmark::kMillisecond)->MeasureProcessCPUTime()->UseRealTime();

void OneStep(benchmark::State& state) {
  const Filled& filled = TheRun();
  v1::Rank rank;
  rank.set_kind(v1::Rank::RANK);
  uint32_t step = 0;
  for (auto _ : state) {
    rank.set_number(step % kRanks);
    auto reader = filled.store->steps().Open("run", (step += 7919) % kSteps, rank);
    if (!reader.ok()) state.SkipWithError("not read");
  }
}
BENCHMARK(OneStep)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace msprobe::server
