#include "server/ingest/payload/payload_upload.h"

#include <xxhash.h>
#if __has_include(<xxh_x86dispatch.h>)
#include <xxh_x86dispatch.h>  // from here on XXH3_ functions are those for this processor
#endif

#include "server/format/cat.h"

namespace msprobe::server {

void PayloadUpload::FreeState::operator()(XXH3_state_s* state) const { XXH3_freeState(state); }

PayloadUpload::PayloadUpload(uint64_t size) : size_(size), state_(XXH3_createState()) {
  XXH3_128bits_reset(state_.get());
}

absl::Status PayloadUpload::Add(uint64_t offset, std::string_view content) {
  if (offset != received_) {
    return absl::InvalidArgumentError(Cat("payload_chunk.offset is ", offset, ", the next byte is ", received_));
  }
  if (content.size() > size_ - received_) {
    return absl::InvalidArgumentError(
        Cat("payload_chunk ends at byte ", received_ + content.size(), " of a payload announced with ", size_));
  }
  XXH3_128bits_update(state_.get(), content.data(), content.size());
  if (chunks_ == 0) chunk_bytes_ = static_cast<uint32_t>(content.size());
  // Only the last may be shorter, none longer.
  const uint64_t expected = uint64_t{chunk_bytes_} * chunks_;
  even_ = even_ && received_ == expected && content.size() <= chunk_bytes_;
  received_ += content.size();
  ++chunks_;
  return absl::OkStatus();
}

std::string PayloadUpload::Hash() const {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state_.get()));
  return std::string(reinterpret_cast<const char*>(canonical.digest), sizeof(canonical.digest));
}

uint64_t DefinitionId(std::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

}  // namespace msprobe::server
