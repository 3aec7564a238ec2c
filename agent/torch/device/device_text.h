#pragma once

#include <c10/core/Device.h>

#include <string>

namespace msprobe::capture {

// As torch writes it: "cuda", of a type alone, and "cuda:1". Threads: any.
std::string DeviceText(c10::DeviceType type);
std::string DeviceText(const c10::Device& device);

}  // namespace msprobe::capture
