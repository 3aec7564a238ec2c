#include "server/format/dump/call_order.h"

#include <xxhash.h>

#include "absl/container/flat_hash_set.h"

namespace msprobe::server {

void CallOrder::Add(const v1::Record& record, uint64_t stack_id) {
  Entry entry;
  entry.call = {record.full_name(), record.parent()};
  entry.stack_id = stack_id;
  entry.api = record.kind() == v1::RECORD_API;
  entry.constructed = (record.flags() & v1::FRAGMENT_NO_CONSTRUCT) == 0;
  entry.stacked = stack_id != 0 && record.direction() == v1::DIRECTION_FORWARD &&
                  (record.kind() == v1::RECORD_API || record.kind() == v1::RECORD_MODULE);
  index_.emplace(record.full_name(), entries_.size());
  entries_.push_back(std::move(entry));
}

std::string CallOrder::Digest() const {
  std::string all;
  const auto add = [&all](const auto& number) { all.append(reinterpret_cast<const char*>(&number), sizeof(number)); };
  for (const Entry& entry : entries_) {
    for (const std::string* text : {&entry.call.full_name, &entry.call.parent}) {
      add(text->size());
      all += *text;
    }
    add(entry.stack_id);
    all.append({static_cast<char>(entry.api), static_cast<char>(entry.constructed), static_cast<char>(entry.stacked)});
  }
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(all.data(), all.size()));
  return {reinterpret_cast<const char*>(canonical.digest), sizeof(canonical.digest)};
}

void CallOrder::InOrderOfEntry(bool api_first, absl::FunctionRef<void(const Entry& entry)> visit,
                               absl::FunctionRef<void(const std::string& parent)> visit_foreign_parent) const {
  std::vector<bool> done(entries_.size(), false);
  absl::flat_hash_set<std::string_view> foreign;
  std::vector<size_t> waiting;
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (done[i]) continue;
    done[i] = true;
    const bool first = api_first && entries_[i].api;
    waiting.clear();
    const std::string* parent = &entries_[i].call.parent;
    while (!parent->empty()) {
      auto found = index_.find(*parent);
      if (found == index_.end()) {
        if (foreign.insert(*parent).second) visit_foreign_parent(*parent);
        break;
      }
      if (done[found->second]) break;  // also ends a cycle
      done[found->second] = true;
      waiting.push_back(found->second);
      parent = &entries_[found->second].call.parent;
    }
    if (first) visit(entries_[i]);
    for (size_t k = waiting.size(); k-- > 0;) visit(entries_[waiting[k]]);
    if (!first) visit(entries_[i]);
  }
}

absl::Status CallOrder::ForEachConstructed(absl::FunctionRef<absl::Status(const Call& call)> visit) const {
  absl::Status status;
  auto give = [&](const Call& call) {
    if (status.ok()) status = visit(call);
  };
  bool any = false;  // at level L1 there are parents in nobody's construct.json
  for (const Entry& entry : entries_) any = any || entry.constructed;
  if (!any) return status;
  InOrderOfEntry(
      true,
      [&](const Entry& entry) {
        if (entry.constructed) give(entry.call);
      },
      [&](const std::string& parent) {
        give({parent, ""});
      });
  return status;
}

std::vector<CallOrder::StackGroup> CallOrder::StackGroups() const {
  std::vector<StackGroup> groups;
  absl::flat_hash_map<uint64_t, size_t> group_of;
  InOrderOfEntry(
      false,
      [&](const Entry& entry) {
        if (!entry.stacked) return;
        auto [group, inserted] = group_of.emplace(entry.stack_id, groups.size());
        if (inserted) groups.push_back({entry.stack_id, {}});
        groups[group->second].names.push_back(entry.call.full_name);
      },
      [](const std::string&) {});
  return groups;
}

}  // namespace msprobe::server
