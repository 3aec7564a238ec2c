#pragma once

#include <string>
#include <string_view>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace msprobe::server {

// Debian's abseil has a string_view of its own, which std::string_view does not become by itself.
inline absl::string_view AbslView(std::string_view text) { return absl::string_view(text.data(), text.size()); }
inline std::string_view StdView(absl::string_view text) { return std::string_view(text.data(), text.size()); }

namespace internal {
template <typename T>
decltype(auto) CatPart(const T& part) {
  if constexpr (std::is_same_v<T, std::string_view>) {
    return AbslView(part);
  } else {
    return (part);
  }
}
}  // namespace internal

// absl::StrCat that takes std::string_view too.
template <typename... Parts>
std::string Cat(const Parts&... parts) {
  return absl::StrCat(internal::CatPart(parts)...);
}

}  // namespace msprobe::server
