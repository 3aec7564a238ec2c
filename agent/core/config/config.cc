#include "agent/core/config/config.h"

#include <algorithm>
#include <cstdlib>
#include <set>
#include <utility>

#include "agent/core/config/config_rules.h"
#include "agent/core/config/dump_path.h"
#include "agent/core/config/fields.h"
#include "agent/core/config/json_values.h"
#include "agent/core/str_cat.h"
#include "rapidjson/document.h"
#include "rapidjson/error/en.h"

namespace msprobe::core {
namespace {

using rapidjson::Value;
using Section = Field::Section;

Value::StringRefType Ref(std::string_view text) { return {text.data(), static_cast<rapidjson::SizeType>(text.size())}; }

const Value* Find(const Value& object, std::string_view name) {
  const auto member = object.FindMember(Value(Ref(name)));
  return member == object.MemberEnd() ? nullptr : &member->value;
}

bool IsEmptyText(const Value* value) {
  return value == nullptr || value->IsNull() || (value->IsString() && value->GetStringLength() == 0);
}

// The text of the variable that stands in for a field; empty: there is none.
std::string_view VariableOf(const Field& field) {
  if (field.environment.empty()) return {};
  const char* const text = std::getenv(std::string(field.environment).c_str());
  return text == nullptr ? std::string_view() : text;
}

// Reads a document field after field, in the order of the table, then checks the rules for several fields. The first
// error stays.
class Reader {
 public:
  // Changes the document: arguments and variables take the place of its fields. They have to outlive the reader.
  Reader(rapidjson::Document* document, const ConfigOverrides& overrides) : root_(*document) {
    auto& allocator = document->GetAllocator();
    for (const auto& [name, text] : {std::pair("task", &overrides.task), std::pair("dump_path", &overrides.dump_path),
                                     std::pair("level", &overrides.level), std::pair("select", &overrides.select)}) {
      if (text->has_value()) Put(name, Value(Ref(**text)), allocator);
    }
    if (overrides.step.has_value()) {
      Value steps(rapidjson::kArrayType);
      for (const std::string& step : *overrides.step) steps.PushBack(Ref(step), allocator);
      Put("step", std::move(steps), allocator);
    }
    if (overrides.schedule.has_value()) {
      rapidjson::Document schedule(&allocator);
      schedule.Parse(overrides.schedule->data(), overrides.schedule->size());
      Value given(Ref(*overrides.schedule));
      if (!schedule.HasParseError()) given.Swap(schedule);
      Put("schedule", std::move(given), allocator);
    }
    for (const Field& field : Fields()) {
      const std::string_view text = VariableOf(field);
      if (!text.empty() && IsEmptyText(Find(root_, field.name))) Put(field.name, Value(Ref(text)), allocator);
    }
  }

  absl::StatusOr<Config> Read() {
    for (const auto step : {&Reader::ReadTop, &Reader::ReadLoad, &Reader::ReadTaskSection}) {
      if (absl::Status status = (this->*step)(); !status.ok()) return status;
    }
    if (absl::Status status = CheckRules(given_, &config_); !status.ok()) return status;
    if (absl::Status status = SettleDumpPath(); !status.ok()) return status;
    return std::move(config_);
  }

 private:
  void Put(std::string_view name, Value value, rapidjson::Document::AllocatorType& allocator) {
    const auto member = root_.FindMember(Value(Ref(name)));
    if (member != root_.MemberEnd()) {
      member->value = value;
    } else {
      root_.AddMember(Value(Ref(name)), value, allocator);
    }
  }

  absl::Status ReadTop() {
    for (const Field* field : FieldsOf(Section::kTop)) {
      if (absl::Status status = ReadField(root_, *field, &config_); !status.ok()) return status;
    }
    SettleLevel(given_, &config_);
    if (absl::Status status = CheckNames(root_, Section::kTop, "in the configuration"); !status.ok()) return status;
    for (const Field* field : FieldsOf(Section::kTask)) {
      if (Find(root_, field->key()) == nullptr) continue;
      config_.warnings.push_back(Cat("field \"", field->name,
                                     "\" in the configuration has no effect; it belongs into section \"",
                                     ToString(config_.task), "\""));
    }
    return absl::OkStatus();
  }

  absl::Status ReadLoad() {
    const Value* const section = Find(root_, "load");
    if (section == nullptr || section->IsNull()) return absl::OkStatus();
    if (!section->IsObject()) {
      return absl::InvalidArgumentError(
          Cat("load is invalid, it should be a dict, currently it is ", Shown(*section), "."));
    }
    const LoadConfig& load = config_.load.emplace();
    if (absl::Status status = CheckNames(*section, Section::kLoad, "in section \"load\""); !status.ok()) return status;
    for (const Field* field : FieldsOf(Section::kLoad)) {
      if (absl::Status status = ReadField(*section, *field, &config_); !status.ok()) return status;
    }
    if (load.modules.empty()) {
      return absl::InvalidArgumentError(
          "load.modules is required and must be a non-empty list[str] of full names like "
          "Module.layers.0.Linear.forward.0.");
    }
    if (load.path.empty()) {
      return absl::InvalidArgumentError("load.path is required, it should be the dump_path of an earlier dump.");
    }
    return absl::OkStatus();
  }

