// A file of tensors of any form, elements and all, in its own layout and in another. The first byte says which other.

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "server/format/tensors/file_tensor.h"
#include "tests/fuzz/fuzz_target.h"

namespace msprobe::server {
namespace {

constexpr const char* kLayouts[] = {"ND", "NCHW", "NHWC", "FRACTAL_NZ", "NC1HWC0", "FRACTAL_Z"};

// A file that goes with the process.
const std::string& Path() {
  static const std::string* const path = [] {
    auto* made = new std::string("/dev/shm/msprobe-fuzz-" + std::to_string(getpid()));
    std::atexit([] { unlink(Path().c_str()); });
    return made;
  }();
  return *path;
}

void Read(const FileTensor& tensor) {
  // A few bytes can expand to a shape of any size: whoever reads elements stops when it has enough.
  size_t left = size_t{8} << 20;
  tensor
      .read([&](std::string_view chunk) {
        if (chunk.size() > left) return absl::ResourceExhaustedError("enough");
        left -= chunk.size();
        return absl::OkStatus();
      })
      .IgnoreError();
}

}  // namespace
}  // namespace msprobe::server

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace msprobe::server;
  if (size == 0) return 0;
  const int file = open(Path().c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
  if (file < 0 || write(file, data + 1, size - 1) != static_cast<ssize_t>(size - 1)) std::abort();
  close(file);
  auto found = OpenTensorFile(Path());
  if (!found.ok()) return 0;
  const char* const layout = kLayouts[data[0] % std::size(kLayouts)];
  for (const FileTensor& tensor : found->tensors) {
    Read(tensor);
    auto other = Rearranged(tensor, {.from = tensor.layout, .to = layout, .stored_shape = {}, .sizes = {}});
    if (other.ok()) Read(*other);
  }
  return 0;
}
