// A PlannedRank in a process of its own, to be killed, frozen or cut off; and, with --check, what came of it.

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/time/clock.h"
#include "server/maintenance/store_check.h"
#include "tests/chaos/planned_check.h"
#include "tests/chaos/planned_rank.h"

ABSL_FLAG(std::string, run, "job", "Name of the run.");
ABSL_FLAG(uint32_t, rank, 0, "Number of the rank, below 16.");
ABSL_FLAG(uint32_t, records, 200, "Records of a step.");
ABSL_FLAG(int64_t, steps, -1, "Steps to emit, or to find; -1: until SIGTERM, or a prefix.");

ABSL_FLAG(std::string, server, "", "host:port or unix:/path.");
ABSL_FLAG(std::string, spool, "", "Directory of spooled records.");
ABSL_FLAG(std::string, policy, "spool", "Loss policy: spool, stall or drop.");
ABSL_FLAG(uint64_t, memory_mb, 4, "Memory ceiling.");
ABSL_FLAG(uint64_t, spool_quota_mb, 4096, "Quota of the spool.");
ABSL_FLAG(double, stall_bound, 30, "Seconds.");
ABSL_FLAG(int, pause_ms, 10, "Between two steps.");
ABSL_FLAG(double, drain, 120, "How long the end waits until all is durable, in seconds.");
ABSL_FLAG(
    std::string, progress, "",
    "File with three numbers, kept current: steps emitted, steps known to be durable, and the longest time that a "
    "step held its thread, in milliseconds.");

ABSL_FLAG(std::string, check, "",
          "Data directory of a server that is gone: nothing is emitted, what it has is checked.");
ABSL_FLAG(uint32_t, acknowledged, 0, "Steps that must be there.");
ABSL_FLAG(bool, gaps, false, "Records may be missing where a gap counts them.");

namespace msprobe::server {
namespace {

volatile sig_atomic_t told_to_end = 0;

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "planned_agent: %s\n", status.ToString().c_str());
  return 2;
}

int Check() {
  StoreOptions options;
  options.directory = absl::GetFlag(FLAGS_check);
  auto store = Store::Open(options);
  if (!store.ok()) return Fail(store.status());
  Planned planned{.run = absl::GetFlag(FLAGS_run),
                  .rank = absl::GetFlag(FLAGS_rank),
                  .records_a_step = absl::GetFlag(FLAGS_records),
                  .acknowledged = absl::GetFlag(FLAGS_acknowledged),
                  .steps = std::nullopt,
                  .gaps = absl::GetFlag(FLAGS_gaps)};
  if (absl::GetFlag(FLAGS_steps) >= 0) planned.steps = static_cast<uint32_t>(absl::GetFlag(FLAGS_steps));
  uint32_t complete = 0;
  std::vector<std::string> wrong = CheckPlanned(**store, planned, &complete);
  auto report = CheckStore(**store);
  if (!report.ok()) return Fail(report.status());
  for (const Damage& damage : report->damages) wrong.push_back(damage.where + ": " + damage.what);
  for (const std::string& line : wrong) std::fprintf(stderr, "%s\n", line.c_str());
  std::printf("%u\n", complete);
  return wrong.empty() ? 0 : 1;
}

class Progress {
 public:
  explicit Progress(const std::string& path)
      : file_(path.empty() ? -1 : open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)) {}
  ~Progress() {
    if (file_ >= 0) close(file_);
  }
  void Write() {
    char line[64];
    const int size =
        std::snprintf(line, sizeof(line), "%10u %10u %10u\n", emitted.load(), durable.load(), held_ms.load());
    if (file_ >= 0 && pwrite(file_, line, static_cast<size_t>(size), 0) != size) std::perror("planned_agent: progress");
  }

  std::atomic<uint32_t> emitted{0}, durable{0}, held_ms{0};

 private:
  const int file_;
};

int Emit() {
  core::SessionOptions options;
  options.run = absl::GetFlag(FLAGS_run);
  options.rank = {.is_rank = true, .number = absl::GetFlag(FLAGS_rank)};
  options.settings.task = "tensor";
  options.settings.level = "L1";
  options.server = absl::GetFlag(FLAGS_server);
  options.program = "planned_agent";
  options.spool_directory = absl::GetFlag(FLAGS_spool);
  options.memory_ceiling_bytes = absl::GetFlag(FLAGS_memory_mb) << 20;
  options.spool_quota_bytes = absl::GetFlag(FLAGS_spool_quota_mb) << 20;
  options.stall_bound = absl::Seconds(absl::GetFlag(FLAGS_stall_bound));
  const std::string policy = absl::GetFlag(FLAGS_policy);
  options.loss_policy = policy == "drop"    ? core::LossPolicy::kDrop
                        : policy == "stall" ? core::LossPolicy::kStall
                                            : core::LossPolicy::kSpool;
  auto session = core::Session::Open(options);
  if (!session.ok()) return Fail(session.status());
  PlannedRank rank(session->get(), absl::GetFlag(FLAGS_rank), absl::GetFlag(FLAGS_records));
  Progress progress(absl::GetFlag(FLAGS_progress));
  std::atomic<bool> over{false};
  std::thread watcher([&] {
    while (!over) {
      const uint32_t emitted = progress.emitted;
      if (emitted > progress.durable && (*session)->Wait(absl::Seconds(1)).ok()) progress.durable = emitted;
      progress.Write();
      absl::SleepFor(absl::Milliseconds(1));
    }
  });
  const int64_t steps = absl::GetFlag(FLAGS_steps);
  signal(SIGTERM, [](int) { told_to_end = 1; });
  for (uint32_t step = 0; told_to_end == 0 && (steps < 0 || step < steps); ++step) {
    const absl::Time start = absl::Now();
    rank.EmitStep(step);
    const auto held = static_cast<uint32_t>(absl::ToInt64Milliseconds(absl::Now() - start));
    if (held > progress.held_ms) progress.held_ms = held;
    ++progress.emitted;
    absl::SleepFor(absl::Milliseconds(absl::GetFlag(FLAGS_pause_ms)));
  }
  const absl::Status drained = (*session)->Wait(absl::Seconds(absl::GetFlag(FLAGS_drain)));
  over = true;
  watcher.join();
  if (drained.ok()) progress.durable = progress.emitted.load();
  progress.Write();
  const core::SessionCounters counters = (*session)->counters();
  const absl::Status closed = (*session)->Close(true, absl::Seconds(30));
  std::printf(
      "{\"steps\": %u, \"fragments_dropped\": %llu, \"payloads_dropped\": %llu, \"faults\": %llu, \"held_ms\": %u}\n",
      progress.emitted.load(), static_cast<unsigned long long>(counters.fragments_dropped),
      static_cast<unsigned long long>(counters.payloads_dropped), static_cast<unsigned long long>(counters.faults),
      progress.held_ms.load());
  if (!drained.ok()) return Fail(drained);
  return closed.ok() ? 0 : Fail(closed);
}

}  // namespace
}  // namespace msprobe::server

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("A rank that emits what is planned, or the check of what a server has of it.");
  absl::ParseCommandLine(argc, argv);
  return absl::GetFlag(FLAGS_check).empty() ? msprobe::server::Emit() : msprobe::server::Check();
}
