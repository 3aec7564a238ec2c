#include "server/monitor/capture_settings.h"

#include <algorithm>
#include <array>
#include <span>
#include <string_view>
#include <utility>

#include "server/format/cat.h"

namespace msprobe::server {
namespace {

constexpr uint32_t kMostSteps = 1000;
constexpr std::array<std::string_view, 4> kLevels = {"", "L0", "L1", "mix"};
constexpr std::array<std::string_view, 3> kTasks = {"", "statistics", "tensor"};

absl::Status OneOf(std::string_view field, std::string_view value, std::span<const std::string_view> allowed,
                   std::string_view shown) {
  if (std::find(allowed.begin(), allowed.end(), value) != allowed.end()) return absl::OkStatus();
  return absl::InvalidArgumentError(Cat("capture.", field, " is ", value, "; it should be ", shown));
}

}  // namespace

CaptureSettings CaptureSettingsOf(const v1::DeeperCapture& capture) {
  CaptureSettings settings;
  if (capture.steps() != 0) settings.steps = capture.steps();
  if (capture.budget().times() != 0) settings.times = capture.budget().times();
  if (capture.budget().bytes() != 0) settings.bytes = capture.budget().bytes();
  settings.shown = Cat("the next ", settings.steps, " steps");
  for (const auto& [field, value] : {std::pair("level", capture.level()), {"task", capture.task()}}) {
    if (value.empty()) continue;
    settings.json += Cat(settings.json.empty() ? "{" : ", ", "\"", field, "\": \"", value, "\"");
    settings.shown += Cat(", ", field, " ", value);
  }
  settings.json += settings.json.empty() ? "{}" : "}";
  return settings;
}

absl::Status CheckCapture(const v1::DeeperCapture& capture) {
  absl::Status status = OneOf("level", capture.level(), kLevels, "L0, L1 or mix");
  if (status.ok()) status = OneOf("task", capture.task(), kTasks, "statistics or tensor");
  if (!status.ok() || capture.steps() <= kMostSteps) return status;
  return absl::InvalidArgumentError(Cat("capture.steps is ", capture.steps(), "; it should be at most ", kMostSteps));
}

}  // namespace msprobe::server
