#include "server/analysis/table/dump_reader.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/format/cat.h"
#include "server/format/dump/dump_cursor.h"
#include "server/format/dump/stack_file.h"
#include "server/format/json/json_value.h"

namespace msprobe::server {
namespace {

// Of Megatron's [parent, micro step].
uint32_t MicroStepOf(const JsonText& value) {
  JsonCursor json(value.text);
  uint64_t last = 0;
  if (json.EnterArray()) {
    while (json.NextItem()) last = Uint64Of(json.Take()).value_or(0);
  }
  return static_cast<uint32_t>(last);
}

}  // namespace

absl::Status DumpReader::AddDump(std::string_view text) {
  constexpr size_t kBytesOfARow = 250;  // about as many as the JSON of a tensor's statistics takes without white space
  table_->rows.reserve(text.size() / kBytesOfARow);
  DumpCursor dump(text);
  std::string name;
  while (dump.NextEntry(name)) AddEntry(name, dump.json(), 0);
  if (const JsonText& data = dump.data(); dump.status().ok() && data && !data.is_object() && !data.is_null()) {
    dump.json().Fail("an object is expected", data.text.data());
  }
  if (absl::Status status = dump.status(); !status.ok()) return status;
  if (!dump.data()) return absl::InvalidArgumentError("it has no \"data\": not a dump.json");
  table_->task = dump.task().is_string() ? StringOf(dump.task()) : "";
  if (dump.level().is_string()) table_->level = StringOf(dump.level());
  if (dump.framework().is_string()) table_->framework = StringOf(dump.framework());
  table_->mode = table_->task == "tensor" ? StepTable::Mode::kTensor
                 : values_.saw_checksum() ? StepTable::Mode::kChecksum
                                          : StepTable::Mode::kStatistics;
  return absl::OkStatus();
}

absl::Status DumpReader::AddEntry(std::string_view name, std::string_view json_text, uint32_t token) {
  JsonCursor json(json_text);
  AddEntry(name, json, token);
  return json.status();
}

void DumpReader::AddEntry(std::string_view name, JsonCursor& json, uint32_t token) {
  rows_.Begin(name);
  if (rows_.is_whole()) {
    rows_.Open(RowBuilder::kWhole);
    values_.Read(json);
    rows_.Close();
  } else if (json.Peek() != JsonType::kObject) {
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

Entry* DumpReader::FindEntry(std::string_view name) {
  if (entry_index_.empty()) {
    entry_index_.reserve(table_->entries.size());
    for (size_t i = 0; i < table_->entries.size(); ++i) {
      entry_index_.emplace(table_->entries[i].name, static_cast<uint32_t>(i));
    }
  }
  const auto found = entry_index_.find(name);
  return found == entry_index_.end() ? nullptr : &table_->entries[found->second];
}

absl::Status DumpReader::AddStacks(std::string_view text) {
  table_->has_stacks = true;
  std::string scratch;
  return ReadStacks(text, {}, [&](const DumpStack& stack) {
    const auto number = static_cast<int32_t>(table_->stacks.size());
    const auto give = [&](std::string_view name) {
      if (Entry* const entry = FindEntry(name)) {
        entry->stack = number;
      } else {
        other_stacks_.insert_or_assign(table_->arena.Add(name), number);
      }
    };
    if (!stack.grouped) give(stack.key);
    for (const JsonText& name : stack.names) {
      if (name.is_string()) give(StringOf(name, scratch));
    }
    std::vector<std::string>& lines = table_->stacks.emplace_back();
    lines.reserve(stack.lines.size());
    for (const JsonText& line : stack.lines) {
      if (line.is_string()) lines.emplace_back(StringOf(line, scratch));
    }
    return absl::OkStatus();
  });
}

absl::Status DumpReader::AddConstruct(std::string_view text) {
  std::string scratch;
  return ReadParents(text, {}, [&](std::string_view name, const JsonText& parent, const JsonText&) {
    Entry* const entry = parent.is_string() ? FindEntry(name) : nullptr;
    if (entry != nullptr) entry->parent = table_->arena.Add(StringOf(parent, scratch));
    return absl::OkStatus();
  });
}

absl::Status DumpReader::AddCalls(std::string_view text) {
  std::string scratch;
  return ReadParents(text, {}, [&](std::string_view name, const JsonText& parent, const JsonText& value) {
    if (name == kMicroSteps) {
      table_->micro_steps = static_cast<uint32_t>(Uint64Of(value).value_or(0));
      return absl::OkStatus();
    }
    Call call;
    if (parent.is_string()) call.parent = table_->arena.Add(StringOf(parent, scratch));
    if (value.is_array()) call.micro_step = MicroStepOf(value);
    if (Entry* const entry = FindEntry(name)) {
      call.name = entry->name;
      call.stack = entry->stack;
      entry->parent = call.parent;
    } else {
      call.name = table_->arena.Add(name);
      if (const auto stack = other_stacks_.find(name); stack != other_stacks_.end()) call.stack = stack->second;
    }
    table_->calls.push_back(call);
    return absl::OkStatus();
  });
}

}  // namespace msprobe::server