  absl::Status ReadTaskSection() {
    const std::string_view name = ToString(config_.task);
    const Value* const section = Find(root_, name);
    if (section == nullptr || section->IsNull()) return absl::OkStatus();
    if (!section->IsObject()) {
      return absl::InvalidArgumentError(
          Cat(name, " is invalid, it should be a dict, currently it is ", Shown(*section), "."));
    }
    if (absl::Status status = CheckNames(*section, Section::kTask, Cat("in section \"", name, "\"")); !status.ok()) {
      return status;
    }
    for (const Field* field : FieldsOf(Section::kTask)) {
      if (absl::Status status = ReadTaskField(*section, *field); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  // A field that has no effect here is accepted, because other tools accept it, and warned of.
  absl::Status ReadTaskField(const Value& section, const Field& field) {
    const bool debug = config_.level == Level::kDebug && !field.at_debug;
    if (field.Has(config_.task) && !debug) return ReadField(section, field, &config_);
    const Value* const value = Find(section, field.key());
    if (!IsEmptyText(value) && !(value->IsArray() && value->Empty())) {
      config_.warnings.push_back(field.Has(config_.task)
                                     ? Cat(field.name, " has no effect at level debug")
                                     : Cat(field.name, " has no effect with task ", ToString(config_.task)));
    }
    if (!field.checked_without_effect) return absl::OkStatus();
    Config unused = config_;
    return ReadField(section, field, &unused);
  }

  absl::Status ReadField(const Value& section, const Field& field, Config* config) {
    const Value* const value = Find(section, field.key());
    if (value == nullptr || (value->IsNull() && !field.takes_null)) return absl::OkStatus();
    given_.insert(field.name);
    return field.access.read(*value, field, config);
  }

  // Warns of unknown names, and refuses one that is given twice.
  absl::Status CheckNames(const Value& object, Section section, std::string_view where) {
    const std::vector<std::string_view> known = NamesOf(section), of_task = NamesOf(Section::kTask);
    std::set<std::string_view> expected(known.begin(), known.end()), seen;
    if (section == Section::kTop) expected.insert(of_task.begin(), of_task.end());  // ReadTop warns of these
    for (const auto& member : object.GetObject()) {
      const std::string_view name(member.name.GetString(), member.name.GetStringLength());
      if (!seen.insert(name).second) {
        return absl::InvalidArgumentError(
            Cat("field \"", name, "\" is given twice ", where, ", it should stand there once."));
      }
      if (expected.contains(name)) continue;
      std::string_view nearest = Nearest(name, known);
      std::string place;
      if (nearest.empty() && section == Section::kTop) {
        nearest = Nearest(name, of_task);
        place = Cat(" in section \"", ToString(config_.task), "\"");
      }
      config_.warnings.push_back(Cat("unknown field \"", name, "\" ", where, " has no effect",
                                     nearest.empty() ? "" : Cat("; did you mean \"", nearest, "\"", place, "?")));
    }
    return absl::OkStatus();
  }

  // Last, as it makes a directory.
  absl::Status SettleDumpPath() {
    if (!given_.contains("dump_path")) {
      if (config_.load && !config_.load->dump_after_load) {
        config_.dump_path = config_.load->path;  // nothing is written
        return absl::OkStatus();
      }
      return absl::InvalidArgumentError("The dump_path not found. It should be a string, the path of a directory.");
    }
    absl::StatusOr<std::string> checked = CheckDumpPath(config_.dump_path);
    if (!checked.ok()) return checked.status();
    config_.dump_path = *std::move(checked);
    return absl::OkStatus();
  }

  Value& root_;
  GivenFields given_;
  Config config_;
};

}  // namespace

absl::StatusOr<Config> ParseConfig(std::string_view json, const ConfigOverrides& overrides) {
  rapidjson::Document document;
  document.Parse<rapidjson::kParseFullPrecisionFlag>(json.data(), json.size());
  if (document.HasParseError()) {
    const std::string_view before = json.substr(0, document.GetErrorOffset());
    return absl::InvalidArgumentError(
        Cat("the configuration is not JSON: ", rapidjson::GetParseError_En(document.GetParseError()), " Line ",
            std::count(before.begin(), before.end(), '\n') + 1, "."));
  }
  if (!document.IsObject()) {
    return absl::InvalidArgumentError(
        Cat("the configuration should be a JSON object, currently it is ", Shown(document), "."));
  }
  absl::StatusOr<Config> config = Reader(&document, overrides).Read();
  if (config.ok()) config->json = JsonText(document);
  return config;
}

CaptureSettings SettingsOf(const Config& config, std::string_view framework) {
  CaptureSettings settings;
  settings.framework = framework;
  settings.config_json = config.json;
  for (const Field& field : Fields()) {
    if (field.tell != nullptr) field.tell(config, &settings);
  }
  return settings;
}

ServerAccess AccessOfEnvironment() {
  Config config;
  for (const Field& field : Fields()) {
    const std::string_view text = VariableOf(field);
    if (text.empty()) continue;
    // Any text is a path; what the other fields refuse is not asked for here.
    static_cast<void>(field.access.read(Value(Ref(text)), field, &config));
  }
  return config.session.access;
}

}  // namespace msprobe::core
