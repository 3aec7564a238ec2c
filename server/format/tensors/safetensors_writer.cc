#include "server/format/tensors/safetensors_writer.h"

#include <cstring>

#include "server/format/cat.h"
#include "server/format/checkpoint/safetensors_dtype.h"
#include "server/format/dtype_name.h"
#include "server/format/json/json_writer.h"

namespace msprobe::server {

absl::Status WriteSafetensors(const std::vector<FileTensor>& tensors, ByteSink& sink) {
  JsonWriter writer(true);
  writer.StartObject();
  uint64_t begin = 0;
  for (const FileTensor& tensor : tensors) {
    const std::string_view code = SafetensorsCode(tensor.description.dtype);
    if (code.empty()) {
      return absl::InvalidArgumentError(Cat("safetensors has no code for ", TorchDTypeName(tensor.description.dtype)));
    }
    auto size = ContentSize(tensor.description);
    if (!size.ok()) return size.status();
    writer.Name(tensor.name.empty() ? "tensor" : tensor.name);
    writer.StartObject();
    writer.Name("dtype");
    writer.Text(code);
    writer.Name("shape");
    writer.StartArray();
    for (int64_t dimension : tensor.description.shape) writer.Int64(dimension);
    writer.EndArray();
    writer.Name("data_offsets");
    writer.StartArray();
    writer.Uint64(begin);
    writer.Uint64(begin += *size);
    writer.EndArray();
    writer.EndObject();
  }
  writer.EndObject();
  std::string header = writer.Take();
  header.append((8 - header.size() % 8) % 8, ' ');  // elements are aligned, as safetensors itself writes
  const uint64_t length = header.size();
  char prefix[sizeof(length)];
  std::memcpy(prefix, &length, sizeof(length));
  if (absl::Status status = sink({prefix, sizeof(prefix)}); !status.ok()) return status;
  if (absl::Status status = sink(header); !status.ok()) return status;
  for (const FileTensor& tensor : tensors) {
    if (absl::Status status = tensor.read([&](std::string_view chunk) { return sink(chunk); }); !status.ok()) {
      return status;
    }
  }
  return absl::OkStatus();
}

}  // namespace msprobe::server
