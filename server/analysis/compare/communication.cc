#include "server/analysis/compare/communication.h"

#include <algorithm>
#include <optional>
#include <tuple>

#include "absl/strings/numbers.h"
#include "server/analysis/module_tree/module_name.h"
#include "server/format/cat.h"

namespace msprobe::server {
namespace {

// "src" of "Distributed.recv.0.forward.input.src".
std::string_view ArgumentOf(const Entry& entry, const Row& row) {
  constexpr std::string_view kInput = ".input.";
  std::string_view name = row.name;
  if (!name.starts_with(entry.name)) return {};
  name.remove_prefix(entry.name.size());
  if (!name.starts_with(kInput)) return {};
  return name.substr(kInput.size());
}

// An argument by its keyword is kept as a text.
std::optional<int64_t> WholeNumber(const Cell& cell) {
  if (cell.kind == Cell::Kind::kInteger) return cell.integer;
  int64_t value = 0;
  if (cell.kind != Cell::Kind::kText || !absl::SimpleAtoi(AbslView(cell.view()), &value)) return std::nullopt;
  return value;
}

std::string Message(int64_t from, int64_t to) { return Cat(from, ">", to); }

}  // namespace

std::vector<std::string> ChannelsOf(const StepTable& table, const Entry& entry, uint32_t rank) {
  if (!IsCommunication(entry.name)) return {};
  const std::string_view operation = OperationOf(entry.name);
  const auto message = [&](bool sends, int64_t peer) { return sends ? Message(rank, peer) : Message(peer, rank); };
  std::vector<std::string> channels;
  for (const PointToPoint& each : table.messages) {
    if (each.row < entry.first_row || each.row >= entry.first_row + entry.rows) continue;
    channels.push_back(message(each.op.find("send") != std::string_view::npos, each.peer));
  }
  if (!channels.empty()) return channels;
  const bool sends = operation.find("send") != std::string_view::npos;
  const bool receives = operation.find("recv") != std::string_view::npos;
  std::string group = "world";
  std::optional<int64_t> peer;
  for (uint32_t i = entry.first_row; i < entry.first_row + entry.rows; ++i) {
    const Row& row = table.rows[i];
    const std::string_view argument = ArgumentOf(entry, row);
    const Cell& value = row.statistics[0];
    if (row.is_tensor || argument.empty()) continue;
    if (table.text(row.dtype) == "torch.ProcessGroup" || argument == "group") {
      if (value.kind == Cell::Kind::kText && value.view() != "None") group = value.view();
    } else if (argument == "1" || argument == "src" || argument == "dst") {
      peer = WholeNumber(value);
    }
  }
  if (!sends && !receives) return {group};
  if (!peer) return {};
  return {message(sends, *peer)};
}

std::map<std::string, ChannelUse> UsesOfChannels(const StepTable& table, uint32_t rank, int32_t entry) {
  std::map<std::string, ChannelUse> uses;
  for (size_t i = 0; i < table.entries.size(); ++i) {
    for (const std::string& channel : ChannelsOf(table, table.entries[i], rank)) {
      ChannelUse& use = uses[channel];
      ++use.all;
      if (static_cast<int64_t>(i) < entry) ++use.before;
    }
  }
  return uses;
}

size_t FirstAcrossRanks(const std::vector<RankDivergence>& found) {
  const auto explains = [&](const RankDivergence& cause, const RankDivergence& effect) {
    return std::any_of(effect.through.begin(), effect.through.end(), [&](const std::string& channel) {
      const auto theirs = cause.uses.find(channel);
      const auto ours = effect.uses.find(channel);
      if (theirs == cause.uses.end() || ours == effect.uses.end()) return false;
      if (theirs->second.before > ours->second.before) return false;  // what it sent was still right
      const bool same = theirs->second.before == ours->second.before &&
                        std::find(cause.through.begin(), cause.through.end(), channel) != cause.through.end();
      return !same;  // both got it wrong from one and the same
    });
  };
  const auto earliness = [&](size_t i) {
    const bool explained = std::any_of(found.begin(), found.end(), [&](const RankDivergence& other) {
      return &other != &found[i] && explains(other, found[i]);
    });
    return std::tuple(explained, found[i].collectives_before, found[i].blame == Blame::kCommunication);
  };
  size_t first = 0;
  for (size_t i = 1; i < found.size(); ++i) {
    if (earliness(i) < earliness(first)) first = i;
  }
  return first;
}

}  // namespace msprobe::server
