#include "server/analysis/compare/place_pairs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "msprobe/v1/record.pb.h"

namespace msprobe::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Place = StepTables::Place;

// Places alone; nothing can be read.
class Places : public StepTables {
 public:
  explicit Places(std::vector<Place> places) : places_(std::move(places)) {}

  const std::string& name() const override { return name_; }
  const std::vector<Place>& places() const override { return places_; }
  absl::StatusOr<std::unique_ptr<TableSource>> Read(const Place&, const DumpReading&) const override {
    return absl::UnimplementedError("places alone");
  }
  bool HasNonFinite(const Place&) const override { return false; }
  std::optional<TileSource::Step> FindStored(const Place&) const override { return std::nullopt; }
  const TileSource* tiles() const override { return nullptr; }

 private:
  const std::string name_;
  const std::vector<Place> places_;
};

Place Rank(uint32_t step, uint32_t rank) { return {step, {v1::Rank::RANK, rank}}; }
Place Process(uint32_t step, uint32_t id) { return {step, {v1::Rank::PROCESS, id}}; }

struct Paired {
  std::vector<std::pair<Place, Place>> pairs;
  std::vector<std::pair<bool, Place>> unpaired;
  absl::Status status;
};
Paired Pair(std::vector<Place> target, std::vector<Place> golden, const PlaceScope& scope = {}) {
  Paired paired;
  std::vector<UnpairedPlace> unpaired;
  const auto pairs = PairPlaces(Places(std::move(target)), Places(std::move(golden)), scope, unpaired);
  paired.status = pairs.status();
  if (pairs.ok()) {
    for (const PlacePair& pair : *pairs) paired.pairs.push_back({pair.target, pair.golden});
  }
  for (const UnpairedPlace& lonely : unpaired) paired.unpaired.push_back({lonely.in_target, lonely.place});
  return paired;
}

TEST(PairPlaces, StepsAndRanksOfOneNumberArePaired) {
  const Paired paired = Pair({Rank(0, 0), Rank(0, 1), Rank(1, 0)}, {Rank(0, 1), Rank(1, 0), Rank(2, 0)});
  EXPECT_THAT(paired.pairs, ElementsAre(std::pair(Rank(0, 1), Rank(0, 1)), std::pair(Rank(1, 0), Rank(1, 0))));
  EXPECT_THAT(paired.unpaired, ElementsAre(std::pair(true, Rank(0, 0)), std::pair(false, Rank(2, 0))));
}

TEST(PairPlaces, OneStepOfEachSideIsPairedWhateverItsNumber) {
  EXPECT_THAT(Pair({Rank(3, 1)}, {Rank(7, 0)}).pairs, ElementsAre(std::pair(Rank(3, 1), Rank(7, 0))));
}

// The numbers of processes are their ids, which differ from run to run.
TEST(PairPlaces, TheOnlyProcessesOfAStepArePaired) {
  const Paired paired = Pair({Process(0, 11), Process(1, 11), Process(1, 12)}, {Process(0, 21), Process(1, 22)});
  EXPECT_THAT(paired.pairs, ElementsAre(std::pair(Process(0, 11), Process(0, 21))));
  EXPECT_THAT(paired.unpaired, ElementsAre(std::pair(true, Process(1, 11)), std::pair(true, Process(1, 12)),
                                           std::pair(false, Process(1, 22))));
  EXPECT_THAT(Pair({Rank(0, 0), Rank(1, 0)}, {Process(0, 21), Process(1, 21)}).pairs,
              ElementsAre(std::pair(Rank(0, 0), Process(0, 21)), std::pair(Rank(1, 0), Process(1, 21))));
}

TEST(PairPlaces, NothingInCommonIsAnError) {
  const Paired paired = Pair({Rank(0, 0), Rank(1, 0)}, {Rank(2, 0), Rank(3, 0)});
  EXPECT_EQ(paired.status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(paired.status.message()),
              HasSubstr("the target has step 0 rank0, step 1 rank0; the golden side has step 2 rank0, step 3 rank0"));
  const Paired asked = Pair({Rank(0, 0), Rank(1, 0)}, {Rank(0, 0), Rank(1, 0)}, {.steps = {{50, 50}}, .ranks = {}});
  EXPECT_THAT(std::string(asked.status.message()), HasSubstr("no step and rank of those that are asked for that both"));
}

}  // namespace
}  // namespace msprobe::server
