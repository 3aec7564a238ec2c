// For a torch with the std::string of before C++11: what torch's headers call in sources with that of today. Each hands
// the characters on.

#include <c10/core/DeviceType.h>
#include <c10/util/Exception.h>

#include <string>

#include "agent/torch/strings/layouts.h"
#include "agent/torch/strings/torch_strings.h"

namespace c10 {
namespace detail {

void torchCheckFail(const char* function, const char* file, uint32_t line, const std::string& message) {
  torchCheckFail(function, file, line, message.c_str());
}

void torchInternalAssertFail(const char* function, const char* file, uint32_t line, const char* condition,
                             const std::string& message) {
  torchInternalAssertFail(function, file, line, condition, message.c_str());
}

}  // namespace detail

// An error of this layout must not reach torch, so it throws one of torch's own.
Error::Error(SourceLocation at, std::string message) : caller_(nullptr) {
  detail::torchCheckFail(at.function, at.file, at.line, message.c_str());
}

// In small letters, whatever was asked for: errors alone name a type.
std::string DeviceTypeName(DeviceType type, bool) {
  char name[64];
  return std::string(name, msprobe::capture::WriteDeviceType(type, name, sizeof(name)));
}

}  // namespace c10

namespace msprobe::capture {

void RequireLayouts() { Layouts<TorchSizes>::AreAlike(); }

}  // namespace msprobe::capture
