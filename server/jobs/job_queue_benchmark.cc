// How many items a second the queue leases and takes results of, durably, beside what its store takes.

#include <benchmark/benchmark.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "server/format/storage/key.h"
#include "server/jobs/job_queue.h"
#include "server/store/disk/scratch_directory.h"

namespace msprobe::server {
namespace {

constexpr int kItems = 1'000'000;
constexpr int kAdded = 10'000;  // items a call

double ResidentMib() {
  uint64_t pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return static_cast<double>(resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE))) / (1 << 20);
}

// Items a second whose results a store takes durably, when it is given nothing but the rows: what the queue cannot
// pass. Each of the threads writes a batch for the lease and one for its results, and waits for the disk after each.
double RowsPerSecond(Database& database, int64_t batch, int64_t threads) {
  std::atomic<int> written = 0;
  const absl::Time start = absl::Now();
  std::vector<std::thread> writers;
  for (int64_t thread = 0; thread < threads; ++thread) {
    writers.emplace_back([&] {
      while (written < kItems / 5) {
        const uint32_t first = static_cast<uint32_t>(written += static_cast<int>(batch));
        ChangeSet lease, results;
        lease.Put(Family::kMeta, JobLeaseKey(9, 9, first), std::string(static_cast<size_t>(batch) * 3, 'l'));
        for (uint32_t i = 0; i < static_cast<uint32_t>(batch); ++i) {
          results.Put(Family::kMeta, JobPartKey(MetaSpace::kJobResult, 9, 9, first + i), std::string(130, 'r'));
          results.Put(Family::kMeta, JobPartKey(MetaSpace::kJobResultOf, 9, 9, first + i), std::string(12, 'o'));
        }
        for (const ChangeSet* changes : {&lease, &results}) {
          if (!database.Write(*changes).ok() || !database.AwaitDurable(absl::Seconds(30)).ok()) return;
        }
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  return written / absl::ToDoubleSeconds(absl::Now() - start);
}

// A million items leased in batches of range(0) by range(1) workers, each of which finishes its batch in one call.
void LeaseAndFinish(benchmark::State& state) {
  for (auto _ : state) {
    ScratchDirectory directory;
    Metrics metrics;
    StoreOptions options;
    options.directory = directory / "data";
    options.block_cache_bytes = size_t{8} << 20;  // what grows is not the cache
    auto store = *Store::Open(options);
    if (!store->catalogue().PlaceRun("r", {}).ok()) return state.SkipWithError("no run");
    JobQueue queue(store.get(), &metrics);
    v1::CreateJobRequest create;
    create.set_run("r");
    create.set_kind("test");
    create.set_token(std::string(16, 't'));
    const uint32_t job = queue.Create(create, {})->job();
    const absl::Time adding = absl::Now();
    for (int first = 0; first < kItems; first += kAdded) {
      v1::AddItemsRequest items;
      items.set_job(job);
      items.set_first(static_cast<uint64_t>(first));
      items.set_seal(first + kAdded == kItems);
      for (int i = 0; i < kAdded; ++i) items.add_items()->set_payload(std::string(100, 'p'));
      if (!queue.AddItems(items, {}).ok()) return state.SkipWithError("items were refused");
    }
    state.counters["added_per_s"] = kItems / absl::ToDoubleSeconds(absl::Now() - adding);
    const double before = ResidentMib();
    const absl::Time start = absl::Now();
    std::vector<std::thread> workers;
    for (int64_t i = 0; i < state.range(1); ++i) {
      workers.emplace_back([&] {
        v1::LeaseRequest request;
        request.set_worker("w");
        request.add_kinds("test");
        request.set_max_items(static_cast<uint32_t>(state.range(0)));
        while (true) {
          auto lease = queue.TakeLease(request, {}, [] { return false; });
          if (!lease.ok() || lease->lease() == 0) return;
          v1::FinishRequest finish;
          finish.set_lease(lease->lease());
          finish.set_job(lease->job());
          for (const auto& item : lease->items()) {
            v1::FinishRequest::Result& result = *finish.add_results();
            result.set_item(item.item());
            result.set_outcome(v1::OUTCOME_DONE);
            result.set_result(std::string(100, 'r'));
          }
          if (!queue.Finish(finish).ok()) return;
        }
      });
    }
    for (std::thread& worker : workers) worker.join();
    const double seconds = absl::ToDoubleSeconds(absl::Now() - start);
    const v1::Job progress = queue.List({})->jobs(0);
    if (progress.done() != kItems) return state.SkipWithError("some items have no result");
    state.SetIterationTime(seconds);
    state.counters["leased_and_finished_per_s"] = kItems / seconds;
    state.counters["memory_growth_mib"] = ResidentMib() - before;
    state.counters["rows_per_s"] = RowsPerSecond(store->database(), state.range(0), state.range(1));
  }
}
BENCHMARK(LeaseAndFinish)
    ->Args({256, 4})
    ->Args({1024, 4})
    ->Iterations(1)
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace msprobe::server
