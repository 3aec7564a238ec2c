#include "server/format/dump/dump_text.h"

#include <cstdint>
#include <utility>

#include "server/format/cat.h"

namespace msprobe::server {
namespace {

constexpr uint64_t kMaxBytes = 4ull << 30;

}  // namespace

absl::StatusOr<DumpText> DumpText::Read(ByteSource& source) {
  if (source.size() > kMaxBytes) {
    return absl::InvalidArgumentError(Cat(source.size(), " bytes; at most 4 GiB"));
  }
  const auto size = static_cast<size_t>(source.size());
  // Not zeroed first: a dump may have hundreds of megabytes.
  auto bytes = std::make_unique_for_overwrite<char[]>(size);
  if (absl::Status status = source.ReadAt(0, {bytes.get(), size}); !status.ok()) return status;
  return DumpText(std::move(bytes), size);
}

}  // namespace msprobe::server
