#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rapidjson/document.h"
#include "server/importer/file_source.h"

namespace msprobe::server {

// Parses a JSON object of a dump: bare NaN and Infinity allowed, nesting of any depth parsed without recursion.
// InvalidArgument: "FILE: line 3, column 7: what is wrong"; not an object; nested over 64 deep; over 4 GiB.
absl::StatusOr<rapidjson::Document> ReadJsonFile(FileSource& files, std::string_view path);

// "a list", "the text \"abc\"", "the number 3": for messages.
std::string Describe(const rapidjson::Value& value);

inline std::string_view TextOf(const rapidjson::Value& value) {
  return std::string_view(value.GetString(), value.GetStringLength());
}

}  // namespace msprobe::server
