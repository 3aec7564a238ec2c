#include "tests/bench/recorded_step.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "rapidjson/document.h"
#include "rapidjson/istreamwrapper.h"

namespace msprobe::bench {
namespace {

using core::Node;
using core::NodeKind;
using rapidjson::Value;

absl::StatusOr<rapidjson::Document> Read(const std::string& path) {
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(absl::StrCat(path, " cannot be read"));
  rapidjson::IStreamWrapper stream(file);
  rapidjson::Document document;
  document.ParseStream<rapidjson::kParseNanAndInfFlag | rapidjson::kParseIterativeFlag>(stream);
  if (document.HasParseError() || !document.IsObject()) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is not a JSON object"));
  }
  return document;
}

std::string Text(const Value& value) { return std::string(value.GetString(), value.GetStringLength()); }

std::string Member(const Value& object, const char* name) {
  const auto found = object.FindMember(name);
  return found != object.MemberEnd() && found->value.IsString() ? Text(found->value) : std::string();
}

// DType numbers of record.proto.
struct DType {
  const char* name;
  uint8_t number;
  bool is_integer;
  bool is_wide;
};
constexpr std::array kDTypes = std::to_array<DType>({{"torch.float64", 1, false, true},
                                                     {"torch.float32", 2, false, false},
                                                     {"torch.float16", 3, false, false},
                                                     {"torch.bfloat16", 4, false, false},
                                                     {"torch.int8", 11, true, false},
                                                     {"torch.int16", 12, true, false},
                                                     {"torch.int32", 13, true, false},
                                                     {"torch.int64", 14, true, true},
                                                     {"torch.uint8", 15, true, false},
                                                     {"torch.bool", 20, true, false}});

class Reader {
 public:
  explicit Reader(RecordedStep::Fragment* out) : out_(out) {}

  Node Read(const std::string& key, const Value& value) {
    Node node;
    node.key = key;
    if (value.IsArray()) {
      node.kind = NodeKind::kList;
      for (const Value& item : value.GetArray()) node.children.push_back(Read("", item));
    } else if (value.IsObject()) {
      ReadObject(value, &node);
    } else {
      ReadScalar(value, &node);
    }
    return node;
  }

  void in_parameters(bool now) { in_parameters_ = now; }

 private:
  void ReadObject(const Value& value, Node* node) {
    if (value.HasMember("dtype") && value.HasMember("shape") && value["shape"].IsArray()) {
      ReadTensor(value, node);
    } else if (value.HasMember("type") && value.HasMember("value") && value.MemberCount() == 2) {
      ReadScalar(value["value"], node);
    } else {
      node->kind = NodeKind::kDict;
      for (const auto& member : value.GetObject()) node->children.push_back(Read(Text(member.name), member.value));
    }
  }

  void ReadTensor(const Value& value, Node* node) {
    node->kind = NodeKind::kTensor;
    node->type = "torch.Tensor";
    node->device = "cpu";
    node->requires_grad = value.HasMember("requires_grad") && value["requires_grad"].IsTrue();
    RecordedStep::Leaf leaf;
    const std::string name = Member(value, "dtype");
    node->dtype = 63;
    node->dtype_name = name;
    for (const DType& dtype : kDTypes) {
      if (name != dtype.name) continue;
      node->dtype = dtype.number;
      node->dtype_name.clear();
      leaf.is_integer = dtype.is_integer;
      leaf.is_wide = dtype.is_wide;
    }
    for (const Value& dim : value["shape"].GetArray()) leaf.shape.push_back(dim.IsInt64() ? dim.GetInt64() : 1);
    leaf.is_parameter = in_parameters_;
    out_->leaves.push_back(std::move(leaf));
  }

  void ReadScalar(const Value& value, Node* node) {
    if (value.IsBool()) {
      node->kind = NodeKind::kBoolean;
      out_->booleans.push_back(value.GetBool());
    } else if (value.IsInt64()) {
      node->kind = NodeKind::kInteger;
      out_->integers.push_back(value.GetInt64());
    } else if (value.IsNumber()) {
      node->kind = NodeKind::kFloat;
      out_->floats.push_back(value.GetDouble());
    } else if (value.IsString()) {
      node->kind = NodeKind::kString;
      out_->strings.push_back(Text(value));
    }
  }

