#include "server/format/storage/extent.h"

#include "server/format/cat.h"
#include "server/format/storage/key.h"

namespace msprobe::server {

std::string Extent::Encode() const {
  std::string value;
  for (uint32_t part : {segment, offset, size, crc32c}) AppendU32(value, part);
  return value;
}

absl::StatusOr<Extent> Extent::Decode(std::string_view value) {
  if (value.size() != kBytes) {
    return absl::DataLossError(Cat("an extent has ", value.size(), " bytes, expected ", kBytes));
  }
  return Extent{ReadU32(value, 0), ReadU32(value, 4), ReadU32(value, 8), ReadU32(value, 12)};
}

}  // namespace msprobe::server
