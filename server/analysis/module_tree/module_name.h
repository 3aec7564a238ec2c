#pragma once

#include <string>
#include <string_view>

#include "server/analysis/table/step_table.h"

namespace msprobe::server {

// What names of records say of the modules around them. Views borrow from the entry or the name.

// The module a record belongs to: of "Module.model.norm.Qwen2RMSNorm.forward.0" it is "model.norm"; of other records
// that of the parent. Empty: there is none.
std::string_view ModuleOf(const Entry& entry);

// Whether a module is `around` or inside of it.
bool IsWithin(std::string_view module, std::string_view around);

// "model.layers.0" of "model.layers.0.mlp"; empty outside of numbered layers.
std::string_view LayerOf(std::string_view module);

// "model.layers.3" of a record in that layer; outside of numbered layers its module ("lm_head"), else the operation
// without its count ("Functional.linear").
std::string LayerNameOf(const Entry& entry);

// "model.layers.*.self_attn" of "model.layers.3.self_attn.q_proj": its first four names, numbers as *. "none" of no
// module.
std::string ModuleGroup(std::string_view module);

}  // namespace msprobe::server
