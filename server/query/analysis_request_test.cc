#include "server/query/analysis_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace msprobe::server {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

TEST(OptionsIn, EveryRequestCarriesTheOptionsThatItHas) {
  v1::CompareRequest compare;
  compare.set_matching(v1::MATCHING_FUZZY);
  compare.set_mode(v1::COMPARE_CHECKSUM);
  compare.add_tolerances()->set_relative(0.5);
  compare.mutable_mapping()->set_cells(true);
  compare.set_across_layouts(true);
  const v1::CompareOptions options = OptionsIn(compare);
  EXPECT_EQ(options.matching(), v1::MATCHING_FUZZY);
  EXPECT_EQ(options.mode(), v1::COMPARE_CHECKSUM);
  EXPECT_EQ(options.tolerances(0).relative(), 0.5);
  EXPECT_TRUE(options.mapping().cells());
  EXPECT_TRUE(options.across_layouts());

  v1::FirstDivergenceRequest divergence;
  divergence.set_mode(v1::COMPARE_STATISTICS);
  divergence.add_tolerances()->set_absolute(2);
  divergence.set_across_layouts(true);
  EXPECT_EQ(OptionsIn(divergence).mode(), v1::COMPARE_STATISTICS);
  EXPECT_EQ(OptionsIn(divergence).tolerances_size(), 1);
  EXPECT_TRUE(OptionsIn(divergence).across_layouts());
  EXPECT_FALSE(OptionsIn(divergence).mapping().cells());

  v1::CompareTableRequest table;
  table.set_matching(v1::MATCHING_FUZZY);
  table.mutable_mapping()->set_apis(true);
  EXPECT_EQ(OptionsIn(table).matching(), v1::MATCHING_FUZZY);
  EXPECT_TRUE(OptionsIn(table).mapping().apis());
  EXPECT_THAT(OptionsIn(table).tolerances(), IsEmpty());
}

// A request that gains one of these as a field of another type would not compile; one that is forgotten is seen here.
TEST(OptionsIn, NoOptionOfAComparisonIsForgotten) {
  const auto* const options = v1::CompareOptions::descriptor();
  EXPECT_EQ(options->field_count(), 5) << "a new option: carry it in OptionsIn and read it in CompareOptionsOf";
  for (int i = 0; i < options->field_count(); ++i) {
    EXPECT_NE(v1::CompareRequest::descriptor()->FindFieldByName(options->field(i)->name()), nullptr);
  }
}

TEST(CompareOptionsOf, SaysWhatIsWrong) {
  v1::CompareOptions negative;
  negative.add_tolerances()->set_relative(-1);
  EXPECT_THAT(std::string(CompareOptionsOf(negative, "").status().message()), HasSubstr("relative tolerance -1"));
  v1::CompareOptions unknown;
  unknown.add_tolerances()->set_dtype("float99");
  EXPECT_THAT(std::string(CompareOptionsOf(unknown, "").status().message()), HasSubstr("float99"));
  v1::CompareOptions both;
  both.mutable_mapping()->set_cells(true);
  both.mutable_mapping()->set_apis(true);
  EXPECT_TRUE(CompareOptionsOf(both, "").ok());
  both.mutable_mapping()->add_rows();
  EXPECT_THAT(std::string(CompareOptionsOf(both, "").status().message()), HasSubstr("give rows, or layers"));
}

TEST(CompareOptionsOf, WantsTheRecordsThatTheGlobTakes) {
  EXPECT_FALSE(CompareOptionsOf({}, "")->wanted) << "all";
  const auto options = CompareOptionsOf({}, "Functional.*");
  ASSERT_TRUE(options.ok());
  EXPECT_TRUE(options->wanted("Functional.linear.0.forward"));
  EXPECT_FALSE(options->wanted("Torch.add.0.forward"));
}

TEST(ScopeOf, TakesStepsAndRanks) {
  v1::Scope message;
  message.add_steps()->set_first(3);
  message.mutable_steps(0)->set_last(5);
  message.add_ranks()->set_number(1);
  message.mutable_ranks(0)->set_kind(v1::Rank::RANK);
  const PlaceScope scope = ScopeOf(message);
  EXPECT_TRUE(scope.Takes({5, {v1::Rank::RANK, 1}}));
  EXPECT_FALSE(scope.Takes({6, {v1::Rank::RANK, 1}}));
  EXPECT_FALSE(scope.Takes({5, {v1::Rank::RANK, 0}}));
  EXPECT_TRUE(ScopeOf({}).Takes({6, {v1::Rank::PROCESS, 77}}));
}

}  // namespace
}  // namespace msprobe::server
