#pragma once

#include <cstdint>

namespace msprobe::core {

class Dictionary;
struct Fragment;

// The RecordDigest of a final fragment. 0: its structure or parent was never defined.
uint32_t DigestOf(const Fragment& fragment, const Dictionary& dictionary);

// The same for a fragment that was just captured. 0: numbers are still on their way from a device; the digest is
// computed when they have arrived.
uint32_t DigestAtCapture(const Fragment& fragment, const Dictionary& dictionary);

}  // namespace msprobe::core
