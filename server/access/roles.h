#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace msprobe::server {

// What a bearer of a token may do. Each stands for itself; kAdmin includes the others.
enum class Role : uint8_t {
  kWrite,    // stream records in, import
  kRead,     // every question, and export
  kControl,  // change what is captured and what is kept for how long
  kAdmin,    // delete, drain, back up, restore
};

std::string_view RoleName(Role role);
std::optional<Role> RoleOfName(std::string_view name);

// What a method asks of its caller.
struct MethodRole {
  std::string_view method;   // "/msprobe.v1.Query/ListRuns"; a trailing "*" stands for all that begin so
  std::optional<Role> role;  // none: everybody
};

// Every method of every service that this server has. roles_test holds it against proto/msprobe/v1.
std::span<const MethodRole> MethodRoles();

// The row of a method; null: there is none, and nobody may call it.
const MethodRole* FindMethodRole(std::string_view method);

}  // namespace msprobe::server
