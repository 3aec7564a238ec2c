#pragma once

#include <cstdint>

namespace msprobe::core {

class Dictionary;
struct Fragment;

// The RecordDigest of a fragment that is final. 0: its structure or its parent was never defined.
uint32_t DigestOf(const Fragment& fragment, const Dictionary& dictionary);

// The same of one just captured. 0: it lacks what is on its way from a device; its digest is taken once that has come.
uint32_t DigestAtCapture(const Fragment& fragment, const Dictionary& dictionary);

}  // namespace msprobe::core
