#include "server/monitor/check_settings.h"

#include <algorithm>
#include <array>

#include "rapidjson/stringbuffer.h"
#include "rapidjson/writer.h"
#include "server/stored/captured_section.h"

namespace msprobe::server {
namespace {

constexpr std::array<std::string_view, 2> kComputed = {"cpu-fp64", "cpu-raised"};
constexpr double kLongestWait = 86'400;  // seconds

void ReadText(const rapidjson::Value& section, const char* field, std::string& text) {
  const auto found = section.FindMember(field);
  if (found != section.MemberEnd() && found->value.IsString()) text = found->value.GetString();
}

}  // namespace

CheckSettings CheckSettings::Of(const v1::CaptureSettings& settings) {
  CheckSettings read;
  const rapidjson::Document section = CapturedSection(settings, kSection);
  ReadText(section, "golden", read.golden);
  ReadText(section, "policy", read.policy);
  std::string keep;
  ReadText(section, "keep", keep);
  read.keep_all = keep == "all";
  const auto wait = section.FindMember("golden_wait_s");
  if (wait != section.MemberEnd() && wait->value.IsNumber()) {
    const double seconds = wait->value.GetDouble();
    if (seconds >= 0) read.golden_wait = absl::Seconds(std::min(seconds, kLongestWait));
  }
  return read;
}

std::string CheckSettings::golden_run() const {
  const bool computed = std::find(kComputed.begin(), kComputed.end(), golden) != kComputed.end();
  return computed || is_reference() ? "" : golden;
}

std::string CheckSettings::OptionsFor(const std::string& run) const {
  rapidjson::StringBuffer text;
  rapidjson::Writer<rapidjson::StringBuffer> writer(text);
  const auto put = [&writer](const char* key, const std::string& value) {
    writer.Key(key);
    writer.String(value.c_str(), static_cast<rapidjson::SizeType>(value.size()));
  };
  writer.StartObject();
  put("device", "recorded");
  put("golden", golden);
  put("policy", policy);
  writer.Key("seed");
  writer.Int(1234);
  writer.Key("stress");
  writer.Bool(false);
  put("shown", run);
  writer.EndObject();
  return text.GetString();
}

}  // namespace msprobe::server
