// Writes the data directories that reference_store_test reads. Run it once when a format is released:
//   reference_store DIRECTORY              becomes server/ingest/scripted/reference/format_N.tar.gz
//   reference_store --tiles DIRECTORY      becomes server/ingest/scripted/reference/format_N_tiles.tar.gz
// With --tiles, the first tile goes to stdout: a seed of the storage value fuzzer.

#include <cstdio>
#include <string_view>
#include <utility>

#include "server/ingest/scripted/reference_store.h"
#include "server/ingest/session/sessions.h"
#include "server/store/tiles/tiler.h"

namespace msprobe::server {
namespace {

absl::Status WriteTiles(const std::string& directory) {
  StoreOptions options;
  options.directory = directory;
  auto store = Store::Open(options);
  if (!store.ok()) return store.status();
  Metrics metrics;
  Sessions sessions(store->get(), &metrics, nullptr, SessionsOptions());
  ScriptedAgent agent("golden tiles", kReferenceTilesRun, 0);
  auto session = sessions.OpenSession(agent.hello());
  if (!session.ok()) return session.status();
  for (uint32_t step = 0; step < kReferenceSteps; ++step) {
    for (uint32_t call = 0; call < kReferenceCalls; ++call) {
      agent.Call(step, "op", static_cast<float>(ReferenceValue(step, call)), call);
    }
    agent.StepEnd(step);
    if (step + 1 == kReferenceSteps) agent.End();
    if (auto verdict = (*session)->Apply(agent.Take()); !verdict.ok()) return verdict.status();
  }
  if (absl::Status status = (*store)->database().AwaitDurable(absl::Seconds(30)); !status.ok()) return status;
  if (absl::Status status = Tiler(store->get()).RunOnce(); !status.ok()) return status;
  bool first = true;
  absl::Status status = (*store)->database().ForEach(Family::kTiles, "", [&](std::string_view, std::string_view tile) {
    if (std::exchange(first, false)) std::fwrite(tile.data(), 1, tile.size(), stdout);
    return absl::OkStatus();
  });
  if (status.ok() && first) status = absl::InternalError("nothing became a tile");
  return status.ok() ? (*store)->database().AwaitDurable(absl::Seconds(30)) : status;
}

absl::Status Write(const std::string& directory) {
  StoreOptions options;
  options.directory = directory;
  options.segment_chunk_bytes = 7000;  // some of the payloads, which have 3000 bytes to 21,000, in each kind of place
  auto store = Store::Open(options);
  if (!store.ok()) return store.status();
  Metrics metrics;
  Sessions sessions(store->get(), &metrics, nullptr, SessionsOptions());
  for (ScriptedLoad& load : ReferenceLoads()) {
    auto session = sessions.OpenSession(load.hello());
    if (!session.ok()) return session.status();
    for (uint64_t sequence = 1; sequence <= kReferenceBatches; ++sequence) {
      auto verdict = (*session)->Apply(load.Batch(sequence));
      if (!verdict.ok()) return verdict.status();
      for (const std::string& hash : verdict->wanted()) {
        auto added = (*session)->AddPayload(ScriptedAgent::Chunk(hash, 0, load.Content(hash), true));
        if (!added.ok()) return added.status();
      }
    }
  }
  return (*store)->database().AwaitDurable(absl::Seconds(30));
}

}  // namespace
}  // namespace msprobe::server

int main(int argc, char** argv) {
  const bool tiles = argc == 3 && std::string_view(argv[1]) == "--tiles";
  if (argc != 2 && !tiles) {
    std::fprintf(stderr, "usage: reference_store [--tiles] DIRECTORY\n");
    return 2;
  }
  absl::Status status = tiles ? msprobe::server::WriteTiles(argv[2]) : msprobe::server::Write(argv[1]);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
