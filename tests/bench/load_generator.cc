// A job of many ranks in one process, towards a server that is there. What it measured is one JSON object on stdout.

#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "agent/core/config/config.h"
#include "tests/bench/latency.h"
#include "tests/bench/point_reads.h"
#include "tests/bench/simulated_rank.h"

ABSL_FLAG(std::string, server, "", "host:port or unix:/path. Required.");
ABSL_FLAG(std::string, dump, "", "Directory of the dump.json whose shape is sent. Required.");
ABSL_FLAG(std::string, run, "load", "Name of the run.");
ABSL_FLAG(uint32_t, ranks, 64, "Simulated ranks, a session each.");
ABSL_FLAG(uint32_t, threads, 2, "Threads that emit for them.");
ABSL_FLAG(double, seconds, 10, "How long records are emitted, unless --steps ends it before.");
ABSL_FLAG(uint32_t, steps, 0, "Steps of each rank; 0: as many as there is time for.");
ABSL_FLAG(uint64_t, records, 0, "Records of a step, the first of the dump; 0: all.");
ABSL_FLAG(double, rate, 0, "Tensor records a second of all ranks together; 0: as fast as they are taken.");
ABSL_FLAG(bool, varying_shapes, false, "The token dimension changes from step to step.");
ABSL_FLAG(uint64_t, payload_bytes, 0, "Bytes of a payload; 0: statistics only.");
ABSL_FLAG(uint64_t, payload_every, 8, "One payload to so many tensors.");
ABSL_FLAG(bool, repeated_payloads, false, "Payloads have the same bytes each time.");
ABSL_FLAG(std::string, policy, "stall", "Loss policy: spool, stall or drop.");
ABSL_FLAG(uint64_t, memory_mb, 16, "Memory ceiling of a rank.");
ABSL_FLAG(double, stall_bound, 30, "Seconds.");
ABSL_FLAG(std::string, spool, "", "Directory of spooled records.");
ABSL_FLAG(double, reads, 0, "Point reads a second meanwhile: one record of one step of one rank.");
ABSL_FLAG(bool, idle, false, "The ranks compute where nobody else wants to (SCHED_IDLE); what reads does not wait so.");
ABSL_FLAG(double, drain, 120, "How long the end waits until all is durable, in seconds.");

