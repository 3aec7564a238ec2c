#include "server/importer/record_name.h"

#include "absl/strings/numbers.h"
#include "server/format/cat.h"
#include "server/format/storage/record_pass.h"

namespace msprobe::server {
namespace {

std::optional<uint32_t> Count(std::string_view text) {
  uint32_t count = 0;
  const bool plain = text == "0" || (!text.empty() && text.front() >= '1' && text.front() <= '9');
  if (!plain || text.find_first_not_of("0123456789") != std::string_view::npos ||
      !absl::SimpleAtoi(AbslView(text), &count)) {
    return std::nullopt;
  }
  return count;
}

std::optional<v1::Direction> Way(std::string_view text) {
  if (text == "forward") return v1::DIRECTION_FORWARD;
  if (text == "backward") return v1::DIRECTION_BACKWARD;
  return std::nullopt;
}

}  // namespace

std::optional<RecordName> ParseRecordName(std::string_view full_name) {
  if (const std::string_view first = WithoutPass(full_name); first != full_name) {
    const std::optional<uint32_t> pass = Count(full_name.substr(first.size() + 1));
    std::optional<RecordName> parsed = ParseRecordName(first);
    if (!pass || !parsed) return std::nullopt;
    parsed->pass = *pass;
    return parsed;
  }
  const size_t last = full_name.rfind('.');
  if (last == std::string_view::npos || last == 0) return std::nullopt;
  const size_t middle = full_name.rfind('.', last - 1);
  if (middle == std::string_view::npos || middle == 0) return std::nullopt;
  const std::string_view tail = full_name.substr(last + 1);
  const std::string_view between = full_name.substr(middle + 1, last - middle - 1);
  RecordName parsed;
  parsed.name = std::string(full_name.substr(0, middle));
  if (std::optional<uint32_t> count = Count(between)) {
    parsed.count = *count;
    if (tail == "debug") {
      parsed.kind = v1::RECORD_DEBUG;
      return parsed;
    }
    if (std::optional<v1::Direction> way = Way(tail)) {
      parsed.kind = v1::RECORD_API;
      parsed.direction = *way;
      return parsed;
    }
    return std::nullopt;
  }
  std::optional<uint32_t> count = Count(tail);
  if (!count) return std::nullopt;
  parsed.count = *count;
  if (between == "parameters_grad") {
    parsed.kind = v1::RECORD_PARAMETERS_GRAD;
    parsed.direction = v1::DIRECTION_BACKWARD;
    return parsed;
  }
  if (std::optional<v1::Direction> way = Way(between)) {
    parsed.kind = v1::RECORD_MODULE;
    parsed.direction = *way;
    return parsed;
  }
  return std::nullopt;
}

v1::Frame ParseFrame(std::string_view text) {
  constexpr std::string_view kFile = "File ", kLine = ", line ", kIn = ", in ", kSource = ", \n ";
  v1::Frame whole;
  whole.set_path(std::string(text));
  const size_t source = text.find(kSource);
  if (!text.starts_with(kFile) || source == std::string_view::npos) return whole;
  const std::string_view head = text.substr(0, source);
  const size_t in = head.rfind(kIn);
  if (in == std::string_view::npos) return whole;
  const size_t line = head.substr(0, in).rfind(kLine);
  if (line == std::string_view::npos || line < kFile.size()) return whole;
  const std::optional<uint32_t> number = Count(head.substr(line + kLine.size(), in - line - kLine.size()));
  if (!number || *number == 0) return whole;
  v1::Frame frame;
  frame.set_path(std::string(head.substr(kFile.size(), line - kFile.size())));
  frame.set_line(*number);
  frame.set_function(std::string(head.substr(in + kIn.size())));
  frame.set_source(std::string(text.substr(source + kSource.size())));
  return frame;
}

}  // namespace msprobe::server
