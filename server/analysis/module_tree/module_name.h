#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "server/analysis/table/step_table.h"

namespace msprobe::server {

// What the names of records say: parts, module, layer, operation. No other file takes a name apart to learn its module
// or layer. Views borrow from the entry or the name.
//
// A record is named KIND.MODULE.CLASS.DIRECTION.COUNT ("Module.model.norm.Qwen2RMSNorm.forward.0"), or
// KIND.OPERATION.COUNT.DIRECTION ("Functional.linear.12.backward").

// The parts of a name between its dots.
std::vector<std::string_view> PartsOfName(std::string_view name);

// Whether a part is a number: a layer's, a count of calls, an argument's place.
bool IsNumberPart(std::string_view part);

// Whether records with this first part are modules: PyTorch's Module, MindSpore's Cell.
bool IsModuleKind(std::string_view kind);

// "Functional.linear" of "Functional.linear.0.forward.input.0". A name of fewer parts is given back as it is.
std::string_view ApiOf(std::string_view name);

// "linear" of "Functional.linear.0.forward.input.0". Empty: the name has one part.
std::string_view OperationOf(std::string_view name);

// A name without its last parts: "model.norm" for "model.norm.Norm.forward.0" and 3. Empty: it has no other parts.
std::string_view WithoutLastParts(std::string_view name, int parts);

// The module a record belongs to: "model.norm" for "Module.model.norm.Qwen2RMSNorm.forward.0", and for every record
// whose parent has that name. Empty: there is none.
std::string_view ModuleOf(const Entry& entry);

// Whether a module is `around`, or lies inside it.
bool IsWithin(std::string_view module, std::string_view around);

// "model.layers.0" of "model.layers.0.mlp". Empty: the module lies in no numbered layer.
std::string_view LayerOf(std::string_view module);

// The layer of a record: "model.layers.3". Outside of numbered layers, its module ("lm_head"); outside of modules, its
// operation without the count ("Functional.linear").
std::string LayerNameOf(const Entry& entry);

// The first four names of a module, numbers as *: "model.layers.*.self_attn" of "model.layers.3.self_attn.q_proj".
// "none" of no module.
std::string ModuleGroup(std::string_view module);

}  // namespace msprobe::server
