#pragma once

#include <cstddef>
#include <cstdint>

namespace msprobe::server {

// How many bits of two stretches of bytes differ. Any thread.
uint64_t CountDifferentBits(const void* one, const void* other, size_t bytes);

// The same without the vector instructions of this machine, for tests.
uint64_t CountDifferentBitsPortably(const void* one, const void* other, size_t bytes);

}  // namespace msprobe::server
