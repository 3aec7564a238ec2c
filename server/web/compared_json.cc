#include "server/web/compared_json.h"

#include <utility>

#include "server/web/web_question.h"

namespace msprobe::server {

void WriteCompared(JsonWriter& json, const v1::ComparedTensor& row) {
  WriteTexts(json, {{"name", row.name()},
                    {"statistic", row.statistic()},
                    {"dtype", row.target_dtype()},
                    {"shape", row.target_shape()}});
  for (const auto& [name, value] :
       {std::pair("target", row.target_value()), std::pair("golden", row.golden_value()), {"excess", row.excess()}}) {
    json.Name(name);
    WriteNumber(json, value);
  }
}

}  // namespace msprobe::server
