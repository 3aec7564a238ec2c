#include "server/importer/step_importer.h"

#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "server/format/cat.h"
#include "server/format/dtype_name.h"
#include "server/format/tensor_file/npy_file.h"
#include "server/format/tensor_file/pt_file.h"
#include "server/importer/json_file.h"

namespace msprobe::server {
namespace {

constexpr size_t kMaxWarnings = 50;

struct HashState {
  HashState() : state(XXH3_createState()) { XXH3_128bits_reset(state); }
  ~HashState() { XXH3_freeState(state); }
  HashState(const HashState&) = delete;
  HashState& operator=(const HashState&) = delete;
  XXH3_state_t* const state;
};

// Drops the low halves of float32 elements, which may be split over chunks.
class BFloat16Narrower {
 public:
  explicit BFloat16Narrower(ContentVisitor visit) : visit_(visit) {}

  absl::Status operator()(std::string_view chunk) {
    std::string out;
    out.reserve(chunk.size() / 2 + 2);
    for (char c : chunk) {
      if (position_++ % 4 >= 2) out += c;
    }
    return visit_(out);
  }

 private:
  ContentVisitor visit_;
  uint64_t position_ = 0;
};

template <typename File>
absl::Status ReadContent(File& file, bool narrow, ContentVisitor visit) {
  if (!narrow) return file.Read(visit);
  BFloat16Narrower narrower(visit);
  return file.Read([&](std::string_view chunk) { return narrower(chunk); });
}

// A file of dump_tensor_data, either kind.
template <typename Use>
absl::Status WithTensorFile(FileSource& files, const std::string& path, Use use) {
  absl::StatusOr<std::unique_ptr<ByteSource>> bytes = files.Open(path);
  if (!bytes.ok()) return bytes.status();
  absl::Status status;
  if (path.ends_with(".npy")) {
    absl::StatusOr<NpyFile> file = NpyFile::Open(**bytes);
    status = file.ok() ? use(*file) : file.status();
  } else {
    absl::StatusOr<PtFile> file = PtFile::Open(**bytes);
    status = file.ok() ? use(*file) : file.status();
  }
  if (status.ok()) return status;
  return absl::Status(status.code(), Cat(path, ": ", StdView(status.message())));
}

class StepImport {
 public:
  StepImport(FileSource& files, uint32_t step, const StepFiles& step_files, BatchBuilder* builder,
             PayloadFiles& payloads, std::vector<std::string>& warnings)
      : files_(files),
        step_(step),
        step_files_(step_files),
        builder_(builder),
        payloads_(payloads),
        warnings_(warnings),
        debug_(step_files.dump.empty()) {}

  absl::StatusOr<ImportedStep> Run() {
    const std::string& path = debug_ ? step_files_.debug : step_files_.dump;
    if (!debug_ && !step_files_.debug.empty()) Warn(Cat(step_files_.debug, ": left out beside dump.json"));
    absl::StatusOr<rapidjson::Document> dump = ReadJsonFile(files_, path);
    if (!dump.ok()) return dump.status();
    if (absl::Status status = ReadHeader(path, *dump); !status.ok()) return status;
    if (absl::Status status = ReadConstruct(); !status.ok()) return status;
    if (absl::Status status = ReadStack(); !status.ok()) return status;
    if (absl::Status status = ReadData(path, (*dump)["data"]); !status.ok()) return status;
    return std::move(result_);
  }

 private:
  void Warn(std::string warning) {
    // Only once: the checking pass and the importing pass say the same.
    if (builder_ != nullptr && warnings_.size() < kMaxWarnings) warnings_.push_back(std::move(warning));
  }

  absl::Status ReadHeader(const std::string& path, const rapidjson::Document& dump) {
    v1::CaptureSettings& settings = result_.settings;
    settings.set_framework("pytorch");
    const struct {
      const char* key;
      std::string* to;
    } texts[] = {{"task", settings.mutable_task()},
                 {"level", settings.mutable_level()},
                 {"framework", settings.mutable_framework()}};
    for (const auto& text : texts) {
      auto it = dump.FindMember(text.key);
      if (it == dump.MemberEnd()) continue;
      if (it->value.IsNull()) continue;
      if (!it->value.IsString()) {
        return absl::InvalidArgumentError(Cat(path, ": ", text.key, ": a text is expected, not ", Describe(it->value)));
      }
      *text.to = std::string(TextOf(it->value));
    }
    auto data = dump.FindMember("data");
    if (data == dump.MemberEnd()) return absl::InvalidArgumentError(Cat(path, ": has no data"));
    if (!data->value.IsObject()) {
      return absl::InvalidArgumentError(Cat(path, ": data: an object is expected, not ", Describe(data->value)));
    }
    if (debug_) settings.set_level("debug");
    settings.set_stack_and_construct(!step_files_.stack.empty() || !step_files_.construct.empty());
    return absl::OkStatus();
  }

