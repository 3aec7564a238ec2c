#pragma once

#include <string_view>

namespace msprobe::server {

// A file of server/web/assets, as it lies in this binary. No other path leads to a file.
struct WebAsset {
  std::string_view path;  // "/app.js"; index.html is "/"
  std::string_view type;
  std::string_view content;
};

// Null: there is none.
const WebAsset* FindAsset(std::string_view path);

}  // namespace msprobe::server
