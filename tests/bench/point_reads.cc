#include "tests/bench/point_reads.h"

#include <grpcpp/grpcpp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <random>
#include <thread>
#include <utility>

#include "msprobe/v1/query.grpc.pb.h"

namespace msprobe::bench {

struct PointReads::Shared {
  static constexpr uint32_t kMaxRanks = 4096;
  std::atomic<bool> stop;
  std::atomic<uint32_t> emitted[kMaxRanks];  // steps, by rank
};

namespace {

using Clock = std::chrono::steady_clock;

// Of an API call; empty: another kind of record.
std::string NameOf(const RecordedStep::Fragment& fragment) {
  if (!(fragment.flags & core::kEnter) || fragment.structure.kind != core::RecordKind::kApi) return {};
  const bool backward = fragment.structure.direction == core::Direction::kBackward;
  return fragment.structure.name + "." + std::to_string(fragment.count) + (backward ? ".backward" : ".forward");
}

struct Call {
  bool failed = false;
  bool missed = false;
  float milliseconds = 0;
};

Call Read(v1::Query::Stub& stub, const v1::ReadRecordsRequest& request) {
  grpc::ClientContext context;
  const Clock::time_point start = Clock::now();
  auto records = stub.ReadRecords(&context, request);
  v1::Record record;
  uint64_t found = 0;
  while (records->Read(&record)) ++found;
  const grpc::Status status = records->Finish();
  if (!status.ok() && status.error_code() != grpc::StatusCode::NOT_FOUND) return {.failed = true};
  if (found == 0) return {.missed = true};
  return {.milliseconds = std::chrono::duration<float, std::milli>(Clock::now() - start).count()};
}

bool WriteAll(int to, const Call& call) { return write(to, &call, sizeof(call)) == sizeof(call); }

}  // namespace

PointReads::PointReads(const std::string& server, const std::string& run, const RecordedStep& step, uint32_t ranks,
                       double a_second)
    : ranks_(std::min(ranks, Shared::kMaxRanks)) {
  std::vector<std::string> names;
  for (const RecordedStep::Fragment& fragment : step.fragments()) {
    if (std::string name = NameOf(fragment); !name.empty()) names.push_back(std::move(name));
  }
  if (a_second <= 0 || names.empty()) return;
  void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  int ends[2];
  if (memory == MAP_FAILED || pipe(ends) != 0) return;
  shared_ = static_cast<Shared*>(memory);
  results_ = ends[0];
  const pid_t parent = getpid();
  reader_ = fork();
  if (reader_ != 0) {
    close(ends[1]);
    return;
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  auto stub = v1::Query::NewStub(grpc::CreateChannel(server, grpc::InsecureChannelCredentials()));
  std::mt19937 random(1);
  const auto period = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(1 / a_second));
  std::vector<Call> calls;
  Clock::time_point next = Clock::now();
  while (!shared_->stop) {
    std::this_thread::sleep_until(next);
    next = std::max(next + period, Clock::now());
    const uint32_t rank = static_cast<uint32_t>(random() % ranks_);
    const uint32_t emitted = shared_->emitted[rank];
    if (emitted < 4) continue;
    v1::ReadRecordsRequest request;
    request.set_run(run);
    request.set_step(static_cast<uint32_t>(random() % (emitted / 4)));
    request.mutable_rank()->set_kind(v1::Rank::RANK);
    request.mutable_rank()->set_number(rank);
    request.set_name_glob(names[random() % names.size()]);
    calls.push_back(Read(*stub, request));
  }
  for (const Call& call : calls) {
    if (!WriteAll(ends[1], call)) _exit(1);
  }
  _exit(0);
}

void PointReads::Emitted(uint32_t rank, uint32_t steps) {
  if (shared_ != nullptr && rank < ranks_) shared_->emitted[rank] = steps;
}

PointReads::Result PointReads::Stop() {
  Result result;
  if (reader_ <= 0) return result;
  shared_->stop = true;
  std::vector<float> milliseconds;
  Call call;
  while (read(results_, &call, sizeof(call)) == sizeof(call)) {
    if (call.failed || call.missed) {
      ++(call.failed ? result.failed : result.missed);
    } else {
      milliseconds.push_back(call.milliseconds);
    }
  }
  int status = 0;
  waitpid(reader_, &status, 0);
  if (status != 0) ++result.failed;
  close(results_);
  munmap(shared_, sizeof(Shared));
  shared_ = nullptr;
  reader_ = -1;
  result.latency = Latency::Summarize(&milliseconds);
  return result;
}

}  // namespace msprobe::bench
