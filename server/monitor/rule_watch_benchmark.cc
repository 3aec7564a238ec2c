// Rules over the scalars of 1,000 ranks that log 2,000 series a step, a step a second: what a second of data takes of
// the thread of the rules, and how long after the points are durable an alarm is in the store. And what points take at
// rest.

#include <benchmark/benchmark.h>
#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "server/format/cat.h"
#include "server/ingest/scripted/scripted_agent.h"
#include "server/ingest/session/sessions.h"
#include "server/monitor/rule_watch.h"
#include "server/monitor/rules/rule_kinds.h"
#include "server/store/alarms.h"
#include "server/store/disk/scratch_directory.h"

namespace msprobe::server {
namespace {

constexpr uint32_t kRanks = 1000;
constexpr size_t kSeries = 2000;
constexpr int kSeconds = 5;  // of data that are measured
constexpr int kAhead = 8;    // before that: as many points as `exploding` warms up with

double CpuSeconds(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double Seconds(absl::Duration duration) { return absl::ToDoubleSeconds(duration); }

// The names that msprobe.watch gives 99 parameters: five statistics of gradient, parameter and two moments; and what a
// program logs.
std::vector<std::string> Names() {
  std::vector<std::string> names = {"loss", "lr", "grad_norm", "throughput"};
  for (int layer = 0; names.size() < kSeries; ++layer) {
    for (std::string_view of : {"parameters_grad.reduced", "parameter", "exp_avg", "exp_avg_sq"}) {
      for (std::string_view statistic : {"min", "max", "mean", "norm", "nan"}) {
        names.push_back(Cat("model.layers.", layer, ".self_attn.q_proj.weight.", of, ":", statistic));
      }
    }
    names.push_back(Cat("update_ratio/model.layers.", layer, ".self_attn.q_proj.weight"));
  }
  names.resize(kSeries);
  return names;
}

struct Server {
  Server() {
    StoreOptions options;
    options.directory = directory / "data";
    options.durability = v1::DURABILITY_OS;
    store = *Store::Open(options);
    const std::vector<StepMonitors::Make> none;
    monitors = std::make_unique<StepMonitors>(
        none, MonitorParts{.store = store.get(), .metrics = &metrics, .watched = {}, .rules = {}});
    sessions = std::make_unique<Sessions>(store.get(), &metrics, monitors.get(), SessionsOptions());
  }
  bool Send(ScriptedAgent& agent) {
    auto session = sessions->OpenSession(agent.hello());
    return session.ok() && (*session)->Apply(agent.Take()).ok() && (*session)->AwaitDurable(absl::Seconds(30)).ok();
  }

  ScratchDirectory directory;
  Metrics metrics;
  std::unique_ptr<Store> store;
  std::unique_ptr<StepMonitors> monitors;
  std::unique_ptr<Sessions> sessions;
};

void ThousandRanks(benchmark::State& state) {
  Server server;
  std::vector<std::string> sessions;
  bool ok = true;
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    ScriptedAgent agent(Cat("agent", rank), "job", rank);
    ok = server.Send(agent.Log(0, {{"began", 1}})) && ok;
    sessions.push_back(agent.session());
  }
  RuleWatch rules(
      MonitorParts{.store = server.store.get(), .metrics = &server.metrics, .watched = {}, .rules = DefaultRules()});
  std::vector<ScalarPoint> points;
  for (const std::string& name : Names()) points.push_back({.series = name, .step = 0, .value = 0});
  std::mt19937_64 random(7);
  std::lognormal_distribution<double> noise(0, 0.1);
  // One second of data. ill: a rank whose loss is NaN.
  const auto send = [&](uint32_t step, uint32_t ill) {
    // Ranks are replicas: they have the same values.
    for (ScalarPoint& point : points) {
      point.step = step;
      point.value = point.series.ends_with(":nan") ? 0 : 0.01 * noise(random);
    }
    double latency = 0;
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      const absl::Time began = absl::Now();
      points[0].value = rank == ill ? std::nan("") : points[0].value;
      rules.OnScalars(sessions[rank], points);
      points[0].value = 1;
      // Points come no faster than they are looked at, but they do wait.
      if (rank % 64 == 63) ok = rules.AwaitDone(absl::Seconds(60)) && ok;
      if (rank == ill) {
        ok = rules.AwaitDone(absl::Seconds(60)) && ok;
        latency = Seconds(absl::Now() - began);
      }
    }
    ok = rules.AwaitDone(absl::Seconds(60)) && ok;
    return latency;
  };
  uint32_t step = 1;
  for (int i = 0; i < kAhead; ++i) send(step++, kRanks);
  double cpu = 0, latency = 0;
  for (auto _ : state) {
    for (int i = 0; i < kSeconds; ++i) {
      const double process = CpuSeconds(CLOCK_PROCESS_CPUTIME_ID), own = CpuSeconds(CLOCK_THREAD_CPUTIME_ID);
      step += 2 * RunRules::kQuiet;  // so that each NaN is an alarm of its own
      latency = std::max(latency, send(step, static_cast<uint32_t>(random() % kRanks)));
      cpu += (CpuSeconds(CLOCK_PROCESS_CPUTIME_ID) - process) - (CpuSeconds(CLOCK_THREAD_CPUTIME_ID) - own);
    }
  }
  const auto alarms = Alarms(&server.store->database()).Of(1);
  const double found = alarms.ok() ? static_cast<double>(alarms->size()) : -1;
  if (!ok || found != kSeconds) state.SkipWithError(Cat(found, " alarms were raised").c_str());
  if (server.metrics.Value(Metric::kRulesSkipped, {"scalars"}) != 0) state.SkipWithError("scalars were skipped");
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  state.counters["points_per_second"] = double{kRanks} * kSeries;
  state.counters["cpu"] = cpu / kSeconds;  // of a core, for a second of data
  state.counters["latency"] = latency;
  state.counters["memory_mib"] = static_cast<double>(used.ru_maxrss) / 1024;
}
BENCHMARK(ThousandRanks)->Unit(benchmark::kMillisecond)->UseRealTime()->Iterations(1);

// 40 tensors with five statistics each over 2,000 steps, all of which are noise in each bit of a float.
void AtRest(benchmark::State& state) {
  constexpr int kTensors = 40;
  constexpr uint32_t kSteps = 2000;
  constexpr std::array<const char*, 5> kStatistics = {"min", "max", "mean", "norm", "variance"};
  Server server;
  bool ok = true;
  double bytes = 0;
  for (auto _ : state) {
    ScriptedAgent agent("agent", "job");
    std::mt19937_64 random(7);
    std::lognormal_distribution<double> noise(0, 0.1);
    for (uint32_t step = 0; step < kSteps; ++step) {
      std::vector<std::pair<std::string, double>> scalars;
      for (int tensor = 0; tensor < kTensors; ++tensor) {
        for (const char* statistic : kStatistics) {
          scalars.emplace_back(Cat("layers.", tensor, ".weight.parameter:", statistic),
                               static_cast<float>(noise(random) / (1 + 0.001 * step)));
        }
      }
      ok = server.Send(agent.Log(step, scalars)) && ok;
    }
    ok = server.Send(agent.End()) && server.store->database().Compact().ok() && ok;
    for (const auto& file : std::filesystem::recursive_directory_iterator(std::string(server.directory / "data"))) {
      const auto kind = file.path().extension();
      if (kind == ".sst" || kind == ".blob") bytes += static_cast<double>(file.file_size());
    }
  }
  if (!ok) state.SkipWithError("not written");
  state.counters["points"] = double{kTensors} * kStatistics.size() * kSteps;
  state.counters["bytes_per_point"] = bytes / state.counters["points"];
}
BENCHMARK(AtRest)->Unit(benchmark::kMillisecond)->UseRealTime()->Iterations(1);

}  // namespace
}  // namespace msprobe::server
