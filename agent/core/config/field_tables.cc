#include "agent/core/config/field_tables.h"

#include "agent/core/config/config_schema.h"
#include "agent/core/config/fields.h"
#include "agent/core/config/json_values.h"
#include "agent/core/str_cat.h"

namespace msprobe::core {
namespace {

using Kind = FieldForm::Kind;
using Section = Field::Section;

constexpr std::string_view kBegin = "<!-- table of fields: ";
constexpr std::string_view kBeginEnd = " -->\n";
constexpr std::string_view kEnd = "<!-- end of table -->";

std::string ValuesOf(const FieldForm& form) {
  const std::string unit = form.unit.empty() ? "" : Cat(" ", form.unit);
  if (!form.shown.empty()) return std::string(form.shown);
  switch (form.kind) {
    case Kind::kBool:
      return "`true`, `false`";
    case Kind::kText:
      return "text";
    case Kind::kTextList:
      return "list of strings";
    case Kind::kRanksOrSteps:
      return Cat("list of `3`, `\"3\"` or `\"3-5\"`, 0 to ", kLargestRankOrStep);
    case Kind::kNumber:
      return Cat(Digits(form.low), " to ", Digits(form.high), unit);
    case Kind::kWholeNumber:
      return Cat("0 or more", unit);
    case Kind::kChoice: {
      std::string choices;
      for (std::string_view choice : form.choices) choices += Cat(choices.empty() ? "`\"" : ", `\"", choice, "\"`");
      return choices;
    }
    case Kind::kObjectList:
      return "list of objects";
    case Kind::kNumberList:
      return "list of numbers";
    case Kind::kObject:
      return "an object";
  }
  return {};
}

// " Tasks statistics and tensor."; empty: every task has the field.
std::string TasksOf(const Field& field) {
  std::string tasks;
  bool every = true;
  for (size_t i = 0; i < TaskNames().size(); ++i) {
    if (!field.Has(static_cast<Task>(i))) {
      every = false;
      continue;
    }
    tasks += Cat(tasks.empty() ? "" : ", ", TaskNames()[i]);
  }
  return every ? std::string() : Cat(" Tasks: ", tasks, ".");
}

// A bar would end a cell of the table, also inside of code.
std::string InCell(std::string_view text) {
  std::string cell;
  for (const char c : text) {
    if (c == '|') cell += '\\';
    cell += c;
  }
  return cell;
}

std::string RowOf(const Field& field) {
  std::string standard = "required";
  if (!field.required) standard = DefaultOf(field).empty() ? "absent" : Cat("`", InCell(DefaultOf(field)), "`");
  const std::string variable =
      field.environment.empty() ? "" : Cat(" The environment variable `", field.environment, "` stands in.");
  return Cat("| `", field.section == Section::kTask ? "*." : "", field.name, "` | ", standard, " | ",
             ValuesOf(field.form), " | ", field.fixed.empty() ? "yes" : "no", " | ", field.description, TasksOf(field),
             variable, " | `", field.wrong, "` |\n");
}

std::string TableOf(std::string_view name) {
  std::string table =
      "| field | default | values | live | meaning | refused, for example |\n|---|---|---|---|---|---|\n";
  for (const Field& field : Fields()) {
    const std::string_view its = field.section == Section::kTask ? "task" : field.ours ? "ours" : "whole";
    if (its == name) table += RowOf(field);
  }
  return table;
}

}  // namespace

std::string WithFieldTables(std::string_view document) {
  std::string out;
  while (true) {
    const size_t begin = document.find(kBegin);
    const size_t name_end = begin == std::string_view::npos ? begin : document.find(kBeginEnd, begin);
    const size_t end = name_end == std::string_view::npos ? name_end : document.find(kEnd, name_end);
    if (end == std::string_view::npos) return Cat(out, document);
    const size_t name = begin + kBegin.size();
    const size_t table = name_end + kBeginEnd.size();
    out += Cat(document.substr(0, table), TableOf(document.substr(name, name_end - name)));
    document.remove_prefix(end);
    out += document.substr(0, kEnd.size());
    document.remove_prefix(kEnd.size());
  }
}

}  // namespace msprobe::core
