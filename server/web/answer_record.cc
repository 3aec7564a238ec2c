#include <google/protobuf/util/json_util.h>

#include "server/web/web_question.h"

namespace msprobe::server {
namespace {

constexpr size_t kMaxRecords = 16;  // with one name; each token has one
constexpr size_t kMaxBytes = 4 << 20;

}  // namespace

// The records with one name in one step, with their stacks, in protobuf's JSON for record.proto: [{...}, ...].
absl::Status AnswerRecord(const WebContext& context, const WebQuery& query, JsonWriter& json) {
  auto run = query.Required("run");
  auto rank = query.Rank();
  auto name = query.Required("name");
  auto required = query.Required("step");
  auto step = query.Number("step", 0);
  for (const absl::Status& status : {run.status(), rank.status(), name.status(), required.status(), step.status()}) {
    if (!status.ok()) return status;
  }
  v1::ReadRecordsRequest request;
  request.set_run(*run);
  request.set_step(*step);
  *request.mutable_rank() = *rank;
  request.set_name_glob(LiteralPattern(*name));
  request.set_with_stack(true);
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  json.StartArray();
  size_t records = 0, bytes = 0;
  absl::Status status = ReadRecords(context.query, request, [&](const v1::Record& record) {
    std::string text;
    if (records == kMaxRecords || bytes > kMaxBytes || !MessageToJsonString(record, &text, options).ok()) return true;
    json.RawValue(text.data(), text.size(), rapidjson::kObjectType);
    bytes += text.size();
    ++records;
    return true;
  });
  json.EndArray();
  return status;
}

}  // namespace msprobe::server
