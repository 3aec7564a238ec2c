#include "agent/torch/device/device_text.h"

#include "agent/core/str_cat.h"
#include "agent/torch/strings/torch_strings.h"

namespace msprobe::capture {

std::string DeviceText(c10::DeviceType type) {
  char name[64];
  return std::string(name, WriteDeviceType(type, name, sizeof(name)));
}

std::string DeviceText(const c10::Device& device) {
  if (!device.has_index()) return DeviceText(device.type());
  return core::Cat(DeviceText(device.type()), ":", static_cast<int>(device.index()));
}

}  // namespace msprobe::capture
