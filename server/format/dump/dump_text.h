#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "server/format/tensor_file/byte_source.h"

namespace msprobe::server {

// The whole text of a file of a dump, in pages of its own that go back to the system with it: an allocator would keep
// them. The file itself is not mapped: mindstudio-probe writes its files anew in place, and a mapped file that becomes
// shorter kills the process that reads it. Movable; views stay valid.
class DumpText {
 public:
  // InvalidArgument: "N bytes; at most 4 GiB". ResourceExhausted: there is no memory for it. The source's errors.
  static absl::StatusOr<DumpText> Read(ByteSource& source);

  std::string_view view() const { return {pages_.get(), pages_.get_deleter().size}; }

 private:
  struct Unmap {
    size_t size;
    void operator()(char* pages) const;
  };
  using Pages = std::unique_ptr<char, Unmap>;

  explicit DumpText(Pages pages) : pages_(std::move(pages)) {}

  Pages pages_;  // null: the text is empty
};

}  // namespace msprobe::server
