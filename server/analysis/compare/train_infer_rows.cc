#include "server/analysis/compare/train_infer_rows.h"

#include <re2/re2.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "server/format/cat.h"

namespace msprobe::server {
namespace {

constexpr std::string_view kFsdpWrapper = "_fsdp_wrapped_module";
// Which modules close and open the part of a training step that is compared.
constexpr std::string_view kFsdpModels[] = {"Qwen2Model", "Qwen3Model", "Qwen3MoeModel"};
constexpr std::string_view kMegatronModels[] = {"GPTModel"};

using Translation = std::pair<std::string_view, std::string_view>;
constexpr Translation kFsdpModules[] = {{"q_proj", "qkv_proj"},
                                        {"k_proj", "qkv_proj"},
                                        {"v_proj", "qkv_proj"},
                                        {"gate_proj", "gate_up_proj"},
                                        {"up_proj", "gate_up_proj"}};
constexpr Translation kMegatronModules[] = {{"word_embeddings", "embed_tokens"}, {"self_attention", "self_attn"},
                                            {"linear_qkv", "qkv_proj"},          {"q_layernorm", "q_norm"},
                                            {"k_layernorm", "k_norm"},           {"core_attention", "attn"},
                                            {"linear_proj", "o_proj"},           {"router", "gate"},
                                            {"linear_fc1", "gate_up_proj"},      {"linear_fc2", "down_proj"}};

template <size_t N>
std::string Translated(std::string_view module, const Translation (&translations)[N]) {
  for (const auto& [from, to] : translations) {
    if (module == from) return std::string(to);
  }
  return std::string(module);
}

void Strip(const re2::RE2& prefix, std::string& text) { re2::RE2::Replace(&text, prefix, ""); }

const re2::RE2& UpToLayer() {
  static const re2::RE2 pattern(R"(^.*layers\.\d+\.)");
  return pattern;
}

// "Module.a.b.Linear.forward.0", "Functional.linear.0.forward", "Module.a.b.Linear.parameters_grad".
struct RecordName {
  std::string subject;  // without direction and number
  std::string_view direction;
  std::string number;
  bool number_first = false;
};

std::optional<RecordName> Parse(std::string_view name) {
  const std::vector<absl::string_view> parts = absl::StrSplit(AbslView(name), '.');
  if (parts.size() < 2) return std::nullopt;
  const auto subject = [&](size_t dropped) {
    size_t size = name.size();
    for (size_t i = 0; i < dropped; ++i) size -= parts[parts.size() - 1 - i].size() + 1;
    return std::string(name.substr(0, size));
  };
  const std::string_view last = StdView(parts.back());
  const std::string_view before = StdView(parts[parts.size() - 2]);
  if (last == "parameters_grad" || before == "parameters_grad")
    return RecordName{subject(1), "parameters_grad", "", false};
  for (std::string_view direction : {"forward", "backward"}) {
    if (last != direction && before != direction) continue;
    if (parts.size() < 3) return std::nullopt;
    const bool number_first = last == direction;
    return RecordName{subject(2), direction, std::string(number_first ? before : last), number_first};
  }
  return std::nullopt;
}

// The module of a record inside its layer, and its last name as the other side calls it.
class Modules {
 public:
  Modules(TrainingBackend backend, bool training) : backend_(backend), training_(training) {}

  std::string Of(const std::string& subject) const {
    static const re2::RE2 up_to_module(R"(^.*module.module\.)");
    static const re2::RE2 up_to_model(R"(^Module.model\.)");
    std::string inside = subject;
    if (training_) {
      if (backend_ == TrainingBackend::kMegatron) {
        Strip(UpToLayer(), inside);
      } else if (const size_t at = inside.rfind(kFsdpWrapper);
                 at != std::string::npos && at + kFsdpWrapper.size() < inside.size()) {
        inside.erase(0, at + kFsdpWrapper.size() + 1);
      }
      Strip(up_to_module, inside);
    } else {
      Strip(UpToLayer(), inside);
      Strip(up_to_model, inside);
    }
    const size_t of_class = inside.rfind('.');
    std::string_view module = of_class == std::string::npos ? "" : std::string_view(inside).substr(0, of_class);
    if (!training_ && backend_ == TrainingBackend::kFsdp) return std::string(module.substr(module.rfind('.') + 1));
    if (const size_t first = module.find('.'); first != std::string_view::npos) module.remove_prefix(first + 1);
    return backend_ == TrainingBackend::kFsdp ? Translated(module, kFsdpModules) : Translated(module, kMegatronModules);
  }

 private:
  const TrainingBackend backend_;
  const bool training_;
};

// Whether the records of a training step are compared, one after the other.
class Window {
 public:
  explicit Window(TrainingBackend backend) : backend_(backend) {}

  bool Takes(std::string_view record) {
    const std::vector<absl::string_view> parts = absl::StrSplit(AbslView(record), '.');
    if (parts.size() < 3) return open_ = false;
    const std::string_view module = StdView(parts[parts.size() - 3]);
    const std::string_view direction = StdView(parts[parts.size() - 2]);
    if (direction == "backward" && ClosesIt(module)) {
      open_ = false;
    } else if (direction == "forward" && !module.empty() && OpensIt(module)) {
      open_ = true;
    }
    return open_;
  }

 private:
  bool ClosesIt(std::string_view module) const {
    if (backend_ == TrainingBackend::kMegatron) return absl::c_linear_search(kMegatronModels, module);
    return absl::c_linear_search(kFsdpModels, module);
  }
  bool OpensIt(std::string_view module) const {
    const std::string_view embedding = backend_ == TrainingBackend::kMegatron ? "VocabParallelEmbedding" : "Embedding";
    return embedding.find(module) != std::string_view::npos;
  }

  const TrainingBackend backend_;
  bool open_ = true;
};

}  // namespace

std::vector<KeyedRow> KeyedRows(const StepTable& table, TrainingBackend backend, bool training) {
  static const re2::RE2 layer_number(R"(layers\.(\d+))");
  const Modules modules(backend, training);
  Window window(backend);
  absl::flat_hash_map<std::string, uint32_t> calls;
  std::vector<KeyedRow> keyed;
  for (uint32_t i = 0; i < table.entries.size(); ++i) {
    const Entry& entry = table.entries[i];
    if (training && !window.Takes(entry.name)) continue;
    std::optional<RecordName> name = Parse(entry.name);
    if (!name.has_value()) continue;
    const bool numbered =
        !name->number.empty() && std::all_of(name->number.begin(), name->number.end(), absl::ascii_isdigit);
    if (training && numbered && name->direction == "forward") name->number = Cat(calls[name->subject]++);
    std::string layer = "-1";
    re2::RE2::PartialMatch(name->subject, layer_number, &layer);
    const std::string call =
        name->number_first ? Cat(name->number, ".", name->direction) : Cat(name->direction, ".", name->number);
    const std::string key = Cat(call, "\n", layer, "\n", modules.Of(name->subject), "\n");
    for (uint32_t row = entry.first_row; row < entry.first_row + entry.rows; ++row) {
      const std::string_view full = table.rows[row].name;
      keyed.push_back({row, i, Cat(key, full.substr(std::min(full.size(), entry.name.size())))});
    }
  }
  return keyed;
}

}  // namespace msprobe::server
