#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"

namespace msprobe::core {

// The checksums of an earlier dump.json (summary_mode md5), as live records are compared with them.
//
// Immutable after Load, and thread-safe.
class BenchDump {
 public:
  // Of one record, a tensor each in depth-first order; nullopt where the dump has none. Parameters are left out.
  struct Checksums {
    std::vector<std::optional<uint32_t>> input;  // input_args and input_kwargs; of a backward record input
    std::vector<std::optional<uint32_t>> output;  // output; of parameters_grad the gradients
  };

  // Errors: NotFound, InvalidArgument for what is no dump.json or has no checksums.
  static absl::StatusOr<BenchDump> Load(const std::string& dump_json);

  // Null: the dump has no record of this name.
  const Checksums* Find(std::string_view full_name) const;
  size_t size() const { return records_.size(); }

 private:
  absl::flat_hash_map<std::string, Checksums> records_;
};

}  // namespace msprobe::core
