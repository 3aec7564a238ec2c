#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace msprobe::server {

// What a request asks for: "/api/runs?run=a%20b".
struct HttpTarget {
  std::string path;                          // decoded, without the query
  std::map<std::string, std::string> query;  // decoded; of a name that stands twice, the first
};

// None: it does not begin with '/', or has a % without two hexadecimal digits behind it.
std::optional<HttpTarget> ParseTarget(std::string_view target);

}  // namespace msprobe::server