  RecordedStep::Fragment* const out_;
  bool in_parameters_ = false;
};

// "File PATH, line N, in FUNCTION, \n SOURCE"
core::Frame ParseFrame(const std::string& text) {
  core::Frame frame;
  const std::vector<std::string> parts = absl::StrSplit(text, absl::MaxSplits(", ", 3));
  if (parts.size() != 4) return core::Frame{.path = text, .line = 1, .function = "?", .source = "?"};
  frame.path = parts[0].substr(parts[0].find(' ') + 1);
  if (!absl::SimpleAtoi(parts[1].substr(parts[1].rfind(' ') + 1), &frame.line)) frame.line = 1;
  frame.function = parts[2].substr(parts[2].rfind(' ') + 1);
  frame.source = parts[3].substr(std::min<size_t>(2, parts[3].size()));
  return frame;
}

absl::flat_hash_map<std::string, std::vector<core::Frame>> Stacks(const std::string& path) {
  absl::flat_hash_map<std::string, std::vector<core::Frame>> stacks;
  const absl::StatusOr<rapidjson::Document> document = Read(path);
  if (!document.ok()) return stacks;
  for (const auto& entry : document->GetObject()) {
    if (!entry.value.IsArray() || entry.value.Size() != 2) continue;
    std::vector<core::Frame> frames;
    for (const Value& frame : entry.value[1].GetArray()) frames.push_back(ParseFrame(Text(frame)));
    for (const Value& name : entry.value[0].GetArray()) stacks[Text(name)] = frames;
  }
  return stacks;
}

absl::flat_hash_map<std::string, std::string> Parents(const std::string& path) {
  absl::flat_hash_map<std::string, std::string> parents;
  const absl::StatusOr<rapidjson::Document> document = Read(path);
  if (!document.ok()) return parents;
  for (const auto& entry : document->GetObject()) {
    const Value& parent = entry.value.IsArray() && entry.value.Size() > 0 ? entry.value[0] : entry.value;
    if (parent.IsString()) parents[Text(entry.name)] = Text(parent);
  }
  return parents;
}

struct Name {
  std::string name;
  core::RecordKind kind;
  core::Direction direction;
  uint32_t count;
};

// NAME.COUNT.WAY, NAME.WAY.COUNT or NAME.parameters_grad[.COUNT].
std::optional<Name> ParseName(const std::string& full) {
  std::vector<std::string> parts = absl::StrSplit(full, '.');
  if (parts.size() < 3) return std::nullopt;
  if (parts.back() == "parameters_grad") parts.push_back("0");
  const std::string last = parts.back(), before = parts[parts.size() - 2];
  parts.resize(parts.size() - 2);
  Name name{absl::StrJoin(parts, "."), core::RecordKind::kApi, core::Direction::kForward, 0};
  if (absl::SimpleAtoi(before, &name.count)) {
    if (last == "backward") name.direction = core::Direction::kBackward;
    return name;
  }
  if (!absl::SimpleAtoi(last, &name.count)) return std::nullopt;
  name.kind = before == "parameters_grad" ? core::RecordKind::kParametersGrad : core::RecordKind::kModule;
  if (before != "forward") name.direction = core::Direction::kBackward;
  return name;
}

}  // namespace

absl::StatusOr<RecordedStep> RecordedStep::Load(const std::string& directory) {
  const absl::StatusOr<rapidjson::Document> dump = Read(directory + "/dump.json");
  if (!dump.ok()) return dump.status();
  const auto data = dump->FindMember("data");
  if (data == dump->MemberEnd() || !data->value.IsObject()) {
    return absl::InvalidArgumentError(absl::StrCat(directory, "/dump.json has no \"data\""));
  }
  const auto stacks = Stacks(directory + "/stack.json");
  const auto parents = Parents(directory + "/construct.json");
  RecordedStep step;
  for (const auto& record : data->value.GetObject()) {
    const std::string full = Text(record.name);
    const std::optional<Name> name = ParseName(full);
    if (!name.has_value() || !record.value.IsObject()) {
      return absl::InvalidArgumentError(absl::StrCat(directory, "/dump.json: ", full, " is not a record"));
    }
    Fragment enter, exit;
    Reader into_enter(&enter), into_exit(&exit);
    for (const auto& field : record.value.GetObject()) {
      const std::string key = Text(field.name);
      const bool is_exit = key == "output";
      Reader& reader = is_exit ? into_exit : into_enter;
      reader.in_parameters(key == "parameters" || name->kind == core::RecordKind::kParametersGrad);
      (is_exit ? exit : enter).structure.fields.children.push_back(reader.Read(key, field.value));
    }
    if (const auto stack = stacks.find(full); stack != stacks.end()) enter.stack = stack->second;
    if (const auto parent = parents.find(full); parent != parents.end()) enter.parent = parent->second;
    const bool both = exit.structure.fields.children.empty();
    for (Fragment* fragment : {&enter, &exit}) {
      if (fragment == &exit && both) break;
      fragment->structure.name = name->name;
      fragment->structure.kind = name->kind;
      fragment->structure.direction = name->direction;
      fragment->structure.fields.kind = NodeKind::kDict;
      fragment->count = name->count;
      fragment->flags = fragment == &exit ? core::kExit : both ? core::kEnter | core::kExit : core::kEnter;
      step.leaves_ += fragment->leaves.size();
      step.fragments_.push_back(std::move(*fragment));
    }
    ++step.records_;
  }
  return step;
}

}  // namespace msprobe::bench
