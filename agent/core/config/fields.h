#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "agent/core/config/config.h"
#include "rapidjson/fwd.h"

namespace msprobe::core {

// The one list of the fields of config.json (fields.cc). The parser, unknown names, Python's properties and values(),
// the settings on the wire, config.schema.json and the tables of docs/config.md all come from it.

struct Field;

// The value of a field, in the form that config.json has it. monostate: the field is absent.
using FieldValue = std::variant<std::monostate, bool, int64_t, double, std::string, std::vector<uint32_t>,
                                std::vector<std::string>, std::vector<double>, std::vector<SliceRule>, CaptureSchedule>;

// How a field is read into a Config, and how its value is given back.
struct FieldAccess {
  // InvalidArgument names the field, the value and what is allowed.
  absl::Status (*read)(const rapidjson::Value& value, const Field& field, Config* config) = nullptr;
  FieldValue (*give)(const Config& config, const Field& field) = nullptr;
};

// The JSON that a field takes.
struct FieldForm {
  enum class Kind : uint8_t {
    kBool,
    kText,
    kTextList,
    kRanksOrSteps,
    kNumber,
    kWholeNumber,
    kChoice,
    kObjectList,
    kNumberList,
    kObject,
  };
  Kind kind = Kind::kBool;
  std::span<const std::string_view> choices = {};  // kChoice; kTextList: empty, if it takes any
  double low = 0, high = 0;                        // kNumber, both included
  std::string_view unit = {};                      // of a number
  std::string_view more = {};   // members of a JSON schema that say what the kind does not, as in a JSON object
  std::string_view shown = {};  // what docs/config.md says of the form; empty: what the kind says
};

struct Field {
  enum class Section : uint8_t { kTop, kLoad, kTask };
  static constexpr uint16_t kEveryTask = 0xffff;

  std::string_view name = {};  // in messages; "load.path" in section load
  Section section = Section::kTop;
  bool ours = false;  // mindstudio-probe does not have it
  FieldForm form = {};
  FieldAccess access = {};
  std::string_view description = {};  // one sentence, in Markdown
  std::string_view wrong = {};        // JSON that the parser refuses, for the document
  bool required = false;
  std::string_view fixed = {};        // why it cannot be changed while the program runs, after its name; empty: it can
  std::string_view environment = {};  // the variable that stands in where the file leaves the field out or empty
  bool takes_null = false;            // null is a value of its own; else null means absent

  // Section kTask:
  uint16_t tasks = kEveryTask;         // 1 << Task for each task that has the field
  bool at_debug = true;                // false: it has no effect at level debug
  bool checked_without_effect = true;  // false: a wrong value is refused only where the field has an effect

  // Puts the value into what the server is told; null: the server is not told.
  void (*tell)(const Config& config, CaptureSettings* settings) = nullptr;

  // The name inside its section.
  std::string_view key() const { return name.substr(name.find('.') + 1); }
  bool Has(Task task) const { return ((tasks >> static_cast<int>(task)) & 1) != 0; }
};

// In the order of docs/config.md, which is also the order of reading. The fields live as long as the program.
std::span<const Field> Fields();
std::vector<const Field*> FieldsOf(Field::Section section);
// The names that may stand in a section: the keys of its fields, and at the top also the names of the sections.
std::vector<std::string_view> NamesOf(Field::Section section);

// Every field, as docs/config.md lists them: "rank", "load.path", and those of a task's own section as "*.scope".
std::vector<std::string> ConfigFields();

// Why a field of the top or of a task's section cannot be changed while the program runs, in a clause that names it;
// empty: it can. What says which records are captured and how can be changed. Where records go and what the session
// may use is settled with the first record.
std::string WhyFixed(std::string_view name);

// The names of the tasks: each is also the name of its section.
std::span<const std::string_view> TaskNames();

// What another tool's task does and what to do instead. Empty: the name is unknown.
std::string_view OtherTask(std::string_view task);

}  // namespace msprobe::core
