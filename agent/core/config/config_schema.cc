#include "agent/core/config/config_schema.h"

#include <string_view>
#include <type_traits>
#include <utility>

#include "agent/core/config/json_values.h"
#include "agent/core/str_cat.h"
#include "rapidjson/document.h"
#include "rapidjson/prettywriter.h"
#include "rapidjson/stringbuffer.h"
#include "rapidjson/writer.h"

namespace msprobe::core {
namespace {

using rapidjson::Value;
using Kind = FieldForm::Kind;
using Section = Field::Section;

constexpr const char* kTypes[] = {"boolean", "string", "array", "array", "number",
                                  "integer", "",       "array", "array", "object"};  // of Kind

template <typename Type>
void Write(rapidjson::Writer<rapidjson::StringBuffer>& writer, const Type& value) {
  if constexpr (std::is_same_v<Type, std::monostate>) {
    writer.Null();
  } else if constexpr (std::is_same_v<Type, bool>) {
    writer.Bool(value);
  } else if constexpr (std::is_same_v<Type, std::string>) {
    writer.String(value.data(), static_cast<rapidjson::SizeType>(value.size()));
  } else if constexpr (std::is_arithmetic_v<Type>) {
    const std::string digits = Digits(static_cast<double>(value));
    writer.RawValue(digits.data(), digits.size(), rapidjson::kNumberType);
  } else if constexpr (std::is_same_v<Type, CaptureSchedule>) {
    writer.StartObject();
    for (const auto& [name, number] : {std::pair("wait", value.wait),
                                       {"warmup", value.warmup},
                                       {"active", value.active},
                                       {"repeat", value.repeat},
                                       {"skip_first", value.skip_first}}) {
      writer.Key(name);
      writer.Uint64(number);
    }
    writer.EndObject();
  } else if constexpr (!std::is_same_v<Type, SliceRule>) {
    writer.StartArray();
    for (const auto& element : value) Write(writer, element);
    writer.EndArray();
  }
}

// Builds the document; its values live as long as it does.
class Schema {
 public:
  std::string Text() {
    Value root = Object();
    Add(root, "$schema", Text("https://json-schema.org/draft/2020-12/schema"));
    Add(root, "title", Text("config.json of msprobe"));
    Add(root, "type", Text("object"));
    Add(root, "additionalProperties", Value(false));
    Add(root, "properties", TopProperties());
    Add(root, "allOf", SectionsOfTasks());
    Add(root, "$defs", Definitions());
    rapidjson::StringBuffer buffer;
    rapidjson::PrettyWriter<rapidjson::StringBuffer> writer(buffer);
    writer.SetIndent(' ', 2);
    writer.SetFormatOptions(rapidjson::kFormatSingleLineArray);
    root.Accept(writer);
    return Cat(std::string_view(buffer.GetString(), buffer.GetSize()), "\n");
  }

 private:
  Value Object() { return Value(rapidjson::kObjectType); }
  Value Text(std::string_view text) {
    return Value(text.data(), static_cast<rapidjson::SizeType>(text.size()), allocator_);
  }
  void Add(Value& object, std::string_view name, Value value) { object.AddMember(Text(name), value, allocator_); }

  // Sets the members of `object` that `json`, the inside of an object, names.
  void Merge(Value& object, std::string_view json) {
    rapidjson::Document more(&allocator_);
    more.Parse(Cat("{", json, "}").c_str());
    for (auto& member : more.GetObject()) {
      object.RemoveMember(member.name);
      object.AddMember(member.name, member.value, allocator_);
    }
  }

  Value Types(std::string_view type, bool or_null) {
    if (!or_null) return Text(type);
    Value types(rapidjson::kArrayType);
    types.PushBack(Text(type), allocator_).PushBack(Text("null"), allocator_);
    return types;
  }

  Value Choices(const FieldForm& form) {
    Value choices(rapidjson::kArrayType);
    for (std::string_view choice : form.choices) choices.PushBack(Text(choice), allocator_);
    return choices;
  }

