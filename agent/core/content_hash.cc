#include "agent/core/content_hash.h"

#include <xxhash.h>

#include <bit>
#if __has_include(<xxh_x86dispatch.h>)
#include <xxh_x86dispatch.h>  // from here on XXH3_ functions are those for this processor
#endif

namespace msprobe::core {

uint64_t DefinitionHash(std::string_view content) { return XXH3_64bits(content.data(), content.size()); }

PayloadDigest PayloadHash(std::span<const std::byte> content) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(content.data(), content.size()));
  return std::bit_cast<PayloadDigest>(canonical);
}

}  // namespace msprobe::core
