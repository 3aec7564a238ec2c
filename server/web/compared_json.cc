#include "server/web/compared_json.h"

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

}  // namespace

void WriteCompared(JsonWriter& json, const v1::ComparedTensor& row) {
  WriteTexts(json, {{"name", row.name()},
                    {"statistic", row.statistic()},
                    {"dtype", row.target_dtype()},
                    {"shape", row.target_shape()}});
  const bool scalars = static_cast<Verdict>(row.verdict()) == Verdict::kScalar;
  json.Name("target");
  scalars ? WriteScalar(json, row.target_scalar()) : WriteNumber(json, row.target_value());
  json.Name("golden");
  scalars ? WriteScalar(json, row.golden_scalar()) : WriteNumber(json, row.golden_value());
  json.Name("excess");
  WriteNumber(json, row.excess());
}

}  // namespace msprobe::server
