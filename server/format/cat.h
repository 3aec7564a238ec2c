#pragma once

#include <string_view>

#include "absl/strings/string_view.h"
#include "agent/core/str_cat.h"

namespace msprobe::server {

// Debian's Abseil has a string_view of its own, to which std::string_view does not convert.
inline absl::string_view AbslView(std::string_view text) { return absl::string_view(text.data(), text.size()); }
inline std::string_view StdView(absl::string_view text) { return std::string_view(text.data(), text.size()); }

// absl::StrCat that also takes std::string_view.
using core::Cat;

}  // namespace msprobe::server
