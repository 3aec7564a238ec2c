#pragma once

#include <c10/core/Device.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/function.h>

#include <cstddef>

// What torch gives and takes as std::string.
//
// torch 2.6 for x86-64 was built with the std::string of before C++11. gRPC, protobuf and Abseil have that of today. A
// source can hold one of the two. So this room is compiled with torch's, and all others with that of today. Invariants:
// 1. No std::string crosses a header of this room, nor a type that holds one. Of our headers this room includes its own
//    alone.
// 2. Nothing outside of this room calls what torch has of std::string: with such a torch it would not link, or read a
//    string of another layout. Classes of torch that both see are laid out alike (layouts.h).
// Threads: any.

namespace msprobe::capture {

// The name of a type of devices, in small letters: at most `size` characters, without an end. Gives their number.
size_t WriteDeviceType(c10::DeviceType type, char* to, size_t size);

// "cpu", "cuda:1". Throws what torch throws for a text that names no device.
c10::Device ParseDevice(const char* text);

bool IsNamed(const torch::autograd::Node& node, const char* name);

// What an error says, without a backtrace. Valid while the error is.
const char* MessageOf(const c10::Error& error);

}  // namespace msprobe::capture
