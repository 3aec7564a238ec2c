// Data directories of every released format, read by this server.

#include "server/ingest/scripted/reference_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>

#include "server/format/cat.h"
#include "server/ingest/session/sessions.h"
#include "server/store/disk/scratch_directory.h"

namespace msprobe::server {
namespace {

using testing::IsEmpty;

class ReferenceStoreTest : public testing::TestWithParam<uint32_t> {
 protected:
  // The data directory of the parameter's format, and of this kind: "" or "_tiles".
  std::unique_ptr<Store> Unpack(const std::string& kind) {
    const std::string archive =
        Cat(MSPROBE_SOURCE_DIR, "/server/ingest/scripted/reference/format_", GetParam(), kind, ".tar.gz");
    const std::string unpack = Cat("tar -xzf '", archive, "' -C '", directory_.path(), "'");
    EXPECT_EQ(std::system(unpack.c_str()), 0) << unpack;
    StoreOptions options;
    options.directory = directory_ / "data";
    auto store = Store::Open(options);
    EXPECT_TRUE(store.ok()) << store.status();
    return store.ok() ? *std::move(store) : nullptr;
  }

  ScratchDirectory directory_;
};

TEST_P(ReferenceStoreTest, IsReadWholeAndGoesOn) {
  const std::unique_ptr<Store> store = Unpack("");
  ASSERT_NE(store, nullptr);
  uint64_t extents = 0, payloads = 0;
  auto count = [&](Family family, uint64_t& found) {
    return store->database().ForEach(family, "", [&](std::string_view, std::string_view) {
      ++found;
      return absl::OkStatus();
    });
  };
  ASSERT_TRUE(count(Family::kExtents, extents).ok());
  ASSERT_TRUE(count(Family::kPayloads, payloads).ok());
  EXPECT_GT(payloads, 0u);
  EXPECT_EQ(extents > 0, GetParam() >= 2) << "segments came with format 2";
  std::vector<ScriptedLoad> loads = ReferenceLoads();
  for (ScriptedLoad& load : loads) {
    load.Batch(kReferenceBatches);  // the load knows its payloads once it has made them
    EXPECT_THAT(load.Check(*store, kReferenceBatches, load.hashes()), IsEmpty());
    EXPECT_EQ(load.watermark(*store), kReferenceBatches);
  }

  // What was stored then and what is stored now belong together: the open step is ended, and read as one.
  Metrics metrics;
  Sessions sessions(store.get(), &metrics, nullptr, SessionsOptions());
  auto session = sessions.OpenSession(loads[0].hello());
  ASSERT_TRUE(session.ok()) << session.status();
  for (uint64_t sequence = kReferenceBatches + 1; sequence <= kReferenceBatches + 2; ++sequence) {
    auto verdict = (*session)->Apply(loads[0].Batch(sequence));
    ASSERT_TRUE(verdict.ok()) << verdict.status();
    for (const std::string& hash : verdict->wanted()) {
      ASSERT_TRUE((*session)->AddPayload(ScriptedAgent::Chunk(hash, 0, loads[0].Content(hash), true)).ok());
    }
  }
  ASSERT_TRUE((*session)->AwaitDurable(absl::Seconds(30)).ok());
  EXPECT_THAT(loads[0].Check(*store, kReferenceBatches + 2, loads[0].hashes()), IsEmpty());
  EXPECT_EQ((*store->database().Find<storage::ServerRow>(ServerKey()))->format_version(), kStorageFormat)
      << "what this server has written on is of its format";
}

TEST_P(ReferenceStoreTest, TilesAreReadToTheLastRecord) {
  const std::unique_ptr<Store> store = Unpack("_tiles");
  ASSERT_NE(store, nullptr);
  v1::Rank rank;
  rank.set_kind(v1::Rank::RANK);
  for (uint32_t step = 0; step < kReferenceSteps; ++step) {
    auto reader = store->steps().Open(kReferenceTilesRun, step, rank);
    ASSERT_TRUE(reader.ok()) << reader.status();
    EXPECT_EQ((*reader)->state(), v1::StepSummary::COMPLETE);
    std::vector<std::string> expected;
    for (uint32_t call = 0; call < kReferenceCalls; ++call) {
      expected.push_back(Cat("Torch.op.", call, ".forward=", ReferenceValue(step, call)));
    }
    EXPECT_EQ(RecordsOf(**reader), expected) << "step " << step;
  }
  uint64_t tiles = 0, rows = 0;
  auto count = [&](Family family, uint64_t& found) {
    return store->database().ForEach(family, "", [&](std::string_view, std::string_view) {
      ++found;
      return absl::OkStatus();
    });
  };
  ASSERT_TRUE(count(Family::kTiles, tiles).ok());
  ASSERT_TRUE(count(Family::kRows, rows).ok());
  EXPECT_GT(tiles, 0u);
  EXPECT_EQ(rows, 0u) << "some steps are not tiles: this test tests too little";
}

std::vector<uint32_t> Formats() {
  std::vector<uint32_t> formats;
  for (uint32_t format = 1; format <= kStorageFormat; ++format) formats.push_back(format);
  return formats;
}

INSTANTIATE_TEST_SUITE_P(EveryFormat, ReferenceStoreTest, testing::ValuesIn(Formats()));

}  // namespace
}  // namespace msprobe::server
