#pragma once

#include <string>
#include <string_view>

namespace msprobe::server {

// The script of an asset with all modules that it imports, as one classic script: a file that is opened from a disk can
// import none. `instead` is taken wherever `path` is imported.
//
// Each module becomes a function that gives its exports. Known are the forms that the assets use, each on a line of its
// own: import { a, b } from "/x.js"; and export before function, async function, class or const.
std::string BundledScript(std::string_view entry, std::string_view path, std::string_view instead);

}  // namespace msprobe::server
