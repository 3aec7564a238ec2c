// What a tensor record costs between the arrival of its bytes and its durable acknowledgement, without a network.

#include <benchmark/benchmark.h>

#include <thread>

#include "absl/strings/str_cat.h"
#include "server/format/repeated_pass.h"
#include "server/ingest/sessions.h"
#include "server/store/scratch_directory.h"

namespace msprobe::server {
namespace {

struct Place {
  explicit Place(const StoreOptions& given = {}) {
    StoreOptions options = given;
    options.directory = directory / "data";
    store = *Store::Open(options);
    sessions = std::make_unique<Sessions>(store.get(), &metrics, nullptr, SessionsOptions{});
  }
  ScratchDirectory directory;
  Metrics metrics;
  std::unique_ptr<Store> store;
  std::unique_ptr<Sessions> sessions;
};

v1::Hello HelloOf(uint32_t rank) {
  v1::Hello hello;
  hello.set_protocol(1);
  hello.set_session(absl::StrCat("session", 100'000'000 + rank));
  hello.set_run("run");
  hello.mutable_rank()->set_kind(v1::Rank::RANK);
  hello.mutable_rank()->set_number(rank);
  return hello;
}

// Steps of 1,000 leaves in batches of `range(1)` calls, from `range(0)` ranks, as bytes that were received.
void Apply(benchmark::State& state) {
  const auto ranks = static_cast<uint32_t>(state.range(0));
  const auto calls = static_cast<uint32_t>(state.range(1));
  Place place;
  const RepeatedPass pass({.calls = 500});
  std::vector<std::shared_ptr<Session>> sessions;
  for (uint32_t rank = 0; rank < ranks; ++rank) sessions.push_back(*place.sessions->OpenSession(HelloOf(rank)));
  std::vector<std::string> messages;
  std::vector<v1::Block> blocks = pass.Blocks(0, 0, calls);
  for (size_t i = 0; i < blocks.size(); ++i) {
    v1::AgentMessage message;
    *message.mutable_batch()->add_items()->mutable_block() = blocks[i];
    if (i + 1 == blocks.size()) message.mutable_batch()->add_items()->mutable_marker()->mutable_step_end();
    messages.push_back(message.SerializeAsString());
  }
  uint64_t leaves = 0;
  uint32_t step = 0;
  std::vector<uint64_t> sequence(ranks);
  v1::AgentMessage message;
  for (auto _ : state) {
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      for (const std::string& bytes : messages) {
        message.ParseFromString(bytes);
        v1::Batch& batch = *message.mutable_batch();
        batch.set_session(HelloOf(rank).session());
        batch.set_batch_sequence(++sequence[rank]);
        if (step == 0) batch.mutable_definitions()->Assign(pass.definitions().begin(), pass.definitions().end());
        batch.mutable_items(0)->mutable_block()->set_step(step);
        if (batch.items_size() > 1) batch.mutable_items(1)->mutable_marker()->mutable_step_end()->set_step(step);
        if (auto applied = sessions[rank]->Apply(batch); !applied.ok()) {
          state.SkipWithError(std::string(applied.status().message()).c_str());
          return;
        }
      }
      leaves += pass.leaves();
    }
    ++step;
  }
  if (!place.store->AwaitDurable(absl::Seconds(60)).ok()) state.SkipWithError("not durable");
  state.counters["leaves"] = benchmark::Counter(static_cast<double>(leaves), benchmark::Counter::kIsRate);
}
BENCHMARK(Apply)
    ->Args({1, 500})
    ->Args({64, 500})
    ->Args({64, 50})
    ->Unit(benchmark::kMillisecond)
    ->MeasureProcessCPUTime()
    ->UseRealTime();

}  // namespace
}  // namespace msprobe::server
