#include "tests/bench/point_reads.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <random>
#include <utility>

#include "msprobe/v1/query.grpc.pb.h"

namespace msprobe::bench {
namespace {

using Clock = std::chrono::steady_clock;

// Of an API call; empty: another kind of record.
std::string NameOf(const RecordedStep::Fragment& fragment) {
  if (!(fragment.flags & core::kEnter) || fragment.structure.kind != core::RecordKind::kApi) return {};
  const bool backward = fragment.structure.direction == core::Direction::kBackward;
  return fragment.structure.name + "." + std::to_string(fragment.count) + (backward ? ".backward" : ".forward");
}

}  // namespace

PointReads::PointReads(const std::string& server, std::string run, const RecordedStep* step,
                       const std::vector<std::unique_ptr<SimulatedRank>>* ranks, double a_second)
    : run_(std::move(run)), ranks_(ranks), a_second_(a_second) {
  if (a_second <= 0) return;
  for (const RecordedStep::Fragment& fragment : step->fragments()) {
    if (std::string name = NameOf(fragment); !name.empty()) names_.push_back(std::move(name));
  }
  thread_ = std::thread([this, server] { Run(server); });
}

void PointReads::Run(const std::string& server) {
  auto stub = v1::Query::NewStub(grpc::CreateChannel(server, grpc::InsecureChannelCredentials()));
  std::mt19937 random(1);
  Clock::time_point next = Clock::now();
  const auto period = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(1 / a_second_));
  while (!stop_ && !names_.empty()) {
    std::this_thread::sleep_until(next);
    next = std::max(next + period, Clock::now());
    const uint32_t rank = static_cast<uint32_t>(random() % ranks_->size());
    const uint32_t emitted = (*ranks_)[rank]->steps_emitted();
    if (emitted < 4) continue;
    v1::ReadRecordsRequest request;
    request.set_run(run_);
    request.set_step(static_cast<uint32_t>(random() % (emitted / 4)));
    request.mutable_rank()->set_kind(v1::Rank::RANK);
    request.mutable_rank()->set_number(rank);
    request.set_name_glob(names_[random() % names_.size()]);
    grpc::ClientContext context;
    const Clock::time_point start = Clock::now();
    auto records = stub->ReadRecords(&context, request);
    v1::Record record;
    uint64_t found = 0;
    while (records->Read(&record)) ++found;
    const grpc::Status status = records->Finish();
    if (status.ok() && found > 0) {
      milliseconds_.push_back(std::chrono::duration<float, std::milli>(Clock::now() - start).count());
    } else {
      ++(status.ok() || status.error_code() == grpc::StatusCode::NOT_FOUND ? missed_ : failed_);
    }
  }
}

PointReads::Result PointReads::Stop() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
  return {.latency = Latency::Summarize(&milliseconds_), .missed = missed_, .failed = failed_};
}

}  // namespace msprobe::bench
