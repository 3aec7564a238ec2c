#include "agent/torch/strings/torch_strings.h"

#include <string>

#include "agent/torch/strings/layouts.h"

namespace msprobe::capture {

size_t WriteDeviceType(c10::DeviceType type, char* to, size_t size) {
  return c10::DeviceTypeName(type, true).copy(to, size);
}

c10::Device ParseDevice(const char* text) { return c10::Device(std::string(text)); }

bool IsNamed(const torch::autograd::Node& node, const char* name) { return node.name() == name; }

const char* MessageOf(const c10::Error& error) { return error.what_without_backtrace(); }

template <>
void Layouts<TorchSizes>::AreAlike() {}

}  // namespace msprobe::capture
