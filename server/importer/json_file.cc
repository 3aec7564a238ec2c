#include "server/importer/json_file.h"

#include <algorithm>
#include <vector>

#include "rapidjson/error/en.h"
#include "rapidjson/memorystream.h"
#include "rapidjson/reader.h"
#include "server/format/cat.h"
#include "server/format/json_writer.h"

namespace msprobe::server {
namespace {

constexpr uint64_t kMaxJson = 4ull << 30;
constexpr size_t kMaxDepth = 64;
constexpr unsigned kFlags = rapidjson::kParseNanAndInfFlag | rapidjson::kParseFullPrecisionFlag |
                            rapidjson::kParseIterativeFlag | rapidjson::kParseValidateEncodingFlag;

bool IsTooDeep(const rapidjson::Value& root) {
  std::vector<std::pair<const rapidjson::Value*, size_t>> open = {{&root, 0}};
  while (!open.empty()) {
    const auto [value, depth] = open.back();
    open.pop_back();
    if (depth > kMaxDepth) return true;
    if (value->IsArray()) {
      for (const rapidjson::Value& item : value->GetArray()) {
        if (item.IsArray() || item.IsObject()) open.push_back({&item, depth + 1});
      }
    } else if (value->IsObject()) {
      for (const auto& member : value->GetObject()) {
        if (member.value.IsArray() || member.value.IsObject()) open.push_back({&member.value, depth + 1});
      }
    }
  }
  return false;
}

}  // namespace

absl::StatusOr<rapidjson::Document> ReadJsonFile(FileSource& files, std::string_view path) {
  absl::StatusOr<std::unique_ptr<ByteSource>> source = files.Open(path);
  if (!source.ok()) return source.status();
  if ((*source)->size() > kMaxJson) {
    return absl::InvalidArgumentError(Cat(path, ": ", (*source)->size(), " bytes; at most 4 GiB"));
  }
  std::string text((*source)->size(), '\0');
  if (absl::Status status = (*source)->ReadAt(0, {text.data(), text.size()}); !status.ok()) return status;
  rapidjson::Document document;
  rapidjson::MemoryStream stream(text.data(), text.size());
  document.ParseStream<kFlags, rapidjson::UTF8<>>(stream);
  if (document.HasParseError()) {
    const std::string_view before = std::string_view(text).substr(0, document.GetErrorOffset());
    const size_t line = static_cast<size_t>(std::count(before.begin(), before.end(), '\n')) + 1;
    const size_t line_start = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
    return absl::InvalidArgumentError(Cat(path, ": line ", line, ", column ", before.size() - line_start + 1, ": ",
                                          rapidjson::GetParseError_En(document.GetParseError())));
  }
  if (!document.IsObject()) {
    return absl::InvalidArgumentError(Cat(path, ": a JSON object is expected, not ", Describe(document)));
  }
  if (IsTooDeep(document)) return absl::InvalidArgumentError(Cat(path, ": nested over ", kMaxDepth, " deep"));
  return document;
}

std::string Describe(const rapidjson::Value& value) {
  if (value.IsObject()) return "an object";
  if (value.IsArray()) return "a list";
  if (value.IsNull()) return "null";
  JsonWriter writer(false);
  if (value.IsString()) {
    writer.Text(TextOf(value).substr(0, 60));
    return Cat("the text ", writer.Take());
  }
  value.Accept(writer);
  return Cat(value.IsBool() ? "" : "the number ", writer.Take());
}

}  // namespace msprobe::server
