#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace msprobe::core {

// XXH3-64, seed 0: the id of a definition.
uint64_t DefinitionHash(std::string_view content);

// XXH3-128 in big-endian canonical form: the name of a payload.
using PayloadDigest = std::array<char, 16>;
PayloadDigest PayloadHash(std::span<const std::byte> content);

}  // namespace msprobe::core
