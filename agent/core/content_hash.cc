#include "agent/core/content_hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace msprobe::core {

uint64_t DefinitionHash(std::string_view content) { return XXH3_64bits(content.data(), content.size()); }

std::string PayloadHash(std::span<const std::byte> content) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(content.data(), content.size()));
  return std::string(reinterpret_cast<const char*>(canonical.digest), sizeof(canonical.digest));
}

}  // namespace msprobe::core
