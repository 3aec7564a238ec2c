#include "agent/core/config/selector.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace msprobe::core {
namespace {

using ::testing::HasSubstr;

bool Selects(std::string_view text, std::string_view module, std::string_view api = {}) {
  const absl::StatusOr<Selector> selector = Selector::Parse(text);
  EXPECT_TRUE(selector.ok()) << selector.status().message();
  Selector::Call call = Selector::OfModule(module);
  call.api = api;
  return selector.ok() && selector->Matches(call);
}

constexpr char kGate[] = "Module.layers.0.mlp.gate.Linear";
constexpr char kNorm[] = "Module.layers.0.mlp.norm.RMSNorm";

TEST(SelectorTest, ModulesByTypeNamePlaceAndDepth) {
  EXPECT_TRUE(Selects("Linear", kGate));
  EXPECT_FALSE(Selects("Linear", kNorm));
  EXPECT_TRUE(Selects("type('*Norm')", kNorm));
  EXPECT_TRUE(Selects("name(\"*.mlp.gate\")", kGate));
  EXPECT_FALSE(Selects("name(\"*.mlp\")", kGate));
  EXPECT_TRUE(Selects("under(\"*.mlp\")", kGate));
  EXPECT_FALSE(Selects("under(\"*.mlp\")", "Module.layers.0.mlp.MLP")) << "it is not inside of itself";
  EXPECT_TRUE(Selects("under(\"layers\")", kGate));
  EXPECT_TRUE(Selects("under(\"\")", kGate)) << "the model itself";
  EXPECT_FALSE(Selects("under(\"\")", "Module.Net"));
  EXPECT_TRUE(Selects("depth(<=4)", kGate));
  EXPECT_FALSE(Selects("depth(<4)", kGate));
  EXPECT_TRUE(Selects("depth( == 0 ) & Net", "Module.Net"));
}

TEST(SelectorTest, TheWholeOfTheDocument) {
  constexpr char kText[] = "Linear & under(\"*.mlp\") & depth(<=4) & ~name(\"*.norm\")";
  EXPECT_TRUE(Selects(kText, kGate));
  EXPECT_FALSE(Selects(kText, kNorm));
  EXPECT_FALSE(Selects(kText, "Module.layers.0.attention.q.Linear"));
  EXPECT_FALSE(Selects(kText, "Module.model.layers.0.mlp.gate.Linear"));
}

TEST(SelectorTest, AnApiStandsInTheModuleAroundIt) {
  EXPECT_TRUE(Selects("api('linear') & Linear", kGate, "Functional.linear"));
  EXPECT_TRUE(Selects("api('Functional.*')", "", "Functional.linear"));
  EXPECT_FALSE(Selects("api('linear')", kGate)) << "a module is no API";
  EXPECT_FALSE(Selects("Linear", "", "Functional.linear")) << "outside of all modules";
  EXPECT_TRUE(Selects("~Linear", "", "Functional.linear"));
}

TEST(SelectorTest, NotBindsMostAndOrLeast) {
  EXPECT_TRUE(Selects("Linear | RMSNorm & name('x')", kGate));
  EXPECT_FALSE(Selects("(Linear | RMSNorm) & name('x')", kGate));
  EXPECT_FALSE(Selects("~Linear | RMSNorm", kGate));
  EXPECT_FALSE(Selects("~(Linear | RMSNorm)", kGate));
  EXPECT_TRUE(Selects("~~Linear", kGate));
}

TEST(SelectorTest, TellsWhatItLooksAt) {
  const auto reads = [](std::string_view text) {
    const Selector selector = *Selector::Parse(text);
    return std::pair(selector.reads_modules(), selector.reads_apis());
  };
  EXPECT_EQ(reads("Linear"), std::pair(true, false));
  EXPECT_EQ(reads("api('linear')"), std::pair(false, true));
  EXPECT_EQ(reads("api('linear') & depth(>1)"), std::pair(true, true));
}

TEST(SelectorTest, ErrorsNameTheCharacter) {
  const auto wrong = [](std::string_view text) { return std::string(Selector::Parse(text).status().message()); };
  EXPECT_EQ(
      wrong("Linear & undr(\"*.mlp\")"),
      "select is invalid: at character 10 of \"Linear & undr(\"*.mlp\")\": no predicate is called undr; it should "
      "be one of ['type', 'name', 'under', 'depth', 'api'].");
  EXPECT_THAT(wrong(""), HasSubstr("at character 1 of \"\": here should be the name of a module's class"));
  EXPECT_THAT(wrong("Linear under('x')"), HasSubstr("at character 8 of"));
  EXPECT_THAT(wrong("name(x)"), HasSubstr("at character 6 of \"name(x)\": here should be a text in quotes"));
  EXPECT_THAT(wrong("name('x)"), HasSubstr("no closing quote"));
  EXPECT_THAT(wrong("depth(3)"), HasSubstr("here should be <, <=, ==, >= or >, and a number"));
  EXPECT_THAT(wrong("depth(<=x)"), HasSubstr("at character 9"));
  EXPECT_THAT(wrong("(Linear"), HasSubstr("at character 8 of \"(Linear\": here should be )"));
  EXPECT_THAT(wrong(std::string(1000, '(')), HasSubstr("inside each other"));
  EXPECT_THAT(wrong("Linear &"), HasSubstr("at character 9"));
}

}  // namespace
}  // namespace msprobe::core
