#pragma once

#include <string_view>

namespace msprobe::server {

// A file of server/web/assets, compiled into this binary. The web page serves no other files.
struct WebAsset {
  std::string_view path;  // "/app.js"; "/" for index.html
  std::string_view type;
  std::string_view content;
};

// Null: there is no such file.
const WebAsset* FindAsset(std::string_view path);

}  // namespace msprobe::server
