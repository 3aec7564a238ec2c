#include "server/web/origin_json.h"

#include "server/format/storage/key.h"
#include "server/web/web_question.h"

namespace msprobe::server {
namespace {

const char* OriginName(v1::OverflowOrigin origin) {
  switch (origin) {
    case v1::ORIGIN_COMPUTATION:
      return "computation";
    case v1::ORIGIN_WEIGHT:
      return "weight";
    case v1::ORIGIN_INPUT:
      return "input";
    default:
      return "";
  }
}

}  // namespace

void WriteOrigin(JsonWriter& json, const v1::Overflow& found) {
  json.StartObject();
  json.Name("step");
  json.Uint(found.step());
  WriteTexts(json, {{"rank", RankName(found.rank())},
                    {"op", found.op()},
                    {"module", found.module()},
                    {"tensor", found.tensor()},
                    {"dtype", found.dtype()},
                    {"shape", found.shape()},
                    {"origin", OriginName(found.origin())}});
  json.Name("nan");
  json.Bool(found.nan());
  json.Name("infinity");
  json.Bool(found.infinity());
  json.EndObject();
}

}  // namespace msprobe::server
