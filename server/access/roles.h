#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace msprobe::server {

// The rights of the bearer of a token. No role includes another, except that kAdmin includes all.
enum class Role : uint8_t {
  kWrite,    // stream records in, import
  kRead,     // ask every question, export
  kControl,  // change what is captured, and what is kept and for how long
  kWork,     // lease items of jobs, and give their results
  kAdmin,    // delete, drain, back up, restore
};

std::string_view RoleName(Role role);
std::optional<Role> RoleOfName(std::string_view name);

// The role that a caller of a method needs.
struct MethodRole {
  std::string_view method;   // "/msprobe.v1.Query/ListRuns"; a trailing "*" matches any end
  std::optional<Role> role;  // nullopt: everybody may call it
};

// Every method of every service of this server. roles_test compares the table with proto/msprobe/v1.
std::span<const MethodRole> MethodRoles();

// The row of a method. Null: the table does not have the method, and nobody may call it.
const MethodRole* FindMethodRole(std::string_view method);

}  // namespace msprobe::server
