#include "server/store/scalars.h"

#include <gmock/gmock.h>

#include "server/format/storage/key.h"
#include "server/store/store_fixture.h"

namespace msprobe::server {
namespace {

using testing::ElementsAre;
using testing::FieldsAre;
using testing::Pair;

class ScalarsTest : public StoreTest {
 protected:
  using Row = std::vector<std::tuple<std::string, uint32_t, double>>;

  // One batch of session `epoch` of run 1; as a tile with all before it, if asked.
  void Put(uint32_t epoch, uint64_t batch, const Row& points, bool tile = false) {
    ChangeSet changes;
    storage::ScalarsRow row;
    for (const auto& [name, step, value] : points) {
      row.add_series(Scalars::IdOf(name));
      Scalars::AddName(1, Scalars::IdOf(name), name, changes);
      row.add_step(step);
      row.add_value(value);
    }
    if (tile) {
      ASSERT_TRUE(store_->scalars().AddTiling(1, epoch, &row, batch, changes).ok());
    } else {
      changes.PutMeta(ScalarsKey(1, epoch, batch), row);
    }
    ASSERT_TRUE(store_->database().Write(changes).ok());
  }

  // "loss": the points of a session.
  std::map<std::string, std::vector<SeriesPoint>> Read(uint32_t epoch, Scalars::Range range = {}) {
    const auto names = store_->scalars().ReadNames(1);
    EXPECT_TRUE(names.ok()) << names.status();
    std::map<std::string, std::vector<SeriesPoint>> read;
    EXPECT_TRUE(store_->scalars()
                    .Read(1, epoch, *names, range,
                          [&](uint64_t id, const std::vector<SeriesPoint>& points) {
                            read[names->at(id)] = points;
                            return absl::OkStatus();
                          })
                    .ok());
    return read;
  }
};

TEST_F(ScalarsTest, AreReadFromRowsAndTilesAlike) {
  Put(0, 1, {{"loss", 0, 3}, {"lr", 0, 0.1}});
  Put(0, 2, {{"loss", 1, 2}});
  EXPECT_THAT(Read(0), ElementsAre(Pair("loss", ElementsAre(FieldsAre(0, 3), FieldsAre(1, 2))),
                                   Pair("lr", ElementsAre(FieldsAre(0, 0.1)))));
  Put(0, 3, {{"loss", 2, 1}}, true);
  EXPECT_EQ(store_->scalars().CountRows(1, 0).value_or(9), 0U);
  Put(0, 4, {{"loss", 3, 0.5}});
  EXPECT_THAT(Read(0)["loss"], ElementsAre(FieldsAre(0, 3), FieldsAre(1, 2), FieldsAre(2, 1), FieldsAre(3, 0.5)));
  EXPECT_THAT(Read(0, {.first_step = 2, .last_step = 2})["loss"], ElementsAre(FieldsAre(2, 1)));
}

TEST_F(ScalarsTest, TheLaterBatchOfASessionWinsWhereverItLies) {
  Put(0, 1, {{"loss", 5, 1}, {"loss", 6, 1}}, true);
  Put(0, 2, {{"loss", 4, 2}, {"loss", 5, 2}}, true);
  Put(0, 3, {{"loss", 6, 3}});
  EXPECT_THAT(Read(0)["loss"], ElementsAre(FieldsAre(4, 2), FieldsAre(5, 2), FieldsAre(6, 3)));
}

TEST_F(ScalarsTest, SessionsAreApart) {
  Put(0, 1, {{"loss", 0, 1}});
  Put(1, 1, {{"loss", 0, 2}});
  EXPECT_THAT(Read(0)["loss"], ElementsAre(FieldsAre(0, 1)));
  EXPECT_THAT(Read(1)["loss"], ElementsAre(FieldsAre(0, 2)));
  EXPECT_THAT(Read(2), testing::IsEmpty());
}

// Of five scalars that are doubles, as of the statistics of a tensor, in files.
TEST_F(ScalarsTest, TakeAtMostEightBytesAPointAtRest) {
  constexpr uint32_t kSteps = 256 * 64;
  uint64_t state = 1;
  const auto noise = [&state] {
    state = state * 6364136223846793005U + 1442695040888963407U;
    return static_cast<double>(state >> 11) / static_cast<double>(uint64_t{1} << 53);
  };
  for (uint32_t first = 0; first < kSteps; first += 256) {
    Row points;
    for (uint32_t step = first; step < first + 256; ++step) {
      for (const char* name : {"x:max", "x:min", "x:mean", "x:norm", "x:variance"}) {
        points.emplace_back(name, step, 1 + noise());
      }
    }
    Put(0, first + 1, points, true);
  }
  const uint64_t before = store_->database().FileBytes(Family::kMeta);
  ASSERT_TRUE(store_->database().Compact().ok());
  const double bytes = static_cast<double>(store_->database().FileBytes(Family::kMeta) - before) / (5.0 * kSteps);
  RecordProperty("bytes_a_point", std::to_string(bytes));
  EXPECT_LE(bytes, 8.0);
}

TEST_F(ScalarsTest, GoWithTheirRun) {
  const uint32_t run = AddEndedRun('a', "tuesday");
  ASSERT_EQ(run, 1U);
  Put(0, 1, {{"loss", 0, 1}}, true);
  Put(0, 2, {{"loss", 1, 1}});
  ASSERT_TRUE(store_->maintenance().DeleteRun("tuesday").ok());
  for (MetaSpace space : {MetaSpace::kSeries, MetaSpace::kScalars, MetaSpace::kSeriesTile}) {
    EXPECT_EQ(Count(Family::kMeta, MetaPrefix(space)), 0U);
  }
}

}  // namespace
}  // namespace msprobe::server
