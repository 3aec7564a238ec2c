// What a tensor record costs between the arrival of its bytes and its durable acknowledgement, without a network.

#include <benchmark/benchmark.h>
#include <xxhash.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "server/format/storage/repeated_pass.h"
#include "server/format/storage/scripted_block.h"
#include "server/ingest/session/sessions.h"
#include "server/store/disk/scratch_directory.h"

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
        static_cast<void>(message.ParseFromString(bytes));
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
  if (!place.store->database().AwaitDurable(absl::Seconds(60)).ok()) state.SkipWithError("not durable");
  state.counters["leaves"] = benchmark::Counter(static_cast<double>(leaves), benchmark::Counter::kIsRate);
}
BENCHMARK(Apply)
    ->Args({1, 500})
    ->Args({64, 500})
    ->Args({64, 50})
    ->Unit(benchmark::kMillisecond)
    ->MeasureProcessCPUTime()
    ->UseRealTime();

constexpr size_t kPayloadBytes = 1 << 20;
constexpr int kPayloads = 256;

// The number `n` is in the content, so that none is like another.
std::string Content(uint64_t n) {
  std::string content(kPayloadBytes, 'x');
  for (size_t i = 0; i + sizeof(n) <= content.size(); i += sizeof(n)) {
    n = n * 6364136223846793005 + 1442695040888963407;
    std::memcpy(content.data() + i, &n, sizeof(n));
  }
  return content;
}

// Payloads of 1 MiB, each new, durable at the end: as the store writes chunks by itself (0) or as a session takes them
// in (1), which hashes them and keeps account.
void Payloads(benchmark::State& state) {
  const bool session = state.range(0) != 0;
  uint64_t n = 0;
  uint64_t bytes = 0;
  for (auto _ : state) {
    state.PauseTiming();
    Place place;
    auto opened = *place.sessions->OpenSession(HelloOf(0));
    std::vector<v1::PayloadChunk> chunks;
    v1::Batch batch;
    batch.set_session(HelloOf(0).session());
    batch.set_batch_sequence(1);
    const v1::Structure structure = TensorStructure("Torch.add", v1::RECORD_API, {"input_args"});
    batch.add_definitions()->set_id(IdOf(structure));
    batch.mutable_definitions(0)->set_structure(structure.SerializeAsString());
    BlockScript script(0, 0);
    for (int i = 0; i < kPayloads; ++i) {
      v1::PayloadChunk& chunk = chunks.emplace_back();
      chunk.set_content(Content(++n));
      const XXH128_hash_t hash = XXH3_128bits(chunk.content().data(), chunk.content().size());
      XXH128_canonical_t canonical;
      XXH128_canonicalFromHash(&canonical, hash);
      chunk.set_hash(std::string(reinterpret_cast<const char*>(canonical.digest), sizeof(canonical.digest)));
      chunk.set_last(true);
      script.Fragment(structure, static_cast<uint32_t>(i), static_cast<uint64_t>(i), v1::FRAGMENT_ENTER, {1},
                      chunk.hash(), kPayloadBytes);
    }
    *batch.add_items()->mutable_block() = script.block();
    bool ok = opened->Apply(batch).ok();
    state.ResumeTiming();
    for (const v1::PayloadChunk& chunk : chunks) {
      if (session) {
        ok = opened->AddPayload(chunk).ok() && ok;
      } else {
        ChangeSet changes;
        changes.PutChunk(ChunkKey{chunk.hash(), 1, 0, 0}.Encode(), chunk.content());
        ok = place.store->database().Write(changes).ok() && ok;
      }
      bytes += chunk.content().size();
    }
    ok = place.store->database().AwaitDurable(absl::Seconds(60)).ok() && ok;
    if (!ok) state.SkipWithError("not stored");
    state.PauseTiming();
    opened.reset();
    state.ResumeTiming();
  }
  state.SetBytesProcessed(static_cast<int64_t>(bytes));
}
BENCHMARK(Payloads)
    ->ArgName("session")
    ->Arg(0)
    ->Arg(1)
    ->Iterations(4)
    ->Unit(benchmark::kMillisecond)
    ->MeasureProcessCPUTime()
    ->UseRealTime();

}  // namespace
}  // namespace msprobe::server
