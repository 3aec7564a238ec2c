#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <random>
#include <vector>

#include "server/monitor/rules/rule_kinds.h"

namespace msprobe::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

v1::Rule RuleFrom(const std::string& fields) {
  auto rules = ParseRules(R"({"rules": [{"name": "it", )" + fields + "}]}");
  EXPECT_TRUE(rules.ok()) << rules.status();
  return rules.ok() ? rules->rules(0) : v1::Rule();
}

std::string Refusal(const std::string& rules) {
  return std::string(ParseRules(R"({"rules": [)" + rules + "]}").status().message());
}

// The steps at which a rule takes offence at values of steps 0, 1, ...
std::vector<uint32_t> Offences(const std::string& fields, const std::vector<double>& values) {
  const v1::Rule rule = RuleFrom(fields);
  const std::unique_ptr<Rule> made = KindOf(rule).make(rule);
  const std::unique_ptr<SeriesWatch> watch = made->Watch("loss", "session");
  std::vector<uint32_t> steps;
  for (uint32_t step = 0; step < values.size(); ++step) {
    if (watch->Look(step, values[step]).has_value()) steps.push_back(step);
  }
  return steps;
}

std::vector<double> Values(int count, const std::function<double(int)>& value) {
  std::vector<double> values;
  for (int i = 0; i < count; ++i) values.push_back(value(i));
  return values;
}

double Noise() {
  static std::mt19937_64 random(11);
  return std::normal_distribution<double>(0, 1)(random);
}

TEST(RulesTest, NotFiniteTakesOffenceAtNanAndInfinity) {
  EXPECT_THAT(Offences(R"("not_finite": {})", {1, NAN, -INFINITY, 1e300}), ElementsAre(1, 2));
}

TEST(RulesTest, ThresholdHasTwoSides) {
  EXPECT_THAT(Offences(R"("series": "loss", "threshold": {"above": 2, "below": -1})", {0, 2, 3, -2, NAN}),
              ElementsAre(2, 3));
}

TEST(RulesTest, ZScoreWaitsForItsWarmUpAndSeesBothSides) {
  std::vector<double> values = Values(64, [](int) { return 2 + 0.05 * Noise(); });
  values[10] = 20;  // before the warm-up is over
  values[40] = 6;
  values[50] = 0.1;
  EXPECT_THAT(Offences(R"("z_score": {})", values), ElementsAre(40, 50));
  EXPECT_THAT(Offences(R"("z_score": {"above_only": true})", values), ElementsAre(40));
  EXPECT_THAT(Offences(R"("z_score": {"patience": 3})", values), IsEmpty());
}

TEST(RulesTest, ZScoreOfAConstantSeesTheFirstOtherValue) {
  std::vector<double> values(60, 1.0);
  values[50] = 1.5;
  EXPECT_THAT(Offences(R"("z_score": {})", values), ElementsAre(50));
}

TEST(RulesTest, NotDecreasingCountsPointsSinceTheLeast) {
  const std::vector<double> values = {5, 4, 4, 4.5, 4, 3, 3, 3, 3};
  EXPECT_THAT(Offences(R"("not_decreasing": {"patience": 3})", values), ElementsAre(4, 8));
}

TEST(RulesTest, OverfitNeedsBothLosses) {
  const v1::Rule rule = RuleFrom(R"("overfit": {"patience": 2})");
  const std::unique_ptr<Rule> made = KindOf(rule).make(rule);
  EXPECT_EQ(made->Watch("other", "session"), nullptr);
  const auto offences = [&made](const std::string& session, bool training_falls) {
    const auto training = made->Watch("train/loss", session), validation = made->Watch("val/loss", session);
    std::vector<uint32_t> steps;
    for (uint32_t step = 0; step < 40; ++step) {
      EXPECT_FALSE(training->Look(step, training_falls ? 3 - 0.05 * step : 3).has_value());
      if (step % 4 != 0) continue;
      if (validation->Look(step, step < 20 ? 3 - 0.05 * step : 2 + 0.1 * (step - 20)).has_value()) {
        steps.push_back(step);
      }
    }
    return steps;
  };
  EXPECT_THAT(offences("a", true), ElementsAre(32, 36));
  EXPECT_THAT(offences("b", false), IsEmpty());
}

