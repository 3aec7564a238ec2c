// A .npy file of an import, elements and all.

#include "server/format/tensor_file/npy_file.h"

#include "server/format/tensor_file/byte_source.h"
#include "tests/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  msprobe::server::MemoryBytes source(msprobe::fuzz::Text(data, size));
  auto file = msprobe::server::NpyFile::Open(source);
  if (!file.ok()) return 0;
  // A few bytes can expand to a shape of any size: whoever reads elements stops when it has enough.
  size_t left = size_t{8} << 20;
  file->Read([&](std::string_view chunk) {
        if (chunk.size() > left) return absl::ResourceExhaustedError("enough");
        left -= chunk.size();
        return absl::OkStatus();
      })
      .IgnoreError();
  return 0;
}
