#pragma once

#include <optional>
#include <string>

namespace msprobe::core {

// What a working tree of git has checked out.
struct GitCheckout {
  std::string commit;  // 40 or 64 hexadecimal digits
  std::string branch;  // "main", as UTF-8, at most 256 bytes; empty: HEAD is detached, or the name holds a secret
};

// The checkout that a path lies in, also in a linked worktree or a submodule. A few small files are read, and no
// program is run, so changes that are not committed are not seen. Nothing: it lies in none, or one without a commit, or
// refs lie in a reftable. path: absolute; it need not exist.
std::optional<GitCheckout> CheckoutAround(const std::string& path);

}  // namespace msprobe::core