TEST(RulesTest, ChangePointSeesASmallShiftThatStays) {
  std::vector<double> values = Values(200, [](int i) { return 1 + 0.01 * Noise() + (i >= 100 ? 0.04 : 0); });
  const std::vector<uint32_t> steps = Offences(R"("series": "loss", "change_point": {})", values);
  ASSERT_FALSE(steps.empty());
  EXPECT_GE(steps.front(), 100U);
  EXPECT_LE(steps.front(), 110U);
}

TEST(RulesTest, ExplodingSeesTheLimitAndTheFactor) {
  std::vector<double> values = Values(20, [](int i) { return 1 + 0.1 * (i % 3); });
  values[3] = 500;  // before the warm-up is over
  values[15] = 200;
  values[17] = 2e6;
  EXPECT_THAT(Offences(R"("series": "loss", "exploding": {})", values), ElementsAre(15, 17));
}

TEST(RulesTest, VanishingIsSmallAndNotZero) {
  const std::vector<double> values = {1, 1e-9, 1e-9, 0, 1e-9, 1e-9, 1e-10, 1e-9};
  EXPECT_THAT(Offences(R"("series": "loss", "vanishing": {})", values), ElementsAre(6, 7));
}

TEST(RulesTest, AllZeroUnchangedUpdateRatioAndDeadUnitsHavePatience) {
  EXPECT_THAT(Offences(R"("series": "loss", "all_zero": {})", {0, 0, 1, 0, 0, 0, 0}), ElementsAre(5, 6));
  EXPECT_THAT(Offences(R"("series": "loss", "unchanged": {"patience": 2})", {1, 1, 2, 2, 2, 3}), ElementsAre(4));
  EXPECT_THAT(Offences(R"("series": "loss", "update_ratio": {"patience": 1})", {1e-3, 0.5, 1e-9, 1e-2}),
              ElementsAre(1, 2));
  EXPECT_THAT(Offences(R"("series": "loss", "dead_units": {"share": 0.9})", {0.95, 0.99, 0.91, 0.5}), ElementsAre(2));
}

TEST(RulesTest, AWrongRuleIsNamed) {
  EXPECT_THAT(Refusal(R"({"threshold": {}})"), HasSubstr("a rule has no name"));
  EXPECT_THAT(Refusal(R"({"name": "a"})"), HasSubstr("rule \"a\": it has no kind; the kinds are not_finite, "));
  EXPECT_THAT(Refusal(R"({"name": "a", "threshold": {"above": 1}})"), HasSubstr("threshold needs series"));
  EXPECT_THAT(Refusal(R"({"name": "a", "series": "x", "threshold": {}})"), HasSubstr("neither above nor below"));
  EXPECT_THAT(Refusal(R"({"name": "a", "z_score": {"threshold": -1}})"), HasSubstr("z_score.threshold is -1"));
  EXPECT_THAT(Refusal(R"({"name": "a", "dead_units": {"share": 1}})"), HasSubstr("dead_units.share is 1"));
  EXPECT_THAT(Refusal(R"({"name": "a", "z_score": {"window": 4000000000}})"),
              HasSubstr("z_score.window is 4e+09; it should be at most 10000"));
  EXPECT_THAT(Refusal(R"({"name": "a", "not_finite": {}}, {"name": "a", "not_finite": {}})"),
              HasSubstr("two rules are called \"a\""));
  EXPECT_THAT(Refusal(R"({"name": "a", "zscore": {}})"), HasSubstr("zscore"));
}

TEST(RulesTest, EveryFieldOfARuleIsAKind) {
  EXPECT_EQ(static_cast<int>(RuleKinds().size()), v1::Rule::descriptor()->FindOneofByName("kind")->field_count());
  for (const RuleKind& kind : RuleKinds()) {
    const auto* field = v1::Rule::descriptor()->FindFieldByName(std::string(kind.name));
    ASSERT_NE(field, nullptr) << kind.name;
    EXPECT_EQ(field->number(), static_cast<int>(kind.field));
  }
  EXPECT_TRUE(CheckRules(DefaultRules()).ok());
}

}  // namespace
}  // namespace msprobe::server
