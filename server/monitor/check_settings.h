#pragma once

#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "msprobe/v1/ingest.pb.h"

namespace msprobe::server {

// What the configuration of a run with task check says of verdicts. docs/config.md has the fields and their defaults.
struct CheckSettings {
  static constexpr char kSection[] = "check";
  static constexpr std::string_view kNoGolden = "none";

  std::string golden = "cpu-fp64";
  std::string policy = "default";
  absl::Duration golden_wait = absl::Minutes(10);
  bool keep_all = false;

  // A sender may have written anything: what cannot be read has its default.
  static CheckSettings Of(const v1::CaptureSettings& settings);

  // The run that calls are held against; empty: workers compute what is right, or nothing is checked.
  std::string golden_run() const;
  // Whether the run is there for others that are held against it.
  bool is_reference() const { return golden == kNoGolden; }
  // The fields of checker.Settings, as the kind "check" reads them.
  std::string OptionsFor(const std::string& run) const;
};

}  // namespace msprobe::server
