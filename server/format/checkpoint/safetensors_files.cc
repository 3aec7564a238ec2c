#include <rapidjson/document.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "server/format/cat.h"
#include "server/format/checkpoint/checkpoint.h"
#include "server/format/checkpoint/safetensors_dtype.h"
#include "server/format/tensor_file/byte_source.h"
#include "server/format/tensor_file/tensor_file.h"

// https://huggingface.co/docs/safetensors: 8 bytes with the header's length, the header in JSON, the elements.

namespace msprobe::server {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSuffix = ".safetensors";
constexpr std::string_view kIndexSuffix = ".safetensors.index.json";
constexpr uint64_t kMaxHeader = 100'000'000;  // the format's own limit

absl::Status Damaged(const std::string& path, std::string_view why) {
  return absl::InvalidArgumentError(Cat(path, " is no safetensors file: ", why));
}

absl::StatusOr<Checkpoint> OpenOne(const std::string& path) {
  auto file = FileBytes::Open(path);
  if (!file.ok()) return file.status();
  const uint64_t size = (*file)->size();
  char prefix[8];
  if (size < sizeof(prefix)) return Damaged(path, Cat("it has ", size, " bytes"));
  if (absl::Status status = (*file)->ReadAt(0, prefix); !status.ok()) return status;
  uint64_t header_size;
  std::memcpy(&header_size, prefix, sizeof(header_size));
  if (header_size > kMaxHeader || header_size > size - sizeof(prefix)) {
    return Damaged(path, Cat("its header should have ", header_size, " bytes; the file has ", size,
                             ", a header at most ", kMaxHeader));
  }
  std::string header(header_size, '\0');
  if (absl::Status status = (*file)->ReadAt(sizeof(prefix), {header.data(), header.size()}); !status.ok())
    return status;
  const uint64_t base = sizeof(prefix) + header_size;

  rapidjson::Document document;
  document.Parse<rapidjson::kParseIterativeFlag>(header.data(), header.size());
  if (document.HasParseError() || !document.IsObject()) return Damaged(path, "its header is no JSON object");
  Checkpoint checkpoint;
  std::vector<std::pair<uint64_t, uint64_t>> ranges;
  for (const auto& member : document.GetObject()) {
    std::string name(member.name.GetString(), member.name.GetStringLength());
    if (name == "__metadata__") continue;
    const auto bad = [&](std::string_view why) { return Damaged(path, Cat("tensor ", name, ": ", why)); };
    if (!member.value.IsObject()) return bad("its entry is no object");
    const auto& entry = member.value;
    const auto dtype = entry.FindMember("dtype"), shape = entry.FindMember("shape"),
               offsets = entry.FindMember("data_offsets");
    if (dtype == entry.MemberEnd() || shape == entry.MemberEnd() || offsets == entry.MemberEnd() ||
        !dtype->value.IsString() || !shape->value.IsArray() || !offsets->value.IsArray() ||
        offsets->value.Size() != 2 || !offsets->value[0].IsUint64() || !offsets->value[1].IsUint64()) {
      return bad("its entry should have dtype, shape and data_offsets");
    }
    TensorDescription description;
    description.dtype = DTypeOfSafetensors(dtype->value.GetString());
    if (description.dtype == v1::DTYPE_UNSPECIFIED) {
      checkpoint.notes.insert(Cat(name, " has the dtype ", dtype->value.GetString(), ", which is not read"));
      continue;
    }
    for (const auto& dimension : shape->value.GetArray()) {
      if (!dimension.IsInt64()) return bad("its shape is not of integers");
      description.shape.push_back(dimension.GetInt64());
    }
    auto content = ContentSize(description);
    if (!content.ok()) return bad(StdView(content.status().message()));
    const uint64_t begin = offsets->value[0].GetUint64(), end = offsets->value[1].GetUint64();
    if (begin > end || end > size - base || end - begin != *content) {
      return bad(Cat("data_offsets [", begin, ", ", end, "] do not hold ", *content, " bytes within ", size - base));
    }
    if (begin != end) ranges.emplace_back(begin, end);
    if (!checkpoint.tensors
             .emplace(name, PlainTensor(description.dtype, std::move(description.shape), path, base + begin))
             .second) {
      return bad("it is there twice");
    }
  }
  std::sort(ranges.begin(), ranges.end());
  for (size_t i = 1; i < ranges.size(); ++i) {
    if (ranges[i].first < ranges[i - 1].second) {
      return Damaged(path, Cat("two tensors overlap at byte ", ranges[i].first, " of its elements"));
    }
  }
  return checkpoint;
}

// Beside an index, only its files: a directory may also hold the same weights in one file.
absl::StatusOr<std::set<std::string>> FilesOf(const fs::path& directory) {
  std::set<std::string> files;
  for (const std::string& name : NamesIn(directory)) {
    if (name.ends_with(kIndexSuffix)) {
      auto index = FileIn(directory, name);
      if (!index.ok()) return index.status();
      return FilesOfIndex(*index);
    }
    if (name.ends_with(kSuffix)) files.insert(name);
  }
  return files;
}

}  // namespace

bool IsSafetensors(const fs::path& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    if (path.extension() == kSuffix) return true;
    // A link of Hugging Face's cache leads to a file without a suffix: its bytes tell.
    auto file = FileBytes::Open(path.string());
    char start[9];
    return file.ok() && (*file)->size() >= sizeof(start) && (*file)->ReadAt(0, start).ok() && start[8] == '{';
  }
  for (const std::string& name : NamesIn(path)) {
    if (name.ends_with(kSuffix) || name.ends_with(kIndexSuffix)) return true;
  }
  return false;
}

absl::StatusOr<Checkpoint> OpenSafetensors(const fs::path& path, const CheckpointOptions& /*options*/) {
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    auto checkpoint = OpenOne(path.string());
    if (checkpoint.ok()) checkpoint->attention = AttentionOfConfig(path.parent_path());
    return checkpoint;
  }
  auto files = FilesOf(path);
  if (!files.ok()) return files.status();
  Checkpoint checkpoint;
  for (const std::string& name : *files) {
    auto file = FileIn(path, name);
    if (!file.ok()) return file.status();
    auto part = OpenOne(file->string());
    if (!part.ok()) return part.status();
    if (absl::Status status = Merge(*std::move(part), checkpoint); !status.ok()) {
      return absl::InvalidArgumentError(Cat(path.string(), ": ", StdView(status.message())));
    }
  }
  checkpoint.attention = AttentionOfConfig(path);
  return checkpoint;
}

}  // namespace msprobe::server
