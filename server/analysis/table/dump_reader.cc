#include "server/analysis/table/dump_reader.h"

#include <optional>

namespace msprobe::server {
namespace {

using Type = JsonCursor::Type;

}  // namespace

absl::Status DumpReader::AddDump(std::string_view text) {
  if (!IsUtf8(text)) return absl::InvalidArgumentError("the text is not UTF-8");
  JsonCursor json(text);
  std::string task;
  bool has_data = false;
  std::string_view key;
  if (json.EnterObject()) {
    while (json.NextKey(key)) {
      if (key == "data") {
        has_data = true;
        if (json.Peek() == Type::kNull) {
          json.Literal();
        } else {
          Entries(json);
        }
      } else if (key == "task" && json.Peek() == Type::kString) {
        task = json.String();
      } else if (key == "level" && json.Peek() == Type::kString) {
        table_->level = json.String();
      } else if (key == "framework" && json.Peek() == Type::kString) {
        table_->framework = json.String();
      } else {
        json.Skip();
      }
    }
  }
  if (json.ok()) json.ExpectEnd();
  if (!json.ok()) return json.status();
  if (!has_data) return absl::InvalidArgumentError("it has no \"data\": not a dump.json");
  table_->task = task;
  table_->mode = task == "tensor"         ? StepTable::Mode::kTensor
                 : values_.saw_checksum() ? StepTable::Mode::kChecksum
                                          : StepTable::Mode::kStatistics;
  return absl::OkStatus();
}

absl::Status DumpReader::AddEntry(std::string_view name, std::string_view json_text, uint32_t token) {
  JsonCursor json(json_text);
  EntryOf(name, json, token);
  return json.status();
}

void DumpReader::Entries(JsonCursor& json) {
  if (!json.EnterObject()) return;
  std::string_view key;
  std::string name;
  while (json.NextKey(key)) {
    name = key;
    EntryOf(name, json, 0);
  }
}

void DumpReader::EntryOf(std::string_view name, JsonCursor& json, uint32_t token) {
  rows_.Begin(name);
  if (rows_.is_whole()) {
    rows_.Open(RowBuilder::kWhole);
    values_.Read(json);
    rows_.Close();
  } else if (json.Peek() != Type::kObject) {
    json.Skip();
  } else if (json.EnterObject()) {
    std::string_view key;
    while (json.NextKey(key)) {
      const std::optional<RowBuilder::Section> section = RowBuilder::SectionOf(key);
      if (!section) {
        json.Skip();
        continue;
      }
      rows_.Open(*section);
      values_.Read(json);
      rows_.Close();
    }
  }
  rows_.Finish(token);
}

}  // namespace msprobe::server
