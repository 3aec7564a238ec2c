// stack.json and construct.json.

#include <string>
#include <utility>
#include <vector>

#include "server/analysis/table/dump_reader.h"

namespace msprobe::server {

using Type = JsonCursor::Type;

void DumpReader::AddLine(JsonCursor& json, std::vector<std::string>& lines) {
  if (!json.EnterArray()) return;
  while (json.NextItem()) {
    if (json.Peek() == Type::kString) {
      lines.emplace_back(json.String());
    } else {
      json.Skip();
    }
  }
}

absl::Status DumpReader::AddStacks(std::string_view text) {
  if (!IsUtf8(text)) return absl::InvalidArgumentError("the text is not UTF-8");
  if (entry_index_.empty()) {
    for (size_t i = 0; i < table_->entries.size(); ++i) {
      entry_index_.emplace(table_->entries[i].name, static_cast<uint32_t>(i));
    }
  }
  table_->has_stacks = true;
  JsonCursor json(text);
  std::string_view key;
  if (!json.EnterObject()) return json.status();
  const auto give = [&](std::string_view name, int32_t stack) {
    if (const auto found = entry_index_.find(name); found != entry_index_.end()) {
      table_->entries[found->second].stack = stack;
    }
  };
  while (json.NextKey(key)) {
    const auto stack = static_cast<int32_t>(table_->stacks.size());
    const std::string name(key);
    if (!json.EnterArray()) break;
    std::vector<std::string> lines;
    bool grouped = false;
    for (int item = 0; json.NextItem(); ++item) {
      if (json.Peek() == Type::kString) {
        lines.emplace_back(json.String());
      } else if (item == 0 && json.Peek() == Type::kArray) {
        grouped = true;
        if (!json.EnterArray()) break;
        while (json.NextItem()) {
          if (json.Peek() == Type::kString) {
            give(json.String(), stack);
          } else {
            json.Skip();
          }
        }
      } else if (grouped && item == 1 && json.Peek() == Type::kArray) {
        AddLine(json, lines);
      } else {
        json.Skip();
      }
    }
    if (!grouped) give(name, stack);
    table_->stacks.push_back(std::move(lines));
  }
  return json.status();
}

absl::Status DumpReader::AddConstruct(std::string_view text) {
  if (!IsUtf8(text)) return absl::InvalidArgumentError("the text is not UTF-8");
  if (entry_index_.empty()) {
    for (size_t i = 0; i < table_->entries.size(); ++i) {
      entry_index_.emplace(table_->entries[i].name, static_cast<uint32_t>(i));
    }
  }
  JsonCursor json(text);
  std::string_view key;
  if (!json.EnterObject()) return json.status();
  while (json.NextKey(key)) {
    const auto found = entry_index_.find(key);
    Entry* const entry = found == entry_index_.end() ? nullptr : &table_->entries[found->second];
    if (json.Peek() == Type::kArray) {
      if (!json.EnterArray()) break;
      bool first = true;
      while (json.NextItem()) {
        if (first && entry != nullptr && json.Peek() == Type::kString) {
          entry->parent = table_->arena.Add(json.String());
        } else {
          json.Skip();
        }
        first = false;
      }
    } else if (entry != nullptr && json.Peek() == Type::kString) {
      entry->parent = table_->arena.Add(json.String());
    } else {
      json.Skip();
    }
  }
  return json.status();
}

}  // namespace msprobe::server
