#pragma once

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "server/web/web_question.h"

namespace msprobe::server {

// What the report of a run shows; golden: the run that it is compared with, empty: none.
struct ReportQuestion {
  std::string run;
  std::string golden;
  std::string run_title = run;  // what the report calls them
  std::string golden_title = golden;
};

inline constexpr size_t kMaxReportBytes = 2'000'000;

// A page of its own: the web page's scripts and styles, and the answers that they show, in one HTML text. It asks no
// server, and its policy lets a browser load nothing. It has at most kMaxReportBytes, however large the runs are:
// answers get smaller, or are left out, and the page then says what is missing and which command shows it. Errors:
// those of the answers; InvalidArgument: a title is too long.
absl::StatusOr<std::string> MakeReport(const WebContext& context, const ReportQuestion& question);

}  // namespace msprobe::server
