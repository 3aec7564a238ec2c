#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "server/analysis/check/accuracy.h"

namespace msprobe::server {

// One output of one call, measured.
struct CheckedOutput {
  std::string_view operation;  // "matmul": the name between prefix and number
  Accuracy accuracy;           // of the output against the golden value
  // Of the plain implementation against the same golden value: what the dtype costs in any case.
  std::optional<Accuracy> plain;
};

enum class Outcome {
  kPass,
  kWarning,
  kFail,
  kUndecided,  // the policy needs what was not measured
};

struct Judgement {
  Outcome outcome = Outcome::kPass;
  std::string_view rule;  // the rule that decided: "inf_nan", "max_abs_ratio"; a literal
  double measured = 0;    // the number that decided
  double limit = 0;       // what it was held against
};

// A verdict is a pure function of what was measured. docs/checking.md has each policy's source and numbers.
struct Policy {
  std::string_view name;
  std::string_view about;  // one line
  Judgement (*judge)(const CheckedOutput& output);
};

// The first is the default.
std::span<const Policy> Policies();
// Null: there is none of that name.
const Policy* PolicyOfName(std::string_view name);

// What several policies share.
Judgement Held(bool passes, std::string_view rule, double measured, double limit);
// Of nothing: 0.
double Share(uint64_t part, uint64_t whole);
// NaN or infinity where the golden value has another one.
uint64_t NonFiniteMismatches(const Accuracy& accuracy);
// Whether the operator rounds floats to integers, so that its integers may be one off.
bool Quantises(std::string_view operation);
// Integers and bools: nothing may differ, but by 1 where the operator quantises. Absent: the output has floats.
std::optional<Judgement> JudgeIntegers(const CheckedOutput& output);
// The first stage of mindstudio-probe's acc_check: without a second implementation, and of any floating output. A NaN
// or an infinity on one side counts as an element that is far off.
Judgement JudgeFirstStage(const Accuracy& accuracy);
// Which of mindstudio-probe's standards judges the output: "binary", "absolute_threshold", "ulp", "double_thousandth",
// "accumulative" or "benchmark". Empty: none, of float64 and complex outputs.
std::string_view DocumentedStandard(const CheckedOutput& output);

// One file each.
Judgement JudgeByDefault(const CheckedOutput& output);
Judgement JudgeAsDocumented(const CheckedOutput& output);
Judgement JudgeAsAccCheck(const CheckedOutput& output);
Judgement JudgeAsTorch(const CheckedOutput& output);
Judgement JudgeByRatio(const CheckedOutput& output);
Judgement JudgeAsCann(const CheckedOutput& output);

}  // namespace msprobe::server
