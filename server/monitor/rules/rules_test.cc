#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <random>
#include <vector>

#include "server/analysis/table/step_table.h"
#include "server/format/cat.h"
#include "server/format/storage/key.h"
#include "server/monitor/rules/rule_kinds.h"

namespace msprobe::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const std::string kSession = "session";

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
  const std::unique_ptr<SeriesWatch> watch = made->Watch({.name = "loss", .session = kSession});
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
  EXPECT_EQ(made->Watch({.name = "other", .session = kSession}), nullptr);
  const auto offences = [&made](const std::string& session, bool training_falls) {
    const auto training = made->Watch({.name = "train/loss", .session = session});
    const auto validation = made->Watch({.name = "val/loss", .session = session});
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

// A gradient alone is doubted, as scalers of the loss skip its step.
TEST(RulesTest, NotFiniteDoubtsGradients) {
  const v1::Rule rule = RuleFrom(R"("not_finite": {"gradient_patience": 3})");
  const std::unique_ptr<Rule> made = KindOf(rule).make(rule);
  const auto doubts = [&made](std::string_view series) {
    const auto watch = made->Watch({.name = series, .session = kSession});
    std::vector<bool> doubtful;
    for (uint32_t step = 0; step < 3; ++step) doubtful.push_back(watch->Look(step, NAN)->is_doubtful);
    return doubtful;
  };
  EXPECT_THAT(doubts("grad_norm"), ElementsAre(true, true, false));
  EXPECT_THAT(doubts("Functional.linear.0.backward.output.0:norm"), ElementsAre(true, true, false));
  EXPECT_THAT(doubts("loss"), ElementsAre(false, false, false));
}

// One float32 tensor at step 0, 1, ...
struct Tensor {
  double max = 0, min = 0, mean = 0, norm = 0, variance = 0;
  const char* shape = "[8, 4]";
  const char* dtype = "torch.float16";
};

std::vector<uint32_t> OffencesAtTensors(const std::string& fields, const std::string& name,
                                        const std::vector<Tensor>& tensors) {
  const v1::Rule rule = RuleFrom(fields);
  const std::unique_ptr<Rule> made = KindOf(rule).make(rule);
  const std::unique_ptr<TensorWatch> watch = made->WatchTensor(name);
  std::vector<uint32_t> steps;
  for (uint32_t step = 0; watch != nullptr && step < tensors.size(); ++step) {
    const Tensor& tensor = tensors[step];
    StepTable table;
    Row row;
    row.name = name;
    row.is_tensor = true;
    row.dtype = table.Intern(tensor.dtype);
    row.shape = table.Intern(tensor.shape);
    row.statistics = {Cell::Real(tensor.max), Cell::Real(tensor.min), Cell::Real(tensor.mean), Cell::Real(tensor.norm)};
    row.extended = 0;
    table.extended.push_back({.variance = tensor.variance, .has_variance = true});
    table.rows.push_back(row);
    if (watch->Look(table, table.rows[0]).has_value()) steps.push_back(step);
  }
  return steps;
}

TEST(RulesTest, OverflowSoonKnowsTheDtype) {
  const std::vector<Tensor> tensors = {{.max = 8000, .min = -8000},
                                       {.max = 100, .min = -9000},
                                       {.max = 9000, .min = 0, .dtype = "torch.bfloat16"},
                                       {.max = 9000, .min = 0, .dtype = "torch.int32"},
                                       {.max = 1, .min = -65504},  // a mask
                                       {.max = INFINITY, .min = 0},
                                       {.max = 70000, .min = 0, .dtype = "Float16"}};
  EXPECT_THAT(OffencesAtTensors(R"("overflow_soon": {})", "Functional.linear.0.forward.output.0", tensors),
              ElementsAre(1, 6));
  EXPECT_THAT(OffencesAtTensors(R"("overflow_soon": {"margin": 10})", "Functional.linear.0.forward.output.0", tensors),
              ElementsAre(0, 1, 6));
}

TEST(RulesTest, SaturatedIsTheMeanSlopeOfTheUnits) {
  // Half of the units at either bound; all at one; well in between.
  const std::vector<Tensor> tanh = {{.mean = 0, .variance = 0.99},
                                    {.mean = 0.995, .variance = 1e-6},
                                    {.mean = 0.1, .variance = 0.3},
                                    {.mean = -0.995, .variance = 1e-6}};
  const std::string rule = R"("saturated": {"patience": 1})";
  EXPECT_THAT(OffencesAtTensors(rule, "Torch.tanh.0.forward.output.0", tanh), ElementsAre(0, 1, 3));
  EXPECT_THAT(OffencesAtTensors(rule, "Module.act.Sigmoid.forward.0.output.0",
                                {{.mean = 0.5, .variance = 0.249}, {.mean = 0.5, .variance = 0.1}}),
              ElementsAre(0));
  EXPECT_THAT(OffencesAtTensors(rule, "Functional.linear.0.forward.output.0", tanh), IsEmpty());
  EXPECT_THAT(OffencesAtTensors(R"("saturated": {"patience": 1, "lower": 0, "upper": 6})",
                                "Functional.relu6.0.forward.output.0", {{.mean = 3, .variance = 8.99}}),
              ElementsAre(0));
}

TEST(RulesTest, StaleAndShapeSurpriseCompareWithTheStepsBefore) {
  const Tensor one = {.max = 1, .norm = 2}, other = {.max = 1, .norm = 3};
  EXPECT_THAT(OffencesAtTensors(R"("series": "x", "stale": {"patience": 2})", "x", {one, one, other, one, one, one}),
              ElementsAre(5));
  const Tensor wide = {.shape = "[9, 4]"};
  EXPECT_THAT(OffencesAtTensors(R"("shape_surprise": {"constant": 3})", "x.input.0", {one, wide, one, one, one, wide}),
              ElementsAre(5));
}

TEST(RulesTest, DriftHoldsALongWindowAgainstTheFirst) {
  const std::string rule = R"("series": "loss", "drift": {"window": 16, "warm_up": 16})";
  EXPECT_THAT(Offences(rule, Values(200, [](int i) { return 1 + 0.02 * Noise() + (i % 40 == 0 ? 3 : 0); })), IsEmpty());
  const auto steps = Offences(rule, Values(200, [](int i) { return 1 + 0.02 * Noise() + 0.005 * i; }));
  ASSERT_FALSE(steps.empty());
  EXPECT_GE(steps.front(), 50U);
  EXPECT_LE(steps.front(), 90U);
}

// values[step][rank], in turn. "3: rank1 has 2, 2 ranks have 1"
std::vector<std::string> OffencesOfRanks(const std::string& fields, const std::vector<std::vector<double>>& values) {
  const v1::Rule rule = RuleFrom(fields);
  const std::unique_ptr<Rule> made = KindOf(rule).make(rule);
  std::vector<std::unique_ptr<SeriesWatch>> watches;
  std::vector<std::string> said;
  for (uint32_t step = 0; step < values.size(); ++step) {
    for (uint32_t rank = 0; rank < values[step].size(); ++rank) {
      if (watches.size() <= rank) {
        v1::Rank code;
        code.set_kind(v1::Rank::RANK);
        code.set_number(rank);
        watches.push_back(made->Watch({.name = "x", .session = kSession, .rank = RankCode(code)}));
      }
      if (std::isinf(values[step][rank])) continue;  // the rank has not come so far
      const auto offence = watches[rank]->Look(step, values[step][rank]);
      if (offence.has_value()) said.push_back(Cat(offence->elsewhere->step, ": ", offence->why));
    }
  }
  return said;
}

TEST(RulesTest, RankDiffersNamesTheOddOne) {
  const std::string rule = R"("rank_differs": {"warm_up": 2})";
  EXPECT_THAT(OffencesOfRanks(rule, {{1, 1, 1}, {2, 2, 2}, {3, 3, 3}, {4, 9, 4}, {5, 5, 5 + 1e-9}}),
              ElementsAre("3: rank1 has 9, 2 ranks have 4"));
  EXPECT_THAT(OffencesOfRanks(rule, {{1, 1}, {2, 2}, {3, 3}, {4, NAN}, {NAN, NAN}}),
              ElementsAre("3: rank1 has nan, rank0 has 4"));
  // Shards, which happen to begin alike; and values that do not move tell nothing.
  EXPECT_THAT(OffencesOfRanks(rule, {{1, 1}, {2, 3}, {2, 2}, {3, 4}}), IsEmpty());
  EXPECT_THAT(OffencesOfRanks(rule, {{1, 1}, {1, 1}, {1, 1}, {1, 1}, {1, 2}}), IsEmpty());
  EXPECT_THAT(OffencesOfRanks(R"("rank_differs": {"replicas": true})", {{1, 2, 1}, {1, 1, 1}}),
              ElementsAre("0: rank1 has 2, 2 ranks have 1"));
}

TEST(RulesTest, StragglerIsSlowOrBehind) {
  const std::string rule = R"("straggler": {"patience": 2, "steps": 3})";
  EXPECT_THAT(OffencesOfRanks(rule, {{1, 1, 1}, {1, 4, 1}, {1, 1, 1}, {1, 1, 4}, {1, 1, 5}, {1, 1, 1}}),
              ElementsAre("4: rank2 takes 5, the median of 3 ranks is 1; for 2 steps in a row"));
  const std::vector<double> stands = {1, 1, INFINITY};
  EXPECT_THAT(OffencesOfRanks(rule, {{1, 1, 1}, stands, stands, stands, stands, {1, 1, INFINITY}}),
              ElementsAre("0: rank2 is at step 0, 4 behind the median of 3 ranks"));
}

TEST(RulesTest, WeightPoisonedHoldsTheParameterAgainstItsGradient) {
  const v1::Rule rule = RuleFrom(R"("weight_poisoned": {"warm_up": 2})");
  const auto offences = [&rule](const std::vector<std::pair<double, double>>& norms) {
    const std::unique_ptr<Rule> made = KindOf(rule).make(rule);
    EXPECT_EQ(made->Watch({.name = "w.exp_avg:norm", .session = kSession}), nullptr);
    const auto gradients = made->Watch({.name = "w.parameters_grad.reduced:norm", .session = kSession});
    const auto parameter = made->Watch({.name = "w.parameter:norm", .session = kSession});
    std::vector<uint32_t> steps;
    for (uint32_t step = 0; step < norms.size(); ++step) {
      EXPECT_FALSE(gradients->Look(step, norms[step].first).has_value());
      if (parameter->Look(step, norms[step].second).has_value()) steps.push_back(step);
    }
    return steps;
  };
  EXPECT_THAT(offences({{1, 2}, {1, 2.1}, {1, 2.2}, {1, NAN}, {NAN, NAN}}), ElementsAre(3));
  EXPECT_THAT(offences({{1, 2}, {1, 2.1}, {1, 2.2}, {NAN, NAN}}), IsEmpty());
  EXPECT_THAT(offences({{1, 2}, {1, 2.1}, {1, 40}}), ElementsAre(2));
  EXPECT_THAT(offences({{1, 2}, {1, 2.1}, {30, 40}}), IsEmpty()) << "that is the gradient's fault";
  EXPECT_THAT(offences({{1, 1e-6}, {1, 1e-3}, {1, 1.1e-3}}), IsEmpty()) << "warm-up";
}

TEST(RulesTest, CollapsesAreOfTheSeriesThatTheirNamesSay) {
  const auto offences = [](const std::string& fields, std::string_view series, const std::vector<double>& values) {
    const v1::Rule rule = RuleFrom(fields);
    const std::unique_ptr<Rule> made = KindOf(rule).make(rule);
    const auto watch = made->Watch({.name = series, .session = kSession});
    std::vector<uint32_t> steps;
    if (watch == nullptr || !Takes(rule, series)) return steps;
    for (uint32_t step = 0; step < values.size(); ++step) {
      if (watch->Look(step, values[step]).has_value()) steps.push_back(step);
    }
    return steps;
  };
  const std::vector<double> falling = {1.3, 0.2, 0.04, 1e-4, 1e-4, 1e-4};
  EXPECT_THAT(offences(R"("expert_collapse": {})", "layers.0.mlp.router_entropy:mean", falling), ElementsAre(4, 5));
  EXPECT_THAT(offences(R"("expert_collapse": {"patience": 1})", "layers.0.mlp.expert_load:max", {0.3, 0.97}),
              ElementsAre(1));
  EXPECT_THAT(offences(R"("expert_collapse": {})", "layers.0.mlp.dead_experts", {9, 9, 9}), IsEmpty());
  EXPECT_THAT(offences(R"("expert_collapse": {"dead": 2, "patience": 1})", "layers.0.mlp.dead_experts", {2, 3}),
              ElementsAre(1));
  EXPECT_THAT(offences(R"("attention_collapse": {})", "layers.0.attention_entropy:mean", falling), ElementsAre(5));
  EXPECT_THAT(offences(R"("attention_collapse": {})", "layers.0.attention_entropy:min", falling), IsEmpty());
  EXPECT_THAT(offences(R"("attention_collapse": {"patience": 1})", "layers.0.attention_logit:max", {80, 2e4}),
              ElementsAre(1));
}

TEST(RulesTest, AnExpressionIsJudgedWhereAllItsNamesHaveAPoint) {
  const v1::Rule rule = RuleFrom(R"x("expression": {"if": "lr > 0.01 and (\"train/loss\" > 5 or not ok)"})x");
  const std::unique_ptr<Rule> made = KindOf(rule).make(rule);
  EXPECT_EQ(made->Watch({.name = "loss", .session = kSession}), nullptr);
  const auto lr = made->Watch({.name = "lr", .session = kSession});
  const auto loss = made->Watch({.name = "train/loss", .session = kSession});
  const auto ok = made->Watch({.name = "ok", .session = kSession});
  const auto look = [&](uint32_t step, double lr_now, double loss_now, double ok_now) {
    EXPECT_FALSE(lr->Look(step, lr_now).has_value());
    EXPECT_FALSE(loss->Look(step, loss_now).has_value());
    const auto offence = ok->Look(step, ok_now);
    return offence.has_value() ? offence->why : std::string();
  };
  EXPECT_EQ(look(0, 0.02, 4, 1), "");
  EXPECT_THAT(look(1, 0.02, 6, 1), HasSubstr(" is true: lr is 0.02, train/loss is 6, ok is 1"));
  EXPECT_EQ(look(2, 0.001, 6, 0), "");
  EXPECT_NE(look(3, 0.02, NAN, 0), "") << "one side of an or is enough";
  EXPECT_EQ(look(4, 0.02, NAN, 1), "");
  EXPECT_FALSE(ok->Look(5, 0).has_value()) << "the others have no point of this step";
}

TEST(RulesTest, AWrongExpressionIsNamed) {
  const auto refusal = [](const std::string& expression) {
    return Refusal(R"({"name": "a", "expression": {)" + expression + "}}");
  };
  EXPECT_THAT(refusal(""), HasSubstr("expression.if is needed"));
  EXPECT_THAT(refusal(R"("if": "lr > ")"), HasSubstr("rule \"a\": expression.if is lr > : near \")\": syntax error"));
  EXPECT_THAT(refusal(R"("if": "1 > 2")"), HasSubstr("it names no series"));
  EXPECT_THAT(refusal(R"("if": "lr > 1) from (select 1 as lr); drop table (x")"), HasSubstr("expression.if is "));
  EXPECT_THAT(refusal(R"x("if": "lr > randomblob(1000000000)")x"), HasSubstr("not authorized to use function"));
  EXPECT_THAT(refusal(R"("if": "loss.train > 1")"), HasSubstr("no such column: loss.train"));
  EXPECT_TRUE(RuleFrom(R"("expression": {"if": "max(lr, note) >= pow(loss, 2) / 3"})").has_expression());
}

TEST(RulesTest, AWrongRuleIsNamed) {
  EXPECT_THAT(Refusal(R"({"name": "a", "overflow_soon": {"margin": 0.5}})"), HasSubstr("overflow_soon.margin is 0.5"));
  EXPECT_THAT(Refusal(R"({"name": "a", "saturated": {"lower": 1}})"), HasSubstr("one of lower and upper"));
  EXPECT_THAT(Refusal(R"({"name": "a", "saturated": {"lower": 1, "upper": 1}})"), HasSubstr("saturated.upper is 1"));
  EXPECT_THAT(Refusal(R"({"name": "a", "drift": {"window": 20000}})"), HasSubstr("drift.window is 20000"));
  EXPECT_THAT(Refusal(R"({"name": "a", "stale": {}})"), HasSubstr("stale needs series"));

  EXPECT_THAT(Refusal(R"({"threshold": {}})"), HasSubstr("a rule has no name"));
  EXPECT_THAT(Refusal(R"({"name": "a"})"), HasSubstr("rule \"a\": it has no kind; the kinds are not_finite, "));
  EXPECT_THAT(Refusal(R"({"name": "a", "threshold": {"above": 1}})"), HasSubstr("threshold needs series"));
  EXPECT_THAT(Refusal(R"({"name": "a", "series": "x", "threshold": {}})"), HasSubstr("neither above nor below"));
  EXPECT_THAT(Refusal(R"({"name": "a", "series": "x", "threshold": {"above": 1, "below": 5}})"),
              HasSubstr("rule \"a\": threshold.above is 1 and threshold.below is 5, so every value offends"));
  EXPECT_THAT(Refusal(R"({"name": "a", "update_ratio": {"least": 0.1, "greatest": 0.01}})"),
              HasSubstr("update_ratio.greatest is 0.01; it should be at least update_ratio.least, which is 0.1"));
  EXPECT_TRUE(RuleFrom(R"("series": "x", "threshold": {"above": 1, "below": 1})").has_threshold())
      << "all but 1 offend";
  EXPECT_THAT(Refusal(R"({"name": "a", "z_score": {"threshold": -1}})"),
              HasSubstr("z_score.threshold is -1; it should be at least 0; 0, or leaving it out, is the default"));
  EXPECT_THAT(Refusal(R"({"name": "a", "dead_units": {"share": 1}})"), HasSubstr("dead_units.share is 1"));
  EXPECT_THAT(Refusal(R"({"name": "a", "z_score": {"window": 4000000000}})"),
              HasSubstr("z_score.window is 4e+09; it should be at most 10000"));
  EXPECT_THAT(Refusal(R"({"name": "a", "not_finite": {}}, {"name": "a", "not_finite": {}})"),
              HasSubstr("two rules are called \"a\""));
  EXPECT_THAT(Refusal(R"({"name": "a", "zscore": {}})"), HasSubstr("zscore"));
}

TEST(RulesTest, NoParameterIsNan) {
  int parameters = 0;
  for (const RuleKind& kind : RuleKinds()) {
    const auto* const message = v1::Rule::descriptor()->FindFieldByName(std::string(kind.name))->message_type();
    for (int i = 0; i < message->field_count(); ++i) {
      if (message->field(i)->cpp_type() != google::protobuf::FieldDescriptor::CPPTYPE_DOUBLE) continue;
      const std::string field = message->field(i)->name();
      EXPECT_THAT(Refusal(Cat(R"({"name": "a", "series": "x", ")", kind.name, R"(": {")", field, R"(": "NaN"}})")),
                  HasSubstr(Cat("rule \"a\": ", kind.name, ".", field, " is nan; it should be a number")));
      ++parameters;
    }
  }
  EXPECT_GT(parameters, 30);
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
