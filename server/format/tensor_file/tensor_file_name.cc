#include "server/format/tensor_file/tensor_file_name.h"

#include <xxhash.h>

#include <algorithm>
#include <vector>

#include "absl/strings/str_format.h"
#include "server/format/cat.h"

namespace msprobe::server {
namespace {

constexpr size_t kMaxName = 240;

// The part of mindstudio-probe's file names for a field. Other fields keep their names.
std::string_view FieldPart(std::string_view field) {
  if (field == "input_args") return "input";
  if (field == "input_kwargs") return "kwargs";
  return field;
}

bool IsParametersGrad(std::string_view full_name) {
  const size_t dot = full_name.rfind('.');
  return dot != std::string_view::npos && full_name.substr(0, dot).ends_with(".parameters_grad");
}

absl::Status Visit(
    const v1::Value& value, std::vector<std::string>& path,
    absl::FunctionRef<absl::Status(std::span<const std::string> path, const v1::TensorLeaf& leaf)> visit) {
  if (value.has_tensor()) return visit(path, value.tensor());
  if (value.has_list()) {
    for (int i = 0; i < value.list().items_size(); ++i) {
      path.push_back(Cat(i));
      if (absl::Status status = Visit(value.list().items(i), path, visit); !status.ok()) return status;
      path.pop_back();
    }
  }
  if (value.has_dict()) {
    for (const v1::Value::Entry& entry : value.dict().entries()) {
      path.push_back(entry.key());
      if (absl::Status status = Visit(entry.value(), path, visit); !status.ok()) return status;
      path.pop_back();
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::string TensorFileName(std::string_view full_name, std::span<const std::string> path) {
  std::string name(full_name);
  if (full_name.ends_with(".debug")) {
    for (const std::string& part : path.subspan(std::min<size_t>(1, path.size()))) name += Cat(".", part);
  } else if (IsParametersGrad(full_name)) {
    if (!path.empty()) name += Cat(".", path[0]);
    // Each gradient is in a list of its own, whose index is not part of the name.
    for (size_t i = 1; i < path.size(); ++i) {
      if (i > 1 || path[i] != "0") name += Cat(".", path[i]);
    }
  } else {
    for (size_t i = 0; i < path.size(); ++i) name += Cat(".", i == 0 ? FieldPart(path[i]) : std::string_view(path[i]));
  }
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == '/' || c == '\\' || static_cast<unsigned char>(c) < 0x20; },
      '_');
  if (name.size() > kMaxName) {
    const std::string hash = absl::StrFormat(".%016x", XXH3_64bits(name.data(), name.size()));
    size_t cut = kMaxName - hash.size();
    while (cut > 0 && (static_cast<unsigned char>(name[cut]) & 0xC0) == 0x80) --cut;  // not inside a UTF-8 character
    name = name.substr(0, cut) + hash;
  }
  return name;
}

absl::Status ForEachTensor(
    const v1::Record& record,
    absl::FunctionRef<absl::Status(std::span<const std::string> path, const v1::TensorLeaf& leaf)> visit) {
  std::vector<std::string> path;
  return Visit(record.fields(), path, visit);
}

}  // namespace msprobe::server
