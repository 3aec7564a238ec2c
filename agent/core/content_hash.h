#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace msprobe::core {

// XXH3-64, seed 0: the id of a definition.
uint64_t DefinitionHash(std::string_view content);

// XXH3-128 in big-endian canonical form (16 bytes): the name of a payload.
std::string PayloadHash(std::span<const std::byte> content);

}  // namespace msprobe::core
