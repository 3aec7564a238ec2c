#include "server/query/stored_calls.h"

#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "server/exporter/call_order.h"
#include "server/format/dump/frame_text.h"

namespace msprobe::server {
namespace {

class StackLines {
 public:
  StackLines(RecordSource& records, StepTable& table) : records_(records), table_(table) {}

  absl::StatusOr<int32_t> NumberOf(uint64_t id) {
    const auto [known, added] = numbers_.try_emplace(id, static_cast<int32_t>(table_.stacks.size()));
    if (!added) return known->second;
    auto frames = records_.Stack(id);
    if (!frames.ok()) return frames.status();
    std::vector<std::string>& lines = table_.stacks.emplace_back();
    for (const v1::Frame& frame : *frames) lines.push_back(FrameText(frame));
    return known->second;
  }

 private:
  RecordSource& records_;
  StepTable& table_;
  absl::flat_hash_map<uint64_t, int32_t> numbers_;
};

}  // namespace

absl::Status AddStoredCalls(RecordSource& records, StepTable& table) {
  absl::flat_hash_map<std::string_view, const Entry*> entries;
  entries.reserve(table.entries.size());
  for (const Entry& entry : table.entries) entries.emplace(entry.name, &entry);
  CallOrder calls;
  absl::flat_hash_map<std::string, uint64_t> other_stacks;  // of calls that are no entries
  absl::Status status = records.ForEachRecordHead([&](const v1::Record& head, uint64_t stack_id) {
    calls.Add(head, stack_id);
    if (stack_id != 0 && !entries.contains(head.full_name())) other_stacks.emplace(head.full_name(), stack_id);
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  StackLines stacks(records, table);
  return calls.ForEachConstructed([&](const CallOrder::Call& node) {
    Call call;
    call.parent = table.text(table.Intern(node.parent));
    if (const auto entry = entries.find(node.full_name); entry != entries.end()) {
      call.name = entry->second->name;
      call.stack = entry->second->stack;
    } else {
      call.name = table.arena.Add(node.full_name);
      if (const auto other = other_stacks.find(node.full_name); other != other_stacks.end()) {
        auto number = stacks.NumberOf(other->second);
        if (!number.ok()) return number.status();
        call.stack = *number;
      }
    }
    table.calls.push_back(call);
    return absl::OkStatus();
  });
}

}  // namespace msprobe::server
