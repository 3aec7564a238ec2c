// A trend database of a run, beside what SQLite takes for the same rows when they are prepared in memory.
//
// 100 steps of 3,000 targets; MSPROBE_BENCH_STEPS says how many steps instead.

#include <benchmark/benchmark.h>
#include <sqlite3.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "server/query/analysis_context.h"
#include "server/store/disk/scratch_directory.h"
#include "server/store/stored_pass.h"
#include "server/store/tiles/tiler.h"

namespace msprobe::server {
namespace {

constexpr uint32_t kTargets = 3'000;

uint32_t Steps() {
  const char* const steps = std::getenv("MSPROBE_BENCH_STEPS");
  return steps == nullptr ? 100 : static_cast<uint32_t>(std::atoi(steps));
}

struct Filled {
  Filled() : pass({.calls = kTargets / 2}) {
    StoreOptions options;
    options.directory = directory / "data";
    store = *Store::Open(options);
    ok = PutRun(*store, "run", pass).ok();
    for (uint32_t step = 0; step < Steps(); ++step) ok = ok && PutStep(*store, pass, {1, 0, step, 0}).ok();
    ok = ok && Tiler(store.get()).RunOnce().ok() && store->database().Compact().ok();
  }
  ScratchDirectory directory;
  const RepeatedPass pass;
  std::unique_ptr<Store> store;
  bool ok = false;
};

Filled& TheRun() {
  static Filled filled;
  return filled;
}

double Seconds(std::chrono::steady_clock::time_point since) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - since).count();
}

// The rows of one step, as many times as there are steps: into the table and indexes of a trend database, by SQLite
// alone, as fast as it goes.
bool WritePrepared(const std::string& path) {
  sqlite3* connection = nullptr;
  sqlite3_stmt* statement = nullptr;
  bool ok = sqlite3_open(path.c_str(), &connection) == SQLITE_OK;
  const auto run = [&](const char* sql) {
    ok = ok && sqlite3_exec(connection, sql, nullptr, nullptr, nullptr) == SQLITE_OK;
  };
  run("PRAGMA page_size=16384; PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; PRAGMA locking_mode=EXCLUSIVE;"
      "PRAGMA cache_size=-16384; PRAGMA temp_store=FILE; BEGIN;"
      "CREATE TABLE trend_data (rank INTEGER NOT NULL, step INTEGER NOT NULL, target_id INTEGER NOT NULL, metric_id "
      "INTEGER NOT NULL, norm REAL, max REAL, min REAL, mean REAL, nans REAL, zeros REAL, "
      "PRIMARY KEY (rank, step, target_id, metric_id)) WITHOUT ROWID;");
  ok = ok && sqlite3_prepare_v2(connection, "INSERT INTO trend_data VALUES (0, ?1, ?2, 1, ?3, ?4, ?5, ?6, ?7, ?8)", -1,
                                &statement, nullptr) == SQLITE_OK;
  constexpr double kValues[] = {1.5, 0.25, -3.75, 0.125, 0.0, 1.0};
  for (uint32_t step = 0; step < Steps(); ++step) {
    for (uint32_t target = 1; ok && target <= kTargets; ++target) {
      sqlite3_bind_int64(statement, 1, step);
      sqlite3_bind_int64(statement, 2, target);
      for (int i = 0; i < 6; ++i) sqlite3_bind_double(statement, 3 + i, kValues[i] * (1.001 + target * 1e-3));
      ok = sqlite3_step(statement) == SQLITE_DONE;
      sqlite3_reset(statement);
    }
  }
  sqlite3_finalize(statement);
  run("CREATE INDEX trend_target ON trend_data (target_id, metric_id);"
      "CREATE INDEX trend_step ON trend_data (step, metric_id); COMMIT");
  return sqlite3_close(connection) == SQLITE_OK && ok;
}

void OneRun(benchmark::State& state) {
  Filled& filled = TheRun();
  TableLayouts layouts;
  const AnalysisContext context{
      .store = filled.store.get(), .layouts = &layouts, .spool_directory = filled.directory / "spool"};
  v1::TrendDatabaseRequest request;
  request.mutable_source()->set_run("run");
  double ours = 0;
  double prepared = 0;
  uint64_t bytes = 0;
  for (auto _ : state) {
    auto began = std::chrono::steady_clock::now();
    bytes = 0;
    absl::Status status = WriteTrendDatabase(
        context, request, [] { return false; },
        [&](const v1::TrendDatabaseResponse& response) {
          bytes += response.content().size();
          return true;
        });
    ours += Seconds(began);
    began = std::chrono::steady_clock::now();
    const std::string path = filled.directory / "prepared.trend.db";
    const bool written = WritePrepared(path);
    prepared += Seconds(began);
    if (!filled.ok || !status.ok() || !written) state.SkipWithError("not written");
    std::filesystem::remove(path);
  }
  const auto times = static_cast<double>(state.iterations());
  const double rows = double{kTargets} * Steps() * times;
  state.counters["rows"] = double{kTargets} * Steps();
  state.counters["seconds"] = ours / times;
  state.counters["rows_per_second"] = rows / ours;
  state.counters["of_prepared"] = ours / prepared;
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  state.counters["peak_mib"] = static_cast<double>(used.ru_maxrss) / 1024;
  state.counters["bytes"] = static_cast<double>(bytes);
}
BENCHMARK(OneRun)->Unit(benchmark::kMillisecond)->UseRealTime()->Iterations(3);

}  // namespace
}  // namespace msprobe::server
