#include "server/analysis/graph/communication_partners.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "server/analysis/compare/communication.h"
#include "server/analysis/module_tree/module_name.h"
#include "server/format/cat.h"

namespace msprobe::server {
namespace {

using Role = CommunicationPartners::Role;

bool RootSends(std::string_view operation) { return operation == "broadcast" || operation == "scatter"; }
bool HasRoot(std::string_view operation) {
  return RootSends(operation) || operation == "gather" || operation == "reduce";
}

// The rank that an argument names: by keyword, or the second one.
int64_t RootOf(const StepTable& table, const Entry& entry) {
  if (!HasRoot(OperationOf(entry.name))) return -1;
  for (uint32_t i = entry.first_row; i < entry.first_row + entry.rows; ++i) {
    const Row& row = table.rows[i];
    if (row.is_tensor) continue;
    for (std::string_view argument : {".input.1", ".input.src", ".input.dst"}) {
      if (!row.name.ends_with(argument)) continue;
      const Cell& value = row.statistics[0];
      int64_t rank = -1;
      if (value.kind == Cell::Kind::kInteger) return value.integer;
      if (value.kind == Cell::Kind::kText && absl::SimpleAtoi(AbslView(value.view()), &rank)) return rank;
    }
  }
  return -1;
}

}  // namespace

void CommunicationPartners::Add(uint32_t step, uint32_t rank, const StepTable& table, const Entry& entry,
                                std::string_view mark, int64_t number) {
  const std::vector<std::string> channels = ChannelsOf(table, entry, rank);
  if (channels.empty()) return;
  Record record;
  record.number = number;
  record.step = step;
  record.rank = rank;
  record.name = std::string(entry.name);
  record.operation = std::string(OperationOf(entry.name));
  record.mark = std::string(mark);
  record.root = RootOf(table, entry);
  for (const std::string& channel : channels) {
    const uint64_t before = count_[{{step, rank}, channel}]++;
    together_[{step, {channel, before}}].push_back(records_.size());
    record.uses.emplace_back(channel, before);
  }
  records_.push_back(std::move(record));
}

CommunicationPartners::Communication CommunicationPartners::Of(const Record& record,
                                                               const std::vector<size_t>& together) const {
  Communication found;
  for (const size_t other : together) {
    const Record& partner = records_[other];
    if (partner.rank == record.rank) continue;
    if (record.root >= 0 && record.root != record.rank && record.root != partner.rank) continue;
    found.partners.push_back({partner.rank, partner.name, partner.mark});
  }
  std::sort(found.partners.begin(), found.partners.end(),
            [](const Partner& a, const Partner& b) { return a.rank < b.rank; });
  return found;
}

absl::Status CommunicationPartners::ForEach(
    absl::FunctionRef<absl::Status(int64_t, uint32_t, std::string_view, const std::vector<Communication>&)> visit)
    const {
  for (const Record& record : records_) {
    std::vector<Communication> communications;
    for (const auto& use : record.uses) {
      Communication found = Of(record, together_.at({record.step, use}));
      if (found.partners.empty()) continue;
      if (const size_t arrow = use.first.find('>'); arrow != std::string::npos) {
        found.role = use.first.substr(0, arrow) == Cat(record.rank) ? Role::kSend : Role::kReceive;
      } else if (record.root >= 0) {
        found.role = RootSends(record.operation) == (record.root == record.rank) ? Role::kSend : Role::kReceive;
      }
      communications.push_back(std::move(found));
    }
    if (communications.empty()) continue;
    absl::Status status = visit(record.number, record.rank, record.name, communications);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace msprobe::server
