// Converts one tensor for the tests against torch and numpy:
//   pt_file_tool read FILE.(pt|npy) OUT.raw       prints "dtype device requires_grad scale zero_point dims..."
//   pt_file_tool write FILE.(pt|npy) IN.raw DTYPE DEVICE SCALE ZERO_POINT DIMS...
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "server/format/dtype_name.h"
#include "server/format/tensor_file/byte_source.h"
#include "server/format/tensor_file/npy_file.h"
#include "server/format/tensor_file/pt_file.h"

namespace msprobe::server {
namespace {

template <typename File>
absl::Status Dump(File& file, bool requires_grad, const std::string& out_path) {
  const TensorDescription& description = file.description();
  std::printf("%s %s %d %.17g %lld", std::string(TorchDTypeName(description.dtype)).c_str(), description.device.c_str(),
              requires_grad, description.scale, static_cast<long long>(description.zero_point));
  for (int64_t dim : description.shape) std::printf(" %lld", static_cast<long long>(dim));
  std::printf("\n");
  std::ofstream out(out_path, std::ios::binary);
  return file.Read([&](std::string_view chunk) {
    out.write(chunk.data(), static_cast<std::streamsize>(chunk.size()));
    return absl::OkStatus();
  });
}

absl::Status ReadTool(const std::string& path, const std::string& out_path) {
  absl::StatusOr<std::unique_ptr<FileBytes>> bytes = FileBytes::Open(path);
  if (!bytes.ok()) return bytes.status();
  if (absl::EndsWith(path, ".npy")) {
    absl::StatusOr<NpyFile> file = NpyFile::Open(**bytes);
    return file.ok() ? Dump(*file, false, out_path) : file.status();
  }
  absl::StatusOr<PtFile> file = PtFile::Open(**bytes);
  return file.ok() ? Dump(*file, file->requires_grad(), out_path) : file.status();
}

absl::Status WriteTool(const std::vector<std::string>& arguments) {
  TensorDescription description;
  description.dtype = DTypeOfName(arguments[2]);
  description.device = arguments[3];
  description.scale = std::stod(arguments[4]);
  description.zero_point = std::stoll(arguments[5]);
  for (size_t i = 6; i < arguments.size(); ++i) description.shape.push_back(std::stoll(arguments[i]));
  std::ofstream out(arguments[0], std::ios::binary);
  ByteSink sink = [&](std::string_view bytes) {
    out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return absl::OkStatus();
  };
  absl::StatusOr<std::unique_ptr<TensorFileWriter>> writer =
      absl::EndsWith(arguments[0], ".npy") ? NewNpyFileWriter(description, std::move(sink))
                                           : NewPtFileWriter("tool", description, std::move(sink));
  if (!writer.ok()) return writer.status();
  std::ifstream in(arguments[1], std::ios::binary);
  std::vector<char> chunk(65537);  // odd: elements are split over chunks
  while (in.read(chunk.data(), static_cast<std::streamsize>(chunk.size())), in.gcount() > 0) {
    absl::Status status = (*writer)->Append({chunk.data(), static_cast<size_t>(in.gcount())});
    if (!status.ok()) return status;
  }
  return (*writer)->Finish();
}

}  // namespace
}  // namespace msprobe::server

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  absl::Status status = absl::InvalidArgumentError(
      "usage: pt_file_tool read FILE OUT | write FILE IN DTYPE DEVICE SCALE ZERO_POINT DIMS...");
  if (arguments.size() == 3 && arguments[0] == "read") status = msprobe::server::ReadTool(arguments[1], arguments[2]);
  if (arguments.size() >= 7 && arguments[0] == "write") {
    status = msprobe::server::WriteTool({arguments.begin() + 1, arguments.end()});
  }
  if (!status.ok()) std::cerr << status << "\n";
  return status.ok() ? 0 : 1;
}
