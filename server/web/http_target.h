#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace msprobe::server {

// The target of a request, for example "/api/runs?run=a%20b".
struct HttpTarget {
  std::string path;                          // decoded, without the query
  std::map<std::string, std::string> query;  // decoded; if a name occurs twice, the first value
};

// nullopt: the target does not begin with '/', or has a % that is not followed by two hexadecimal digits.
std::optional<HttpTarget> ParseTarget(std::string_view target);

}  // namespace msprobe::server
