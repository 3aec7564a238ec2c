#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

// What libFuzzer calls, and the standalone runner where there is no libFuzzer.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace msprobe::fuzz {

inline std::string_view Text(const uint8_t* data, size_t size) { return {reinterpret_cast<const char*>(data), size}; }

}  // namespace msprobe::fuzz
