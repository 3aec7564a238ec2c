// Writes the data directory that golden_store_test reads: golden_store DIRECTORY. Run it once when a format is released
// and keep what it wrote as server/ingest/golden/format_N.tar.gz.

#include <cstdio>

#include "server/ingest/golden_store.h"
#include "server/ingest/sessions.h"

namespace msprobe::server {
namespace {

absl::Status Write(const std::string& directory) {
  StoreOptions options;
  options.directory = directory;
  auto store = Store::Open(options);
  if (!store.ok()) return store.status();
  Metrics metrics;
  Sessions sessions(store->get(), &metrics, nullptr, SessionsOptions());
  for (ScriptedLoad& load : GoldenLoads()) {
    auto session = sessions.OpenSession(load.hello());
    if (!session.ok()) return session.status();
    for (uint64_t sequence = 1; sequence <= kGoldenBatches; ++sequence) {
      auto verdict = (*session)->Apply(load.Batch(sequence));
      if (!verdict.ok()) return verdict.status();
      for (const std::string& hash : verdict->wanted()) {
        auto added = (*session)->AddPayload(ScriptedAgent::Chunk(hash, 0, load.Content(hash), true));
        if (!added.ok()) return added.status();
      }
    }
  }
  return (*store)->AwaitDurable(absl::Seconds(30));
}

}  // namespace
}  // namespace msprobe::server

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: golden_store DIRECTORY\n");
    return 2;
  }
  absl::Status status = msprobe::server::Write(argv[1]);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
