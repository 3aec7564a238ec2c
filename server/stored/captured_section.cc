#include "server/stored/captured_section.h"

namespace msprobe::server {

rapidjson::Document CapturedSection(const v1::CaptureSettings& settings, const char* name) {
  rapidjson::Document section(rapidjson::kObjectType);
  rapidjson::Document config;
  // Iterative: a sender may nest deeper than the stack is.
  config.Parse<rapidjson::kParseNanAndInfFlag | rapidjson::kParseIterativeFlag>(settings.config_json().c_str());
  if (config.HasParseError() || !config.IsObject()) return section;
  const auto found = config.FindMember(name);
  if (found != config.MemberEnd() && found->value.IsObject()) section.CopyFrom(found->value, section.GetAllocator());
  return section;
}

}  // namespace msprobe::server
