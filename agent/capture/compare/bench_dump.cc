#include "agent/capture/compare/bench_dump.h"

#include <charconv>
#include <fstream>
#include <utility>

#include "agent/core/str_cat.h"
#include "rapidjson/document.h"
#include "rapidjson/error/en.h"
#include "rapidjson/istreamwrapper.h"

namespace msprobe::capture {
namespace {

using rapidjson::Value;

std::optional<uint32_t> Checksum(const Value& tensor) {
  const auto member = tensor.FindMember("md5");
  if (member == tensor.MemberEnd() || !member->value.IsString()) return std::nullopt;
  const std::string_view text(member->value.GetString(), member->value.GetStringLength());
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

void Collect(const Value& value, std::vector<std::optional<uint32_t>>* out) {
  if (value.IsArray()) {
    for (const Value& item : value.GetArray()) Collect(item, out);
  } else if (value.IsObject()) {
    if (value.HasMember("dtype") && value.HasMember("shape")) {
      out->push_back(Checksum(value));
      return;
    }
    for (const auto& member : value.GetObject()) Collect(member.value, out);
  }
}

}  // namespace

absl::StatusOr<BenchDump> BenchDump::Load(const std::string& dump_json) {
  std::ifstream file(dump_json);
  if (!file) return absl::NotFoundError(core::Cat("\"", dump_json, "\" cannot be read"));
  rapidjson::IStreamWrapper stream(file);
  rapidjson::Document document;
  document.ParseStream<rapidjson::kParseNanAndInfFlag | rapidjson::kParseIterativeFlag>(stream);
  if (document.HasParseError()) {
    return absl::InvalidArgumentError(
        core::Cat("\"", dump_json, "\" is not JSON: ", rapidjson::GetParseError_En(document.GetParseError())));
  }
  if (!document.IsObject() || !document.HasMember("data") || !document["data"].IsObject()) {
    return absl::InvalidArgumentError(core::Cat("\"", dump_json, "\" is no dump.json: it has no \"data\""));
  }
  BenchDump dump;
  bool has_checksums = false;
  for (const auto& record : std::as_const(document)["data"].GetObject()) {
    const std::string name(record.name.GetString(), record.name.GetStringLength());
    Fields fields;
    if (record.value.IsObject()) {
      for (const auto& member : record.value.GetObject()) {
        Field field{std::string(member.name.GetString(), member.name.GetStringLength()), {}};
        if (field.key == "parameters") continue;
        Collect(member.value, &field.checksums);
        for (const std::optional<uint32_t>& each : field.checksums) has_checksums |= each.has_value();
        fields.push_back(std::move(field));
      }
    }
    dump.records_.emplace(name, std::move(fields));
  }
  if (!has_checksums && !dump.records_.empty()) {
    return absl::InvalidArgumentError(
        core::Cat("\"", dump_json, "\" has no checksums: it was not dumped with summary_mode md5"));
  }
  return dump;
}

const BenchDump::Field* BenchDump::Fields::Find(std::string_view key) const {
  for (const Field& field : *this) {
    if (field.key == key) return &field;
  }
  return nullptr;
}

const BenchDump::Fields* BenchDump::Find(std::string_view full_name) const {
  const auto found = records_.find(absl::string_view(full_name.data(), full_name.size()));
  return found == records_.end() ? nullptr : &found->second;
}

}  // namespace msprobe::capture
