#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "msprobe/v1/analysis.pb.h"
#include "msprobe/v1/record.pb.h"

namespace msprobe::server {

// The parameters of a question to the web page. Errors are InvalidArgument with name and value.
class WebQuery {
 public:
  explicit WebQuery(std::map<std::string, std::string> values) : values_(std::move(values)) {}

  // Empty: the parameter is missing.
  std::string Text(const std::string& name) const;
  absl::StatusOr<std::string> Required(const std::string& name) const;
  absl::StatusOr<uint32_t> Number(const std::string& name, uint32_t absent) const;
  // "rank": rank3 or proc123.
  absl::StatusOr<v1::Rank> Rank() const;
  // "statistic": norm, max, ...; norm if it is missing.
  absl::StatusOr<v1::Statistic> Statistic() const;

 private:
  std::map<std::string, std::string> values_;
};

// A shell pattern that matches only this name.
std::string LiteralPattern(const std::string& name);

}  // namespace msprobe::server
