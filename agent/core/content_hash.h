#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace msprobe::core {

// The id of a definition: XXH3-64 with seed 0.
uint64_t DefinitionHash(std::string_view content);

// The name of a payload: XXH3-128 in big-endian canonical form.
using PayloadDigest = std::array<char, 16>;
PayloadDigest PayloadHash(std::span<const std::byte> content);

}  // namespace msprobe::core
