#pragma once

#include <optional>
#include <string_view>

namespace msprobe::server {

// A file of server/web/assets, compiled into this binary. The web page serves no other files.
struct WebAsset {
  std::string_view type;
  std::string_view content;
};

// path: "/app.js"; "/" for index.html. Nothing: there is no such file.
std::optional<WebAsset> FindAsset(std::string_view path);

}  // namespace msprobe::server
