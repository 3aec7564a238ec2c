#include "server/format/checkpoint/checkpoint.h"

#include <rapidjson/document.h>

#include <algorithm>
#include <array>
#include <system_error>
#include <utility>

#include "server/format/cat.h"
#include "server/format/json/json_cursor.h"
#include "server/format/tensor_file/byte_source.h"

namespace msprobe::server {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxIndex = 64 << 20;

constexpr std::array<CheckpointLayout, 4> kLayouts = {{
    {"megatron", "a directory with latest_checkpointed_iteration.txt or mp_rank_*", IsMegatron, OpenMegatron},
    {"dcp", "a directory with .metadata and *.distcp files", IsDistributed, OpenDistributed},
    {"safetensors", "a .safetensors file, or a directory with such", IsSafetensors, OpenSafetensors},
    {"torch", "a .pt, .pth or .bin file, or a directory with such", IsTorchFiles, OpenTorchFiles},
}};

int64_t Number(const rapidjson::Value& object, const char* key, int64_t otherwise) {
  const auto found = object.FindMember(key);
  return found != object.MemberEnd() && found->value.IsInt64() ? found->value.GetInt64() : otherwise;
}

}  // namespace

std::span<const CheckpointLayout> CheckpointLayouts() { return kLayouts; }

absl::StatusOr<Checkpoint> OpenCheckpoint(const std::string& path, const CheckpointOptions& options) {
  std::error_code error;
  const fs::path resolved = fs::canonical(path, error);
  if (error) return absl::NotFoundError(Cat(path, ": ", error.message()));
  for (const CheckpointLayout& layout : kLayouts) {
    if (!layout.is(resolved)) continue;
    absl::StatusOr<Checkpoint> opened = layout.open(resolved, options);
    if (!opened.ok()) return opened.status();
    if (opened->layout.empty()) opened->layout = layout.name;
    for (const std::string& note : opened->notes) {
      if (!IsUtf8(note)) return absl::InvalidArgumentError(Cat(path, ": a name in it is no UTF-8"));
    }
    for (const auto& [name, tensor] : opened->tensors) {
      if (!IsUtf8(name)) return absl::InvalidArgumentError(Cat(path, ": the name of a tensor is no UTF-8"));
      if (name.size() > kMaxName) {
        return absl::InvalidArgumentError(
            Cat(path, ": the name of a tensor has ", name.size(), " bytes; at most ", kMaxName));
      }
      if (absl::Status status = CheckTensor(tensor); !status.ok()) {
        return absl::InvalidArgumentError(Cat(path, ": tensor ", name, ": ", StdView(status.message())));
      }
    }
    return opened;
  }
  std::string known;
  for (const CheckpointLayout& layout : kLayouts)
    known += Cat(known.empty() ? "" : "; ", layout.name, ": ", layout.about);
  return absl::InvalidArgumentError(Cat(path, " is no checkpoint that is known here (", known, ")"));
}

absl::StatusOr<fs::path> FileIn(const fs::path& directory, std::string_view name) {
  if (name.empty() || name == "." || name == ".." || name.find('/') != std::string_view::npos ||
      name.find('\0') != std::string_view::npos) {
    return absl::InvalidArgumentError(
        Cat(directory.string(), " names the file \"", name, "\"; it should be a plain name in that directory"));
  }
  std::error_code error;
  fs::path resolved = fs::canonical(directory / std::string(name), error);
  if (error) return absl::NotFoundError(Cat((directory / std::string(name)).string(), ": ", error.message()));
  return resolved;
}

std::vector<std::string> NamesIn(const fs::path& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (const fs::directory_entry& child : fs::directory_iterator(directory, error)) {
    names.push_back(child.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

absl::StatusOr<std::string> WholeFile(const fs::path& path, uint64_t limit) {
  auto file = FileBytes::Open(path.string());
  if (!file.ok()) return file.status();
  if ((*file)->size() > limit) {
    return absl::InvalidArgumentError(Cat(path.string(), " has ", (*file)->size(), " bytes; at most ", limit));
  }
  std::string content((*file)->size(), '\0');
  if (absl::Status status = (*file)->ReadAt(0, {content.data(), content.size()}); !status.ok()) return status;
  return content;
}

absl::StatusOr<std::set<std::string>> FilesOfIndex(const fs::path& index) {
  auto content = WholeFile(index, kMaxIndex);
  if (!content.ok()) return content.status();
  rapidjson::Document document;
  document.Parse<rapidjson::kParseIterativeFlag>(content->data(), content->size());
  const bool object = !document.HasParseError() && document.IsObject();
  const auto map = object ? document.FindMember("weight_map") : rapidjson::Value::MemberIterator();
  if (!object || map == document.MemberEnd() || !map->value.IsObject()) {
    return absl::InvalidArgumentError(Cat(index.string(), " is no index: {\"weight_map\": {tensor: file}}"));
  }
  std::set<std::string> files;
  for (const auto& member : map->value.GetObject()) {
    if (!member.value.IsString()) return absl::InvalidArgumentError(Cat(index.string(), ": a file's name is no text"));
    files.emplace(member.value.GetString(), member.value.GetStringLength());
  }
  return files;
}

absl::Status Merge(Checkpoint part, Checkpoint& into) {
  for (auto& [name, tensor] : part.tensors) {
    if (!into.tensors.try_emplace(name, std::move(tensor)).second) {
      return absl::InvalidArgumentError(Cat("two files of the checkpoint hold the tensor ", name));
    }
  }
  into.notes.merge(part.notes);
  return absl::OkStatus();
}

std::optional<AttentionShape> AttentionOfConfig(const fs::path& directory) {
  auto path = FileIn(directory, "config.json");
  if (!path.ok()) return std::nullopt;
  auto content = WholeFile(*path, 1 << 20);
  if (!content.ok()) return std::nullopt;
  rapidjson::Document document;
  document.Parse<rapidjson::kParseIterativeFlag>(content->data(), content->size());
  if (document.HasParseError() || !document.IsObject()) return std::nullopt;
  AttentionShape shape;
  shape.heads = Number(document, "num_attention_heads", 0);
  shape.groups = Number(document, "num_key_value_heads", shape.heads);
  if (shape.heads <= 0 || shape.groups <= 0) return std::nullopt;
  shape.head_size = Number(document, "head_dim", Number(document, "hidden_size", 0) / shape.heads);
  shape.gated = true;
  if (!shape.is_sensible()) return std::nullopt;
  return shape;
}

}  // namespace msprobe::server
