#include "agent/core/queue/record_digest.h"

#include <xxhash.h>

#include <algorithm>

#include "agent/core/content_hash.h"

namespace msprobe::core {

RecordDigest::RecordDigest(const Head& head)
    : words_({uint64_t{head.step} << 32 | head.token, head.structure, head.parent, head.ordinal,
              uint64_t{head.count} << 32 | head.flags, head.thread}) {}

void RecordDigest::AddShape(std::span<const int64_t> dims) {
  words_.push_back(dims.size());
  words_.insert(words_.end(), dims.begin(), dims.end());
}

void RecordDigest::AddText(std::string_view text) { words_.push_back(DefinitionHash(text)); }

uint32_t RecordDigest::value() const {
  return std::max(static_cast<uint32_t>(XXH3_64bits(words_.data(), words_.size() * sizeof(words_[0]))), 1U);
}

}  // namespace msprobe::core
