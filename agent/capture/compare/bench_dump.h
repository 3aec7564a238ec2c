#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"

namespace msprobe::capture {

// The checksums of an earlier dump.json (summary_mode md5), as live records are compared with them.
//
// Immutable after Load, and thread-safe.
class BenchDump {
 public:
  // One field of a record (input_args, output, the gradient of one parameter) with a checksum for each tensor, in
  // depth-first order; nullopt where the dump has none.
  struct Field {
    std::string key;
    std::vector<std::optional<uint32_t>> checksums;
  };
  // The fields of one record. Parameters are left out.
  struct Fields : std::vector<Field> {
    const Field* Find(std::string_view key) const;  // null: there is none
  };

  // Errors: NotFound, InvalidArgument for what is no dump.json or has no checksums.
  static absl::StatusOr<BenchDump> Load(const std::string& dump_json);

  // Null: the dump has no record of this name.
  const Fields* Find(std::string_view full_name) const;
  size_t size() const { return records_.size(); }

 private:
  absl::flat_hash_map<std::string, Fields> records_;
};

}  // namespace msprobe::capture
