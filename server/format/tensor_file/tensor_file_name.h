#pragma once

#include <span>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "msprobe/v1/record.pb.h"

namespace msprobe::server {

// The name of a tensor's file without suffix. `path` leads from Record.fields to the leaf; list indices are decimal:
//   ("Functional.linear.0.forward", {"input_args", "1"})     Functional.linear.0.forward.input.1
//   ("Custom.f.3.forward", {"input_kwargs", "nt", "a"})      Custom.f.3.forward.kwargs.nt.a
//   ("Module.x.Linear.forward.0", {"parameters", "weight"})  Module.x.Linear.forward.0.parameters.weight
//   ("Module.x.Linear.parameters_grad.0", {"weight", "0"})   Module.x.Linear.parameters_grad.0.weight
//   ("z.0.debug", {"debug", "b", "0"})                       z.0.debug.b.0
// '/', '\' and control characters become '_'. A name of more than 240 bytes is cut, because a file system takes 255
// with the suffix; it ends in '.' and 16 hex digits, the XXH3-64 of the whole name.
std::string TensorFileName(std::string_view full_name, std::span<const std::string> path);

// Visits the tensors of a record in depth-first order. Stops at the first status that is not OK and returns it.
absl::Status ForEachTensor(
    const v1::Record& record,
    absl::FunctionRef<absl::Status(std::span<const std::string> path, const v1::TensorLeaf& leaf)> visit);

}  // namespace msprobe::server
