// Cases that checkers get wrong. docs/checking.md has the right answers, and those that each policy gives.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <random>
#include <sstream>
#include <vector>

#include "server/analysis/check/policy.h"
#include "server/format/tensor_file/widen.h"

namespace msprobe::server {
namespace {

absl::StatusOr<AccuracyComparison> Compare(v1::DType target, v1::DType golden) {
  TensorDescription a;
  TensorDescription b;
  a.dtype = target;
  b.dtype = golden;
  return AccuracyComparison::Start(a, b);
}

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

// Outputs and golden values of one dtype; plain: of the plain implementation, empty for none.
template <typename T>
struct Tensors {
  std::vector<T> output;
  std::vector<double> golden;
  std::vector<T> plain;
};

template <typename T>
Accuracy Measure(v1::DType dtype, const std::vector<T>& output, const std::vector<double>& golden) {
  auto comparison = Compare(dtype, v1::DTYPE_FLOAT64);
  comparison->Add(reinterpret_cast<const char*>(output.data()), reinterpret_cast<const char*>(golden.data()),
                  output.size());
  return comparison->Finish();
}

template <typename T>
CheckedOutput Checked(v1::DType dtype, const Tensors<T>& tensors, std::string_view operation = "softmax") {
  CheckedOutput checked{operation, Measure(dtype, tensors.output, tensors.golden), std::nullopt};
  if (!tensors.plain.empty()) checked.plain = Measure(dtype, tensors.plain, tensors.golden);
  return checked;
}

std::vector<double> Normal(size_t count, double scale = 1, unsigned seed = 3) {
  std::mt19937 draw(seed);
  std::normal_distribution<double> normal;
  std::vector<double> values(count);
  for (double& value : values) value = scale * normal(draw);
  return values;
}

// The right output: every golden number rounded; and a plain implementation that is as good.
Tensors<float> Right(size_t count, double scale = 1, unsigned seed = 3) {
  Tensors<float> tensors;
  tensors.golden = Normal(count, scale, seed);
  for (double value : tensors.golden) tensors.output.push_back(static_cast<float>(value));
  tensors.plain = tensors.output;
  return tensors;
}

uint16_t ToBfloat16(double value) {
  const uint32_t bits = std::bit_cast<uint32_t>(static_cast<float>(value));
  return static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

struct Case {
  std::string_view name;
  bool right = false;  // the right answer
  std::function<CheckedOutput()> make;
};

template <typename Change>
std::function<CheckedOutput()> Changed(size_t count, double scale, Change change) {
  return [=] {
    Tensors<float> tensors = Right(count, scale);
    change(tensors);
    return Checked(v1::DTYPE_FLOAT32, tensors);
  };
}

std::vector<Case> Catalogue() {
  std::vector<Case> cases;
  cases.push_back({"one NaN in 50,000", false, Changed(50'000, 1, [](auto& t) { t.output[777] = kNan; })});
  cases.push_back({"one infinity in 50,000", false, Changed(50'000, 1, [](auto& t) { t.output[777] = kInf; })});
  cases.push_back({"values of 1e-4, half of them 50 % wrong", false, Changed(50'000, 1e-4, [](auto& t) {
                     for (size_t i = 0; i < t.output.size(); i += 2) t.output[i] *= 1.5F;
                   })});
  cases.push_back({"4 of 50,000 zeroed", false, Changed(50'000, 1, [](auto& t) {
                     for (size_t i : {11, 4'000, 20'000, 49'999}) t.output[i] = 0;
                   })});
  cases.push_back({"int8 127 for -128", false, [] {
                     const std::vector<int8_t> output = {127, 3, 4};
                     const std::vector<int8_t> golden = {-128, 3, 4};
                     auto comparison = Compare(v1::DTYPE_INT8, v1::DTYPE_INT8);
                     comparison->Add(reinterpret_cast<const char*>(output.data()),
                                     reinterpret_cast<const char*>(golden.data()), output.size());
                     return CheckedOutput{"npu_dynamic_quant", comparison->Finish(), std::nullopt};
                   }});
  // Every code of the dtype is what it stands for, subnormals included.
  const auto all_codes = [](v1::DType dtype) {
    return [dtype] {
      Tensors<uint8_t> tensors;
      for (int code = 0; code < 256; ++code) {
        tensors.output.push_back(static_cast<uint8_t>(code));
        tensors.golden.push_back(WidenToFloat(dtype, static_cast<uint16_t>(code)));
      }
      tensors.plain = tensors.output;
      return Checked(dtype, tensors);
    };
  };
  cases.push_back({"float8_e4m3fn, all 256 codes right", true, all_codes(v1::DTYPE_FLOAT8_E4M3FN)});
  cases.push_back({"float8_e5m2, all 256 codes right", true, all_codes(v1::DTYPE_FLOAT8_E5M2)});
  cases.push_back({"float8_e4m3fn subnormals flushed to zero", false, [] {
                     Tensors<uint8_t> tensors;
                     for (int i = 0; i < 4096; ++i) {
                       const auto code = static_cast<uint8_t>(1 + i % 7);
                       tensors.golden.push_back(WidenToFloat(v1::DTYPE_FLOAT8_E4M3FN, code));
                       tensors.output.push_back(0);
                       tensors.plain.push_back(code);
                     }
                     return Checked(v1::DTYPE_FLOAT8_E4M3FN, tensors);
                   }});
  cases.push_back(
      {"all zeros", false, Changed(1'000, 1, [](auto& t) { std::fill(t.output.begin(), t.output.end(), 0.0F); })});
  cases.push_back({"all zeros for values of 1e-6", false,
                   Changed(1'000, 1e-6, [](auto& t) { std::fill(t.output.begin(), t.output.end(), 0.0F); })});
  cases.push_back({"correlation 0.09 under an absolute tolerance", false, Changed(10'000, 1e-6, [](auto& t) {
                     const std::vector<double> other = Normal(t.output.size(), 1e-6, 9);
                     for (size_t i = 0; i < other.size(); ++i) {
                       t.output[i] = static_cast<float>(0.09 * t.golden[i] + 0.996 * other[i]);
                     }
                   })});
  cases.push_back({"bfloat16 rounded rightly, of values up to 300", true, [] {
                     Tensors<uint16_t> tensors;
                     tensors.golden = Normal(10'000, 100);
                     for (double value : tensors.golden) tensors.output.push_back(ToBfloat16(value));
                     tensors.plain = tensors.output;
                     return Checked(v1::DTYPE_BFLOAT16, tensors);
                   }});
  // A difference of large numbers: all elements have the noise of the large ones, however small they are.
  cases.push_back({"cancellation, noise of the largest number", true, [] {
                     Tensors<float> tensors;
                     tensors.golden = Normal(20'000, 1);
                     const std::vector<double> noise = Normal(20'000, 1e-6, 21);
                     const std::vector<double> plain = Normal(20'000, 1e-6, 22);
                     for (size_t i = 0; i < tensors.golden.size(); ++i) {
                       if (i % 2 == 0) tensors.golden[i] *= 1e-4;
                       tensors.output.push_back(static_cast<float>(tensors.golden[i] + noise[i]));
                       tensors.plain.push_back(static_cast<float>(tensors.golden[i] + plain[i]));
                     }
                     return Checked(v1::DTYPE_FLOAT32, tensors);
                   }});
  cases.push_back({"one outlier in 100,000", false, Changed(100'000, 1, [](auto& t) { t.output[54'321] += 0.01F; })});
  cases.push_back({"NaN on both sides", true, Changed(1'000, 1, [](auto& t) {
                     t.output[5] = t.plain[5] = kNan;
                     t.golden[5] = kNan;
                   })});
  cases.push_back({"infinity of the other sign", false, Changed(1'000, 1, [](auto& t) {
                     t.output[5] = kInf;
                     t.plain[5] = -kInf;
                     t.golden[5] = -kInf;
                   })});
  cases.push_back({"float16 infinite where the golden number is too large for it", true, [] {
                     Tensors<uint16_t> tensors{{0x7C00, 0x3C00}, {70'000, 1}, {0x7C00, 0x3C00}};
                     return Checked(v1::DTYPE_FLOAT16, tensors);
                   }});
  cases.push_back({"rows permuted", false, Changed(64 * 64, 1, [](auto& t) {
                     std::rotate(t.output.begin(), t.output.begin() + 64, t.output.end());
                   })});
  cases.push_back({"one ULP off everywhere", true, Changed(10'000, 1, [](auto& t) {
                     for (float& each : t.output) each = std::nextafter(each, kInf);
                   })});
  cases.push_back({"the last bit alone, of a sum in another order", true, [] {
                     Tensors<float> tensors = Right(10'000);
                     const std::vector<double> noise = Normal(10'000, 3e-7, 5);
                     const std::vector<double> plain = Normal(10'000, 2e-7, 6);
                     for (size_t i = 0; i < tensors.golden.size(); ++i) {
                       tensors.output[i] = static_cast<float>(tensors.golden[i] + noise[i]);
                       tensors.plain[i] = static_cast<float>(tensors.golden[i] + plain[i]);
                     }
                     return Checked(v1::DTYPE_FLOAT32, tensors, "matmul");
                   }});
  cases.push_back({"a gelu with 0.0447 for 0.044715", false, [] {
                     Tensors<float> tensors;
                     const auto gelu = [](double x, double c) {
                       return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + c * x * x * x)));
                     };
                     for (double x : Normal(10'000)) {
                       tensors.golden.push_back(gelu(x, 0.044715));
                       tensors.output.push_back(static_cast<float>(gelu(x, 0.0447)));
                       tensors.plain.push_back(static_cast<float>(gelu(x, 0.044715)));
                     }
                     return Checked(v1::DTYPE_FLOAT32, tensors, "gelu");
                   }});
  return cases;
}

std::string_view Word(Outcome outcome) {
  switch (outcome) {
    case Outcome::kPass:
      return "pass";
    case Outcome::kWarning:
      return "warning";
    case Outcome::kFail:
      return "fail";
    case Outcome::kUndecided:
      return "undecided";
  }
  return "";
}

// With and without a plain implementation: the default is right in both.
TEST(CatalogueTest, TheDefaultHasNoFalseVerdict) {
  for (const Case& each : Catalogue()) {
    CheckedOutput output = each.make();
    for (bool with_plain : {true, false}) {
      if (!with_plain) output.plain.reset();
      const Judgement verdict = JudgeByDefault(output);
      EXPECT_EQ(verdict.outcome, each.right ? Outcome::kPass : Outcome::kFail)
          << each.name << (with_plain ? "" : ", no plain implementation") << ": " << verdict.rule << " "
          << verdict.measured << " against " << verdict.limit;
    }
  }
}

// The table of docs/checking.md: a line a case, a column a policy, the right answer first.
TEST(CatalogueTest, TheDocumentHasWhatEveryPolicyAnswers) {
  std::ifstream file(std::string(MSPROBE_SOURCE_DIR) + "/docs/checking.md");
  std::stringstream content;
  content << file.rdbuf();
  std::string table = "| case | right |";
  for (const Policy& policy : Policies()) table += " `" + std::string(policy.name) + "` |";
  table += "\n|---|---|" + std::string(Policies().size() * 4, ' ');
  table.resize(table.size() - Policies().size() * 4);
  for (size_t i = 0; i < Policies().size(); ++i) table += "---|";
  for (const Case& each : Catalogue()) {
    const CheckedOutput output = each.make();
    table += "\n| " + std::string(each.name) + " | " + (each.right ? "pass" : "fail") + " |";
    for (const Policy& policy : Policies()) {
      const Judgement verdict = policy.judge(output);
      const bool as_it_should_be = (verdict.outcome == Outcome::kPass) == each.right;
      const std::string word(Word(verdict.outcome));
      table += " " + (as_it_should_be ? word : "**" + word + "**") + " |";
    }
  }
  EXPECT_THAT(content.str(), testing::HasSubstr(table)) << "docs/checking.md should have\n" << table;
}

TEST(CatalogueTest, AVerdictNamesItsRuleAndNumber) {
  Tensors<float> tensors = Right(1'000);
  tensors.output[3] = kNan;
  for (const Policy& policy : Policies()) {
    if (policy.name == "documented") continue;  // it has no rule on NaN for this operator
    const Judgement verdict = policy.judge(Checked(v1::DTYPE_FLOAT32, tensors));
    EXPECT_EQ(verdict.rule, "inf_nan") << policy.name;
    EXPECT_EQ(verdict.measured, 1) << policy.name;
  }
  EXPECT_EQ(PolicyOfName("cann")->judge, JudgeAsCann);
  EXPECT_EQ(PolicyOfName("none"), nullptr);
}

}  // namespace
}  // namespace msprobe::server