  absl::Status ReadConstruct() {
    if (step_files_.construct.empty()) return absl::OkStatus();
    const std::string& path = step_files_.construct;
    absl::StatusOr<rapidjson::Document> construct = ReadJsonFile(files_, path);
    if (!construct.ok()) return construct.status();
    for (const auto& member : std::as_const(*construct).GetObject()) {
      std::string name(TextOf(member.name));
      if (name == "megatron_micro_step_number") {
        Warn(Cat(path, ": micro steps are left out"));
        continue;
      }
      // Megatron: [parent, micro step].
      const rapidjson::Value* parent = &member.value;
      if (parent->IsArray() && parent->Size() == 2) parent = &(*parent)[0];
      if (!parent->IsNull() && !parent->IsString()) {
        return absl::InvalidArgumentError(
            Cat(path, ": ", name, ": the name of a parent or null is expected, not ", Describe(member.value)));
      }
      std::string parent_name = parent->IsNull() ? std::string() : std::string(TextOf(*parent));
      foreign_.insert(parent_name);
      construct_order_.push_back(name);
      parents_.emplace(std::move(name), std::move(parent_name));
    }
    return absl::OkStatus();
  }

  absl::Status ReadFrames(const std::string& path, std::string_view key, const rapidjson::Value& lines,
                          uint64_t& stack_id) {
    v1::Stack stack;
    for (const rapidjson::Value& line : lines.GetArray()) {
      if (!line.IsString()) {
        return absl::InvalidArgumentError(Cat(path, ": ", key, ": a frame as text is expected, not ", Describe(line)));
      }
      *stack.add_frames() = ParseFrame(TextOf(line));
    }
    stack_id = builder_ == nullptr || stack.frames_size() == 0 ? 0 : builder_->DefineStack(stack);
    return absl::OkStatus();
  }

  absl::Status ReadStack() {
    if (step_files_.stack.empty()) return absl::OkStatus();
    const std::string& path = step_files_.stack;
    absl::StatusOr<rapidjson::Document> stacks = ReadJsonFile(files_, path);
    if (!stacks.ok()) return stacks.status();
    for (const auto& member : std::as_const(*stacks).GetObject()) {
      const std::string_view key = TextOf(member.name);
      const rapidjson::Value& value = member.value;
      if (!value.IsArray()) {
        return absl::InvalidArgumentError(Cat(path, ": ", key, ": a list is expected, not ", Describe(value)));
      }
      uint64_t stack_id = 0;
      const bool grouped = value.Size() == 2 && value[0].IsArray() && value[1].IsArray();
      // The older form: {operation: [frames]}.
      if (absl::Status status = ReadFrames(path, key, grouped ? value[1] : value, stack_id); !status.ok())
        return status;
      if (!grouped) {
        stacks_[std::string(key)] = stack_id;
        continue;
      }
      for (const rapidjson::Value& name : value[0].GetArray()) {
        if (!name.IsString()) {
          return absl::InvalidArgumentError(Cat(path, ": ", key, ": a name is expected, not ", Describe(name)));
        }
        stacks_[std::string(TextOf(name))] = stack_id;
      }
    }
    return absl::OkStatus();
  }

  absl::Status ReadData(const std::string& path, const rapidjson::Value& data) {
    EntryParser parser(
        path, builder_ == nullptr
                  ? EntryParser::FindPayload()
                  : [this](const std::string& data_name, v1::DType dtype, const std::vector<int64_t>& shape) {
                      return FindPayload(data_name, dtype, shape);
                    });
    // Names that stand in construct.json alone keep their place after the API before them.
    absl::flat_hash_map<std::string_view, size_t> place;
    size_t next = 0;
    for (const auto& member : data.GetObject()) place.emplace(TextOf(member.name), next++);
    std::vector<std::vector<const std::string*>> only_constructed(next + 1);
    size_t anchor = 0;
    for (const std::string& name : construct_order_) {
      auto it = place.find(name);
      if (it == place.end()) {
        only_constructed[anchor].push_back(&name);
      } else if (std::optional<RecordName> parsed = ParseRecordName(name); parsed && parsed->kind == v1::RECORD_API) {
        anchor = std::max(anchor, it->second + 1);
      }
    }
    if (absl::Status status = AddConstructed(only_constructed[0]); !status.ok()) return status;
    size_t position = 0;
    for (const auto& member : data.GetObject()) {
      const std::string_view name = TextOf(member.name);
      absl::StatusOr<ImportedFields> fields = parser.Parse(name, member.value, debug_);
      if (!fields.ok()) return fields.status();
      const uint32_t flags = parents_.contains(std::string(name)) ? 0u : uint32_t{v1::FRAGMENT_NO_CONSTRUCT};
      if (absl::Status status = Add(path, name, *std::move(fields), flags); !status.ok()) return status;
      if (absl::Status status = AddConstructed(only_constructed[++position]); !status.ok()) return status;
    }
    const SeenChecksums& seen = parser.seen();
    result_.settings.set_summary_mode(seen.xor64 && !seen.crc32 ? "xor" : seen.crc32 ? "md5" : "statistics");
    return absl::OkStatus();
  }

