#include "server/web/compared_json.h"

#include <cmath>

#include "server/analysis/compare/comparison.h"
#include "server/format/cat.h"
#include "server/web/web_question.h"

namespace msprobe::server {
namespace {

void WriteScalar(JsonWriter& json, const v1::Scalar& scalar) {
  switch (scalar.value_case()) {
    case v1::Scalar::kBoolean:
      json.Text(scalar.boolean() ? "True" : "False");
      break;
    case v1::Scalar::kInteger:
      json.Text(Cat(scalar.integer()));
      break;
    case v1::Scalar::kReal:
      WriteNumber(json, scalar.real());
      break;
    case v1::Scalar::kText:
      json.Text(scalar.text());
      break;
    case v1::Scalar::VALUE_NOT_SET:
      json.Text("None");
      break;
  }
}

// A number of the page is a double: an integer beyond 2^53 is a text.
void WriteValue(JsonWriter& json, double value, const v1::TensorLeaf::Number& exact) {
  if (std::fabs(value) < 0x1p53 || !(exact.has_integer() || exact.has_unsigned_integer())) {
    WriteNumber(json, value);
  } else {
    json.Text(exact.has_integer() ? Cat(exact.integer()) : Cat(exact.unsigned_integer()));
  }
}

}  // namespace

void WriteCompared(JsonWriter& json, const v1::ComparedTensor& row) {
  WriteTexts(json, {{"name", row.name()},
                    {"statistic", row.statistic()},
                    {"dtype", row.target_dtype()},
                    {"shape", row.target_shape()}});
  const bool scalars = static_cast<Verdict>(row.verdict()) == Verdict::kScalar;
  const bool contents = static_cast<Basis>(row.basis()) == Basis::kContent &&
                        static_cast<Verdict>(row.verdict()) != Verdict::kShape &&
                        static_cast<Verdict>(row.verdict()) != Verdict::kUnreadable;
  if (!scalars && !contents && row.statistic().empty()) {  // no numbers were compared, or one side lacks it
    for (const char* name : {"target", "golden", "excess"}) {
      json.Name(name);
      json.Null();
    }
    return;
  }
  json.Name("target");
  scalars ? WriteScalar(json, row.target_scalar()) : WriteValue(json, row.target_value(), row.exact_target_value());
  json.Name("golden");
  scalars ? WriteScalar(json, row.golden_scalar()) : WriteValue(json, row.golden_value(), row.exact_golden_value());
  json.Name("excess");
  WriteNumber(json, row.excess());
}

}  // namespace msprobe::server