namespace msprobe::bench {
namespace {

using Clock = std::chrono::steady_clock;

double Since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

double CpuSeconds() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

int Fail(const std::string& why) {
  std::fprintf(stderr, "load_generator: %s\n", why.c_str());
  return 2;
}

core::SessionOptions Options(uint32_t rank) {
  core::SessionOptions options;
  options.run = absl::GetFlag(FLAGS_run);
  options.rank = {.is_rank = true, .number = rank};
  options.settings.task = absl::GetFlag(FLAGS_payload_bytes) > 0 ? "tensor" : "statistics";
  options.settings.level = "mix";
  options.settings.summary_mode = "md5";
  options.server = absl::GetFlag(FLAGS_server);
  options.access = core::AccessOfEnvironment();
  options.program = "load_generator";
  options.memory_ceiling_bytes = absl::GetFlag(FLAGS_memory_mb) << 20;
  options.spool_directory = absl::GetFlag(FLAGS_spool);
  options.stall_bound = absl::Seconds(absl::GetFlag(FLAGS_stall_bound));
  const std::string policy = absl::GetFlag(FLAGS_policy);
  options.loss_policy = policy == "drop"    ? core::LossPolicy::kDrop
                        : policy == "spool" ? core::LossPolicy::kSpool
                                            : core::LossPolicy::kStall;
  return options;
}

// Emits for every `stride`th rank from `first` on, a step each in turn.
void Produce(const std::vector<std::unique_ptr<SimulatedRank>>& ranks, size_t first, size_t stride,
             std::atomic<uint64_t>* emitted, std::atomic<double>* longest_step, PointReads* reads) {
  const Clock::time_point start = Clock::now();
  const double seconds = absl::GetFlag(FLAGS_seconds);
  const double rate = absl::GetFlag(FLAGS_rate) / static_cast<double>(stride);
  const uint32_t steps = absl::GetFlag(FLAGS_steps);
  uint64_t mine = 0;
  for (uint32_t step = 0; steps == 0 || step < steps; ++step) {
    for (size_t rank = first; rank < ranks.size(); rank += stride) {
      if (Since(start) >= seconds) return;
      const Clock::time_point began = Clock::now();
      const uint64_t leaves = ranks[rank]->EmitStep(step);
      double longest = longest_step->load();
      const double took = Since(began);
      while (took > longest && !longest_step->compare_exchange_weak(longest, took)) {
      }
      reads->Emitted(static_cast<uint32_t>(rank), step + 1);
      mine += leaves;
      *emitted += leaves;
      if (rate > 0) {
        std::this_thread::sleep_until(start + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(
                                                  std::min(static_cast<double>(mine) / rate, seconds))));
      }
    }
  }
}

int Main() {
  const absl::StatusOr<RecordedStep> step = RecordedStep::Load(absl::GetFlag(FLAGS_dump));
  if (!step.ok()) return Fail(std::string(step.status().message()));
  const Load load{.first_records = absl::GetFlag(FLAGS_records),
                  .varying_shapes = absl::GetFlag(FLAGS_varying_shapes),
                  .payload_bytes = absl::GetFlag(FLAGS_payload_bytes),
                  .payload_every = absl::GetFlag(FLAGS_payload_every),
                  .repeated_payloads = absl::GetFlag(FLAGS_repeated_payloads)};
  PointReads reads(absl::GetFlag(FLAGS_server), absl::GetFlag(FLAGS_run), *step, absl::GetFlag(FLAGS_ranks),
                   absl::GetFlag(FLAGS_reads));
  const sched_param priority{};
  if (absl::GetFlag(FLAGS_idle) && sched_setscheduler(0, SCHED_IDLE, &priority) != 0) return Fail("--idle");
  std::vector<std::unique_ptr<SimulatedRank>> ranks;
  for (uint32_t rank = 0; rank < absl::GetFlag(FLAGS_ranks); ++rank) {
    absl::StatusOr<std::unique_ptr<SimulatedRank>> opened = SimulatedRank::Open(&*step, load, Options(rank));
    if (!opened.ok()) return Fail(std::string(opened.status().message()));
    ranks.push_back(*std::move(opened));
  }

  const size_t threads = std::clamp<size_t>(absl::GetFlag(FLAGS_threads), 1, std::max<size_t>(1, ranks.size()));
  std::atomic<uint64_t> emitted = 0;
  std::atomic<double> longest_step = 0;
  const Clock::time_point start = Clock::now();
  const double cpu = CpuSeconds();
  double emitting = 0;
  Latency latency(ranks);
  {
    std::vector<std::thread> producers;
    for (size_t i = 0; i < threads; ++i) {
      producers.emplace_back([&, i] { Produce(ranks, i, threads, &emitted, &longest_step, &reads); });
    }
    for (std::thread& producer : producers) producer.join();
    emitting = Since(start);
  }
  const PointReads::Result read = reads.Stop();
  std::fprintf(stderr, "emitted\n");
  // Side by side: a rank that cannot drain takes nothing of the others' time.
  std::atomic<uint64_t> undrained = 0;
  std::vector<std::thread> waiting;
  for (const std::unique_ptr<SimulatedRank>& rank : ranks) {
    waiting.emplace_back([&] { undrained += !rank->session().Wait(absl::Seconds(absl::GetFlag(FLAGS_drain))).ok(); });
  }
  for (std::thread& thread : waiting) thread.join();
  const double seconds = Since(start);
  const double generator_cpu = CpuSeconds() - cpu;
  const Latency::Result latencies = latency.Stop();
  core::SessionCounters sum;
  for (const std::unique_ptr<SimulatedRank>& rank : ranks) {
    const core::SessionCounters one = rank->session().counters();
    sum.fragments_emitted += one.fragments_emitted;
    sum.fragments_dropped += one.fragments_dropped;
    sum.payloads_dropped += one.payloads_dropped;
    sum.batches_sent += one.batches_sent;
    sum.durable_through += one.durable_through;
    sum.bytes_sent += one.bytes_sent;
    sum.faults += one.faults;
  }
  std::vector<std::thread> closers;
  for (const std::unique_ptr<SimulatedRank>& rank : ranks) {
    closers.emplace_back([&] { rank->session().Close(true, absl::Seconds(undrained == 0 ? 30 : 1)).IgnoreError(); });
  }
  for (std::thread& closer : closers) closer.join();
  std::printf(
      "{\"ranks\": %zu, \"tensors_emitted\": %llu, \"fragments_emitted\": %llu, \"fragments_dropped\": %llu, "
      "\"payloads_dropped\": %llu, \"faults\": %llu, \"batches_sent\": %llu, \"bytes_sent\": %llu, "
      "\"emitting_seconds\": %.4f, \"seconds\": %.4f, \"generator_cpu_seconds\": %.4f, \"undrained_ranks\": %llu, "
      "\"longest_step_emit_seconds\": %.6f, \"ack_samples\": %llu, \"ack_p50_ms\": %.3f, \"ack_p99_ms\": %.3f, "
      "\"tensors_a_step\": %llu, \"read_samples\": %llu, \"read_p50_ms\": %.3f, \"read_p99_ms\": %.3f, "
      "\"reads_missed\": %llu, \"reads_failed\": %llu}\n",
      ranks.size(), static_cast<unsigned long long>(emitted.load()),
      static_cast<unsigned long long>(sum.fragments_emitted), static_cast<unsigned long long>(sum.fragments_dropped),
      static_cast<unsigned long long>(sum.payloads_dropped), static_cast<unsigned long long>(sum.faults),
      static_cast<unsigned long long>(sum.batches_sent), static_cast<unsigned long long>(sum.bytes_sent), emitting,
      seconds, generator_cpu, static_cast<unsigned long long>(undrained.load()), longest_step.load(),
      static_cast<unsigned long long>(latencies.samples), latencies.p50_ms, latencies.p99_ms,
      static_cast<unsigned long long>(step->leaves()), static_cast<unsigned long long>(read.latency.samples),
      read.latency.p50_ms, read.latency.p99_ms, static_cast<unsigned long long>(read.missed),
      static_cast<unsigned long long>(read.failed));
  return 0;
}

}  // namespace
}  // namespace msprobe::bench

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("Streams what many ranks would to a msprobe-server, and says what became of it.");
  absl::ParseCommandLine(argc, argv);
  return msprobe::bench::Main();
}
