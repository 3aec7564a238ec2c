#pragma once

#include <string>
#include <string_view>
#include <type_traits>

#include "absl/strings/str_cat.h"

namespace msprobe::core {

// absl::StrCat that takes std::string_view, which is not absl::string_view where abseil was built as C++14 (Debian).
template <typename... Parts>
std::string Cat(const Parts&... parts) {
  const auto adapt = [](const auto& part) -> decltype(auto) {
    if constexpr (std::is_same_v<std::decay_t<decltype(part)>, std::string_view>) {
      return absl::string_view(part.data(), part.size());
    } else {
      return (part);
    }
  };
  return absl::StrCat(adapt(parts)...);
}

}  // namespace msprobe::core