  absl::Status AddConstructed(const std::vector<const std::string*>& names) {
    for (const std::string* name : names) {
      // A parent that is no record, such as "optimizer", comes back as its children's parent.
      if (!ParseRecordName(*name) && foreign_.contains(*name)) continue;
      // In task structure dump.json is empty: what has a stack is an entry nonetheless.
      const bool entry = result_.settings.task() == "structure" && stacks_.contains(*name);
      ImportedFields none;
      none.fields.mutable_dict();
      const uint32_t flags = entry ? 0u : uint32_t{v1::FRAGMENT_CONSTRUCT_ONLY};
      if (absl::Status status = Add(step_files_.construct, *name, std::move(none), flags); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::Status Add(const std::string& path, std::string_view name, ImportedFields fields, uint32_t flags) {
    const std::optional<RecordName> parsed = ParseRecordName(name);
    if (!parsed) {
      Warn(Cat(path, ": ", name, ": left out, not the name of a call (NAME.0.forward, NAME.forward.0, ",
               "NAME.parameters_grad.0 or NAME.0.debug)"));
      return absl::OkStatus();
    }
    ++result_.records;
    if (builder_ == nullptr) return absl::OkStatus();
    const std::string key(name);
    auto stack = stacks_.find(key);
    auto parent = parents_.find(key);
    return builder_->AddRecord(step_, ordinal_++, *parsed, std::move(fields), flags,
                               stack == stacks_.end() ? 0 : stack->second,
                               parent == parents_.end() ? std::string() : parent->second);
  }

  absl::StatusOr<std::optional<ImportedPayload>> FindPayload(const std::string& data_name, v1::DType dtype,
                                                             const std::vector<int64_t>& shape) {
    auto it = step_files_.tensors.find(data_name);
    if (it == step_files_.tensors.end()) {
      Warn(Cat(step_files_.directory, "/dump_tensor_data/", data_name, ": there is no such file"));
      return std::nullopt;
    }
    std::optional<ImportedPayload> found;
    absl::Status status = WithTensorFile(files_, it->second, [&](auto& file) -> absl::Status {
      const TensorDescription& description = file.description();
      PayloadFile payload{it->second};
      payload.narrow_to_bfloat16 = dtype == v1::DTYPE_BFLOAT16 && description.dtype == v1::DTYPE_FLOAT32;
      TensorDescription stored{payload.narrow_to_bfloat16 ? v1::DTYPE_BFLOAT16 : description.dtype, description.shape};
      if (stored.dtype != dtype || stored.shape != shape) {
        Warn(Cat(it->second, ": left out, its ", TorchDTypeName(description.dtype),
                 " tensor is not the one of type and shape that dump.json names"));
        return absl::OkStatus();
      }
      HashState hash;
      absl::Status read = ReadContent(file, payload.narrow_to_bfloat16, [&](std::string_view chunk) {
        payload.size += chunk.size();
        XXH3_128bits_update(hash.state, chunk.data(), chunk.size());
        return absl::OkStatus();
      });
      if (!read.ok()) return read;
      XXH128_canonical_t canonical;
      XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(hash.state));
      found.emplace();
      found->ref.set_hash(std::string(reinterpret_cast<const char*>(canonical.digest), sizeof(canonical.digest)));
      found->ref.set_size(payload.size);
      found->device = description.device;
      found->scale = description.scale;
      found->zero_point = description.zero_point;
      payloads_.emplace(found->ref.hash(), std::move(payload));
      return absl::OkStatus();
    });
    if (status.ok() || !absl::IsInvalidArgument(status)) {
      if (!status.ok()) return status;
      return found;
    }
    Warn(Cat(StdView(status.message()), "; left out"));
    return std::nullopt;
  }

  FileSource& files_;
  const uint32_t step_;
  const StepFiles& step_files_;
  BatchBuilder* const builder_;
  PayloadFiles& payloads_;
  std::vector<std::string>& warnings_;
  const bool debug_;
  uint64_t ordinal_ = 0;
  std::vector<std::string> construct_order_;
  absl::flat_hash_map<std::string, std::string> parents_;
  absl::flat_hash_set<std::string> foreign_;  // everything that is somebody's parent
  absl::flat_hash_map<std::string, uint64_t> stacks_;
  ImportedStep result_;
};

}  // namespace

absl::Status ReadTensorContent(FileSource& files, const PayloadFile& payload, ContentVisitor visit) {
  return WithTensorFile(files, payload.path,
                        [&](auto& file) { return ReadContent(file, payload.narrow_to_bfloat16, visit); });
}

absl::StatusOr<ImportedStep> ImportStep(FileSource& files, uint32_t step, const StepFiles& step_files,
                                        BatchBuilder* builder, PayloadFiles& payloads,
                                        std::vector<std::string>& warnings) {
  return StepImport(files, step, step_files, builder, payloads, warnings).Run();
}

}  // namespace msprobe::server
