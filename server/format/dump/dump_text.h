#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "server/format/tensor_file/byte_source.h"

namespace msprobe::server {

// The whole text of a file of a dump, in memory that goes back to the system with it. The file itself is not mapped:
// mindstudio-probe writes its files anew in place, and a mapped file that becomes shorter kills the process that reads
// it. Movable; views stay valid.
class DumpText {
 public:
  // InvalidArgument: "N bytes; at most 4 GiB". The source's errors.
  static absl::StatusOr<DumpText> Read(ByteSource& source);

  std::string_view view() const { return {bytes_.get(), size_}; }

 private:
  DumpText(std::unique_ptr<char[]> bytes, size_t size) : bytes_(std::move(bytes)), size_(size) {}

  std::unique_ptr<char[]> bytes_;
  size_t size_;
};

}  // namespace msprobe::server
