// Data directories of every released format, read by this server.

#include "server/ingest/golden_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "server/format/cat.h"
#include "server/ingest/sessions.h"
#include "server/store/scratch_directory.h"

namespace msprobe::server {
namespace {

using testing::IsEmpty;

std::string Archive(uint32_t format) {
  return Cat(MSPROBE_SOURCE_DIR, "/server/ingest/golden/format_", format, ".tar.gz");
}

class GoldenStoreTest : public testing::TestWithParam<uint32_t> {};

TEST_P(GoldenStoreTest, IsReadWholeAndGoesOn) {
  ScratchDirectory directory;
  const std::string unpack = Cat("tar -xzf '", Archive(GetParam()), "' -C '", directory.path(), "'");
  ASSERT_EQ(std::system(unpack.c_str()), 0) << unpack;
  StoreOptions options;
  options.directory = directory / "data";
  auto store = Store::Open(options);
  ASSERT_TRUE(store.ok()) << store.status();
  std::vector<ScriptedLoad> loads = GoldenLoads();
  for (ScriptedLoad& load : loads) {
    load.Batch(kGoldenBatches);  // the load knows its payloads once it has made them
    EXPECT_THAT(load.Check(**store, kGoldenBatches, load.hashes()), IsEmpty());
    EXPECT_EQ(load.watermark(**store), kGoldenBatches);
  }

  // What was stored then and what is stored now belong together: the open step is ended, and read as one.
  Metrics metrics;
  Sessions sessions(store->get(), &metrics, nullptr, SessionsOptions());
  auto session = sessions.OpenSession(loads[0].hello());
  ASSERT_TRUE(session.ok()) << session.status();
  for (uint64_t sequence = kGoldenBatches + 1; sequence <= kGoldenBatches + 2; ++sequence) {
    auto verdict = (*session)->Apply(loads[0].Batch(sequence));
    ASSERT_TRUE(verdict.ok()) << verdict.status();
    for (const std::string& hash : verdict->wanted()) {
      ASSERT_TRUE((*session)->AddPayload(ScriptedAgent::Chunk(hash, 0, loads[0].Content(hash), true)).ok());
    }
  }
  ASSERT_TRUE((*session)->AwaitDurable(absl::Seconds(30)).ok());
  EXPECT_THAT(loads[0].Check(**store, kGoldenBatches + 2, loads[0].hashes()), IsEmpty());
}

std::vector<uint32_t> Formats() {
  std::vector<uint32_t> formats;
  for (uint32_t format = 1; format <= kStorageFormat; ++format) formats.push_back(format);
  return formats;
}

INSTANTIATE_TEST_SUITE_P(EveryFormat, GoldenStoreTest, testing::ValuesIn(Formats()));

}  // namespace
}  // namespace msprobe::server
