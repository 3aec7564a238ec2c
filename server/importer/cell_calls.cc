#include "server/importer/cell_calls.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "server/format/cat.h"

namespace msprobe::server {
namespace {

template <typename Number>
bool TakeNumber(std::string_view digits, Number& number) {
  return !digits.empty() && digits.find_first_not_of("0123456789") == std::string_view::npos &&
         absl::SimpleAtoi(AbslView(digits), &number);
}

// Takes what stands behind the last separator off the text.
std::string_view TakeLast(std::string_view& text, char separator) {
  const size_t at = text.rfind(separator);
  if (at == std::string_view::npos) return std::exchange(text, {});
  const std::string_view last = text.substr(at + 1);
  text = text.substr(0, at);
  return last;
}

// "net.fc" of "Cell.net.fc.Dense".
std::string_view DottedName(std::string_view cell) {
  TakeLast(cell, '.');
  return cell.substr(std::min(cell.size(), sizeof("Cell.") - 1));
}

struct Timed {
  uint64_t end = 0;
  std::string_view cell;
  DumpedCall call;
};

// Of cells in one direction, by their dotted names: the names of their calls, by end.
using Ends = std::map<std::string_view, std::map<uint64_t, std::string_view>>;

std::string_view ParentOf(const Timed& timed, const Ends& ends) {
  for (std::string_view name = DottedName(timed.cell); !name.empty();) {
    TakeLast(name, '.');
    const auto cell = ends.find(name);
    if (cell == ends.end()) continue;
    const auto next = cell->second.lower_bound(timed.end);
    return next == cell->second.end() ? cell->second.rbegin()->second : next->second;
  }
  return {};
}

}  // namespace

std::optional<CellTensorName> CellTensorName::Parse(std::string_view text) {
  CellTensorName name;
  if (!text.starts_with("Cell.") || !TakeNumber(TakeLast(text, '.'), name.index)) return std::nullopt;
  const std::string_view side = TakeLast(text, '.');
  const std::string_view direction = TakeLast(text, '.');
  if ((side != "input" && side != "output") || (direction != "forward" && direction != "backward")) return std::nullopt;
  name.is_output = side == "output";
  name.is_backward = direction == "backward";
  name.cell = text;
  return name;
}

std::optional<CellTensorFile> CellTensorFile::Parse(std::string_view file) {
  CellTensorFile parsed;
  if (!file.ends_with(".npy")) return std::nullopt;
  file.remove_suffix(sizeof(".npy") - 1);
  if (!TakeNumber(TakeLast(file, '_'), parsed.id)) return std::nullopt;
  parsed.dtype = TakeLast(file, '_');
  for (const std::string_view mode : {"_in", "_out"}) {
    if (file.ends_with(mode)) file.remove_suffix(mode.size());
  }
  std::optional<CellTensorName> name = CellTensorName::Parse(file);
  if (!name || parsed.dtype.empty()) return std::nullopt;
  parsed.name = *std::move(name);
  return parsed;
}

void CellCalls::Add(const CellTensorName& name, uint64_t time, DumpedTensor tensor) {
  tensors_[{name.cell, name.is_backward}][{name.is_output, name.index}].emplace(time, std::move(tensor));
}

std::vector<DumpedCall> CellCalls::Arranged() const {
  std::vector<Timed> all;
  for (const auto& [direction, places] : tensors_) {
    std::vector<Timed> calls;
    for (const auto& [place, tensors] : places) {
      size_t n = 0;
      for (const auto& [time, tensor] : tensors) {
        if (n == calls.size()) {
          calls.push_back({.cell = direction.cell,
                           .call = {.name = Cat(direction.cell, direction.is_backward ? ".backward." : ".forward.", n),
                                    .parent = {},
                                    .is_backward = direction.is_backward,
                                    .inputs = {},
                                    .outputs = {}}});
        }
        Timed& timed = calls[n++];
        timed.end = std::max(timed.end, time);
        (place.first ? timed.call.outputs : timed.call.inputs)[place.second] = tensor;
      }
    }
    std::move(calls.begin(), calls.end(), std::back_inserter(all));
  }
  std::sort(all.begin(), all.end(), [](const Timed& left, const Timed& right) {
    return std::tie(left.end, left.call.name) < std::tie(right.end, right.call.name);
  });
  Ends ends[2];
  for (const Timed& timed : all)
    ends[timed.call.is_backward][DottedName(timed.cell)].emplace(timed.end, timed.call.name);
  std::vector<DumpedCall> arranged;
  for (Timed& timed : all) timed.call.parent = ParentOf(timed, ends[timed.call.is_backward]);
  for (Timed& timed : all) arranged.push_back(std::move(timed.call));
  return arranged;
}

}  // namespace msprobe::server
