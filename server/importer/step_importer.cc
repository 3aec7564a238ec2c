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
#include "server/format/dump/dump_cursor.h"
#include "server/format/dump/dump_text.h"
#include "server/format/dump/stack_file.h"
#include "server/format/json/json_value.h"
#include "server/format/tensor_file/npy_file.h"
#include "server/format/tensor_file/pt_file.h"
#include "server/importer/record_name.h"

namespace msprobe::server {
namespace {

constexpr size_t kMaxWarnings = 50;
constexpr JsonLimits kLimits = {.max_depth = 64, .exact = true};

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
    absl::StatusOr<DumpText> text = ReadText(path);
    if (!text.ok()) return text.status();
    if (absl::Status status = ReadHeader(path, text->view()); !status.ok()) return status;
    if (absl::Status status = ReadConstruct(); !status.ok()) return status;
    if (absl::Status status = ReadStack(); !status.ok()) return status;
    if (absl::Status status = ReadData(path, text->view()); !status.ok()) return status;
    return std::move(result_);
  }

 private:
  void Warn(std::string warning) {
    // Only once: the checking pass and the importing pass say the same.
    if (builder_ != nullptr && warnings_.size() < kMaxWarnings) warnings_.push_back(std::move(warning));
  }

  static absl::Status At(const std::string& path, const absl::Status& status) {
    return status.ok() ? status : absl::Status(status.code(), Cat(path, ": ", StdView(status.message())));
  }

  absl::StatusOr<DumpText> ReadText(const std::string& path) {
    absl::StatusOr<std::unique_ptr<ByteSource>> source = files_.Open(path);
    if (!source.ok()) return source.status();
    absl::StatusOr<DumpText> text = DumpText::Read(**source);
    if (!text.ok()) return At(path, text.status());
    return text;
  }

  // Walks the whole text, so that what is not JSON is found before anything is done; keeps the names of its entries.
  absl::Status ReadHeader(const std::string& path, std::string_view text) {
    DumpCursor dump(text, kLimits);
    for (std::string name; dump.NextEntry(name); names_.push_back(name)) dump.json().Skip();
    if (!dump.status().ok()) return At(path, dump.status());
    v1::CaptureSettings& settings = result_.settings;
    settings.set_framework("pytorch");
    const struct {
      const char* key;
      const JsonText& value;
      std::string* to;
    } texts[] = {{"task", dump.task(), settings.mutable_task()},
                 {"level", dump.level(), settings.mutable_level()},
                 {"framework", dump.framework(), settings.mutable_framework()}};
    for (const auto& [key, value, to] : texts) {
      if (!value || value.is_null()) continue;
      if (!value.is_string()) {
        return absl::InvalidArgumentError(Cat(path, ": ", key, ": a text is expected, not ", Describe(value)));
      }
      *to = StringOf(value);
    }
    if (!dump.data()) return absl::InvalidArgumentError(Cat(path, ": has no data"));
    if (!dump.data().is_object()) {
      return absl::InvalidArgumentError(Cat(path, ": data: an object is expected, not ", Describe(dump.data())));
    }
    if (debug_) settings.set_level("debug");
    settings.set_stack_and_construct(!step_files_.stack.empty() || !step_files_.construct.empty());
    return absl::OkStatus();
  }

  absl::Status ReadConstruct() {
    if (step_files_.construct.empty()) return absl::OkStatus();
    const std::string& path = step_files_.construct;
    absl::StatusOr<DumpText> text = ReadText(path);
    if (!text.ok()) return text.status();
    const auto add = [&](std::string_view name, const JsonText& parent, const JsonText&) -> absl::Status {
      if (name == kMicroSteps) {
        Warn(Cat(path, ": micro steps are left out"));
        return absl::OkStatus();
      }
      std::string parent_name = parent.is_null() ? std::string() : StringOf(parent);
      foreign_.insert(parent_name);
      construct_order_.emplace_back(name);
      parents_.emplace(name, std::move(parent_name));
      return absl::OkStatus();
    };
    return At(path, ReadParents(text->view(), kLimits, add));
  }

  absl::StatusOr<uint64_t> ReadFrames(const DumpStack& read) {
    v1::Stack stack;
    for (const JsonText& line : read.lines) {
      if (!line.is_string()) {
        return absl::InvalidArgumentError(Cat(read.key, ": a frame as text is expected, not ", Describe(line)));
      }
      *stack.add_frames() = ParseFrame(StringOf(line));
    }
    return builder_ == nullptr || stack.frames_size() == 0 ? 0 : builder_->DefineStack(stack);
  }

  absl::Status ReadStack() {
    if (step_files_.stack.empty()) return absl::OkStatus();
    absl::StatusOr<DumpText> text = ReadText(step_files_.stack);
    if (!text.ok()) return text.status();
    const auto add = [&](const DumpStack& read) -> absl::Status {
      const absl::StatusOr<uint64_t> stack_id = ReadFrames(read);
      if (!stack_id.ok()) return stack_id.status();
      if (!read.grouped) stacks_[std::string(read.key)] = *stack_id;
      for (const JsonText& name : read.names) {
        if (!name.is_string()) {
          return absl::InvalidArgumentError(Cat(read.key, ": a name is expected, not ", Describe(name)));
        }
        stacks_[StringOf(name)] = *stack_id;
      }
      return absl::OkStatus();
    };
    return At(step_files_.stack, ReadStacks(text->view(), kLimits, add));
  }

  // Where in the order of entries those stand that construct.json alone names: behind the API before them. By the
  // number of entries that come first.
  std::vector<std::vector<const std::string*>> OnlyConstructed() const {
    absl::flat_hash_map<std::string_view, size_t> place;
    for (size_t i = 0; i < names_.size(); ++i) place.emplace(names_[i], i);
    std::vector<std::vector<const std::string*>> only_constructed(names_.size() + 1);
    size_t anchor = 0;
    for (const std::string& name : construct_order_) {
      auto it = place.find(name);
      if (it == place.end()) {
        only_constructed[anchor].push_back(&name);
      } else if (std::optional<RecordName> parsed = ParseRecordName(name); parsed && parsed->kind == v1::RECORD_API) {
        anchor = std::max(anchor, it->second + 1);
      }
    }
    return only_constructed;
  }

  absl::Status ReadData(const std::string& path, std::string_view text) {
    EntryParser parser(
        path, builder_ == nullptr
                  ? EntryParser::FindPayload()
                  : [this](const std::string& data_name, v1::DType dtype, const std::vector<int64_t>& shape) {
                      return FindPayload(data_name, dtype, shape);
                    });
    const std::vector<std::vector<const std::string*>> only_constructed = OnlyConstructed();
    if (absl::Status status = AddConstructed(only_constructed[0]); !status.ok()) return status;
    size_t position = 0;
    DumpCursor dump(text, kLimits);
    for (std::string name; dump.NextEntry(name);) {
      absl::StatusOr<ImportedFields> fields = parser.Parse(name, dump.json(), debug_);
      if (!fields.ok()) return fields.status();
      const uint32_t flags = parents_.contains(name) ? 0u : uint32_t{v1::FRAGMENT_NO_CONSTRUCT};
      if (absl::Status status = Add(path, name, *std::move(fields), flags); !status.ok()) return status;
      if (absl::Status status = AddConstructed(only_constructed[++position]); !status.ok()) return status;
    }
    const SeenChecksums& seen = parser.seen();
    result_.settings.set_summary_mode(seen.xor64 && !seen.crc32 ? "xor" : seen.crc32 ? "md5" : "statistics");
    return At(path, dump.status());
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
  std::vector<std::string> names_;  // of the dump's entries, in order
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
