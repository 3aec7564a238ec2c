#include "agent/capture/open_record.h"

#include "absl/strings/str_cat.h"

namespace msprobe::capture {

std::string OpenRecord::FullName() const {
  std::string text;
  AppendFullName(&text);
  return text;
}

void OpenRecord::AppendFullName(std::string* text) const {
  const absl::string_view way = direction == core::Direction::kForward ? "forward" : "backward";
  switch (kind) {
    case core::RecordKind::kApi:
      absl::StrAppend(text, *name, ".", count, ".", way);
      break;
    case core::RecordKind::kModule:
      absl::StrAppend(text, *name, ".", way, ".", count);
      break;
    case core::RecordKind::kParametersGrad:
      return absl::StrAppend(text, *name, ".parameters_grad.", count);
    case core::RecordKind::kDebug:
      return absl::StrAppend(text, *name, ".", count, ".debug");
    case core::RecordKind::kScalars:
      return absl::StrAppend(text, *name);
  }
  if (pass > 0) absl::StrAppend(text, ".", pass);
}

}  // namespace msprobe::capture