  Value ValueOf(const Field& field) {
    const FieldForm& form = field.form;
    Value value = Object();
    Add(value, "description", Text(Cat(field.description, form.unit.empty() ? "" : Cat(" Unit: ", form.unit, "."))));
    if (form.kind == Kind::kChoice) {
      Value choices = Choices(form);
      choices.PushBack(Value(), allocator_);
      Add(value, "enum", std::move(choices));
    } else {
      Add(value, "type", Types(kTypes[static_cast<size_t>(form.kind)], !field.required));
    }
    if (form.kind == Kind::kTextList && form.choices.empty()) Merge(value, R"("items": {"type": "string"})");
    if (form.kind == Kind::kTextList && !form.choices.empty()) {
      Value items = Object();
      Add(items, "enum", Choices(form));
      Add(value, "items", std::move(items));
    }
    if (form.kind == Kind::kNumberList) Merge(value, R"("items": {"type": "number"})");
    if (form.kind == Kind::kRanksOrSteps) {
      Merge(value, Cat(R"("items": {"anyOf": [{"type": "integer", "minimum": 0, "maximum": )", kLargestRankOrStep,
                       R"(}, {"type": "string", "pattern": "^[0-9]+(-[0-9]+)?$"}]})"));
    }
    if (form.kind == Kind::kNumber) {
      Merge(value, Cat("\"minimum\": ", Digits(form.low), ", \"maximum\": ", Digits(form.high)));
    }
    if (form.kind == Kind::kWholeNumber) Merge(value, "\"minimum\": 0");
    Merge(value, form.more);
    if (const std::string standard = DefaultOf(field); !standard.empty()) Merge(value, Cat("\"default\": ", standard));
    return value;
  }

  Value TopProperties() {
    Value properties = Object();
    for (const Field* field : FieldsOf(Section::kTop)) Add(properties, field->name, ValueOf(*field));
    Value load = Object();
    Add(load, "type", Types("object", true));
    Merge(load, R"("additionalProperties": false)");
    Value of_load = Object(), required(rapidjson::kArrayType);
    for (const Field* field : FieldsOf(Section::kLoad)) {
      Add(of_load, field->key(), ValueOf(*field));
      if (field->required) required.PushBack(Text(field->key()), allocator_);
    }
    Add(load, "properties", std::move(of_load));
    Add(load, "required", std::move(required));
    Add(properties, "load", std::move(load));
    for (std::string_view name : NamesOf(Section::kTop)) {  // sections, which count only where the task is theirs
      if (!properties.HasMember(Text(name))) Add(properties, name, Value(true));
    }
    return properties;
  }

  Value SectionsOfTasks() {
    Value all(rapidjson::kArrayType);
    for (std::string_view task : TaskNames()) {
      const bool standard = task == ToString(Config().task);
      Value rule = Object();
      Merge(rule, Cat(R"("if": {"properties": {"task": {"enum": [")", task, standard ? R"(", null]}})" : R"("]}})",
                      standard ? "}" : R"(, "required": ["task"]})", R"(, "then": {"properties": {")", task,
                      R"(": {"$ref": "#/$defs/section.)", task, "\"}}",
                      task == ToString(Task::kDiffCheck) ? R"(, "required": ["diff_check"])" : "", "}"));
      all.PushBack(rule, allocator_);
    }
    return all;
  }

  Value Definitions() {
    Value definitions = Object();
    for (const Field* field : FieldsOf(Section::kTask)) {
      Add(definitions, Cat("field.", field->name), ValueOf(*field));
    }
    for (size_t i = 0; i < TaskNames().size(); ++i) {
      const auto task = static_cast<Task>(i);
      const bool compares = task == Task::kDiffCheck;
      Value section = Object(), properties = Object();
      Add(section, "type", Types("object", !compares));
      if (compares) Merge(section, R"("required": ["bench_path"])");
      Merge(section, R"("additionalProperties": false)");
      for (const Field* field : FieldsOf(Section::kTask)) {
        Value value = Object();
        if (field->Has(task) || field->checked_without_effect) {
          Add(value, "$ref", Text(Cat("#/$defs/field.", field->name)));
        }
        if (!field->Has(task)) Add(value, "description", Text("It has no effect with this task."));
        Add(properties, field->name, std::move(value));
      }
      Add(section, "properties", std::move(properties));
      Add(definitions, Cat("section.", ToString(task)), std::move(section));
    }
    return definitions;
  }

  rapidjson::Document::AllocatorType allocator_;
};

}  // namespace

std::string ConfigSchema() { return Schema().Text(); }

std::string JsonOf(const FieldValue& value) {
  rapidjson::StringBuffer buffer;
  rapidjson::Writer<rapidjson::StringBuffer> writer(buffer);
  std::visit([&](const auto& given) { Write(writer, given); }, value);
  return {buffer.GetString(), buffer.GetSize()};
}

std::string DefaultOf(const Field& field) {
  if (field.required || field.access.give == nullptr) return {};
  Config config;
  config.load.emplace();
  const FieldValue value = field.access.give(config, field);
  return std::holds_alternative<std::monostate>(value) ? std::string() : JsonOf(value);
}

}  // namespace msprobe::core
