#include "server/importer/json_file.h"

#include <algorithm>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "rapidjson/error/en.h"
#include "rapidjson/memorystream.h"
#include "rapidjson/reader.h"
#include "server/format/cat.h"
#include "server/format/json/json_writer.h"

namespace msprobe::server {
namespace {

constexpr uint64_t kMaxJson = 4ull << 30;
constexpr size_t kMaxDepth = 64;
constexpr unsigned kFlags = rapidjson::kParseNanAndInfFlag | rapidjson::kParseNumbersAsStringsFlag |
                            rapidjson::kParseIterativeFlag | rapidjson::kParseValidateEncodingFlag;

// Makes a document of what a parser says, and numbers of their text: RapidJSON's own exact conversion takes a zero with
// an exponent beyond 22 for another number (0e55 for 1e36).
class DocumentMaker {
 public:
  explicit DocumentMaker(rapidjson::Document* document) : document_(document) {}

  bool Null() { return document_->Null(); }
  bool Bool(bool value) { return document_->Bool(value); }
  // Called for no number: all come as text.
  bool Int(int) { return false; }
  bool Uint(unsigned) { return false; }
  bool Int64(int64_t) { return false; }
  bool Uint64(uint64_t) { return false; }
  bool Double(double) { return false; }
  bool RawNumber(const char* text, rapidjson::SizeType length, bool) {
    const absl::string_view number(text, length);
    if (int64_t value; absl::SimpleAtoi(number, &value)) return document_->Int64(value);
    if (uint64_t value; absl::SimpleAtoi(number, &value)) return document_->Uint64(value);
    double value = 0;
    return absl::SimpleAtod(number, &value) && document_->Double(value);
  }
  bool String(const char* text, rapidjson::SizeType length, bool copy) { return document_->String(text, length, copy); }
  bool Key(const char* text, rapidjson::SizeType length, bool copy) { return document_->Key(text, length, copy); }
  bool StartObject() { return document_->StartObject(); }
  bool EndObject(rapidjson::SizeType members) { return document_->EndObject(members); }
  bool StartArray() { return document_->StartArray(); }
  bool EndArray(rapidjson::SizeType items) { return document_->EndArray(items); }

 private:
  rapidjson::Document* const document_;
};

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
  rapidjson::ParseResult parsed;
  const auto parse = [&](rapidjson::Document& empty) {
    DocumentMaker maker(&empty);
    parsed = rapidjson::Reader().Parse<kFlags>(stream, maker);
    return !parsed.IsError();
  };
  document.Populate(parse);
  if (parsed.IsError()) {
    const std::string_view before = std::string_view(text).substr(0, parsed.Offset());
    const size_t line = static_cast<size_t>(std::count(before.begin(), before.end(), '\n')) + 1;
    const size_t line_start = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
    return absl::InvalidArgumentError(Cat(path, ": line ", line, ", column ", before.size() - line_start + 1, ": ",
                                          rapidjson::GetParseError_En(parsed.Code())));
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
