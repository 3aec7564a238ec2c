#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace msprobe::core {

// Lines of source files. Each file is read once, from the disk, so this is not for a capturing thread.
//
// Threads: one.
class SourceLines {
 public:
  // Line `line` (from 1) of the file, without surrounding white space, as UTF-8. Empty: there is no such line or no
  // such file, or the file is larger than 16 MiB. Always the same for the same line, whatever becomes of the file.
  std::string Line(const std::string& path, uint32_t line);

 private:
  struct File {
    std::string content;
    std::vector<size_t> starts;
  };
  const File& Read(const std::string& path);
  std::string ReadLine(const std::string& path, uint32_t line);

  absl::flat_hash_map<std::string, File> files_;
  absl::flat_hash_map<std::string, absl::flat_hash_map<uint32_t, std::string>> given_;  // by path and line
  size_t held_bytes_ = 0;
};

}  // namespace msprobe::core
