#pragma once

#include <cstddef>

namespace msprobe::core {

// A size that what follows, of words of eight bytes, may begin at.
constexpr size_t Padded(size_t size) { return (size + 7) & ~size_t{7}; }

}  // namespace msprobe::core
