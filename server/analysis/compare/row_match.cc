#include "server/analysis/compare/row_match.h"

#include <algorithm>
#include <deque>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "server/format/cat.h"
#include "server/format/dtype_name.h"
#include "server/format/storage/record_pass.h"

namespace msprobe::server {
namespace {

bool IsFloatName(std::string_view name) {
  return name == "float16" || name == "float32" || name == "float64" || name == "bfloat16";
}

bool IsDigits(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

// Numbers backward calls of a step in order of appearance.
class BackwardCalls {
 public:
  // The name with its new number, as head, number and tail. Nothing: it stays.
  struct Numbered {
    std::string_view before;
    uint32_t number;
    std::string_view after;
  };
  std::optional<Numbered> Next(std::string_view name) {
    if (WithoutPass(name) != name) return std::nullopt;
    const size_t last = name.rfind('.');
    const size_t middle = last == std::string_view::npos ? last : name.rfind('.', last - 1);
    if (middle == std::string_view::npos || last == 0) return std::nullopt;
    const std::string_view head = name.substr(middle + 1, last - middle - 1);
    const std::string_view tail = name.substr(last + 1);
    if (head != "backward" && tail != "backward") return std::nullopt;
    const uint32_t order = counts_[name.substr(0, middle)]++;
    const std::string_view given = head == "backward" ? tail : head;
    if (!IsDigits(given) || given == Cat(order)) return std::nullopt;
    if (head == "backward") return Numbered{name.substr(0, last + 1), order, {}};
    return Numbered{name.substr(0, middle + 1), order, name.substr(last)};
  }

 private:
  absl::flat_hash_map<std::string_view, uint32_t> counts_;
};

// {API type}.{name}.{count}.forward.input.0 without the count; counts that stand after the direction stay.
std::string WithoutCount(std::string_view name) {
  std::string_view way = "forward";
  size_t at = name.find(way);
  if (at == std::string_view::npos) {
    way = "backward";
    at = name.find(way);
  }
  if (at == std::string_view::npos) return std::string(name);
  const size_t rest = at + way.size();
  const std::string_view after = name.substr(rest, name.find(way, rest) - rest);
  std::string_view before = name.substr(0, at);
  for (int i = 0; i < 2; ++i) {
    const size_t dot = before.rfind('.');
    if (dot == std::string_view::npos) break;
    before = before.substr(0, dot);
  }
  return Cat(before, ".", way, after);
}

// One side of the fuzzy walk: rows that wait, found by key.
class Waiting {
 public:
  void Add(int32_t row, uint32_t key) {
    last_ = row;
    if (key >= by_key_.size()) by_key_.resize(key + 1);
    by_key_[key].push_back(row);
  }
  bool empty() const { return begin_ > last_; }
  int32_t begin() const { return begin_; }
  int32_t last() const { return last_; }
  // The first waiting row of that key.
  std::optional<int32_t> First(uint32_t key) {
    if (key >= by_key_.size()) return std::nullopt;
    std::deque<int32_t>& rows = by_key_[key];
    while (!rows.empty() && rows.front() < begin_) rows.pop_front();
    return rows.empty() ? std::nullopt : std::optional<int32_t>(rows.front());
  }
  void PassTo(int32_t begin) { begin_ = begin; }

 private:
  int32_t begin_ = 0;
  int32_t last_ = -1;
  std::vector<std::deque<int32_t>> by_key_;
};

// Of tables of one layout: every row has its like at the same place.
RowMatch MatchInPlace(const StepTable& table) {
  RowMatch match;
  match.pairs.reserve(table.rows.size());
  for (size_t i = 0; i < table.rows.size(); ++i) {
    match.pairs.emplace_back(static_cast<int32_t>(i), static_cast<int32_t>(i));
  }
  return match;
}

std::vector<uint32_t> FuzzyKeys(const StepNames& names, absl::flat_hash_map<std::string, uint32_t>& numbers) {
  std::vector<uint32_t> keys;
  keys.reserve(names.rows.size());
  for (std::string_view row : names.rows) {
    keys.push_back(numbers.try_emplace(WithoutCount(row), static_cast<uint32_t>(numbers.size())).first->second);
  }
  return keys;
}

}  // namespace

void StepNames::Rename(const Entry& entry, size_t number, std::string_view name) {
  const std::string_view before = entries[number];
  entries[number] = arena.Add(name);
  for (uint32_t i = entry.first_row; i < entry.first_row + entry.rows; ++i) {
    if (rows[i].starts_with(before)) rows[i] = arena.Join({name, rows[i].substr(before.size())});
  }
}

StepNames NamesOf(const StepTable& table) {
  StepNames names;
  names.entries.reserve(table.entries.size());
  names.rows.reserve(table.rows.size());
  for (const Entry& entry : table.entries) names.entries.push_back(entry.name);
  for (const Row& row : table.rows) names.rows.push_back(row.name);
  return names;
}

StepNames Renumbered(const StepTable& table, StepNames names) {
  if (table.debug) return names;
  BackwardCalls calls;
  for (size_t i = 0; i < table.entries.size(); ++i) {
    const auto numbered = calls.Next(names.entries[i]);
    if (numbered) names.Rename(table.entries[i], i, Cat(numbered->before, numbered->number, numbered->after));
  }
  return names;
}

bool AcrossFrameworks(const StepTable& target, const StepTable& golden) { return target.framework != golden.framework; }

bool DTypesMatch(std::string_view target, std::string_view golden) {
  if (target == golden) return true;
  constexpr std::string_view kTorch = "torch.";
  const bool torch = target.starts_with(kTorch);
  if (torch != golden.starts_with(kTorch)) return false;
  if (torch) {
    target.remove_prefix(kTorch.size());
    golden.remove_prefix(kTorch.size());
  }
  return IsFloatName(target) && IsFloatName(golden);
}

bool DTypesMatchAcrossFrameworks(std::string_view target, std::string_view golden) {
  const auto kind = [](std::string_view dtype) -> std::string {
    const std::string name = absl::AsciiStrToLower(AbslView(dtype.substr(dtype.rfind('.') + 1)));
    if (name == "bool") return "bool";
    if (name == "complex64" || name == "complex128") return "complex";
    if (IsFloatName(name)) return "float";
    const bool is_unsigned = name.starts_with('u');
    const std::string_view digits = std::string_view(name).substr(is_unsigned ? 1 : 0);
    if (digits == "int8" || digits == "int16" || digits == "int32" || digits == "int64") return "int";
    return std::string(dtype);
  };
  return kind(target) == kind(golden);
}

bool SameDTypeAcrossFrameworks(std::string_view target, std::string_view golden) {
  const v1::DType dtype = DTypeOfName(target);
  return dtype != v1::DTYPE_UNSPECIFIED && dtype != v1::DTYPE_OTHER && dtype == DTypeOfName(golden);
}

void NameAlike(StepTable& a, StepTable& b) {
  constexpr std::string_view kOfFile = ".kwargs.";
  const bool a_has_files = a.mode == StepTable::Mode::kTensor;
  if (a_has_files == (b.mode == StepTable::Mode::kTensor)) return;
  StepTable& table = a_has_files ? a : b;
  for (const Entry& entry : table.entries) {
    for (uint32_t i = entry.first_row; i < entry.first_row + entry.rows; ++i) {
      std::string_view& name = table.rows[i].name;
      if (!name.starts_with(entry.name) || !name.substr(entry.name.size()).starts_with(kOfFile)) continue;
      name = table.arena.Join({entry.name, ".input.", name.substr(entry.name.size() + kOfFile.size())});
      table.layout = nullptr;
    }
  }
}

RowMatch MatchExactly(const StepTable& target, const StepTable& golden) {
  if (target.layout != nullptr && target.layout == golden.layout) return MatchInPlace(target);
  return MatchByNames(Renumbered(target, NamesOf(target)), Renumbered(golden, NamesOf(golden)));
}

RowMatch MatchByNames(const StepNames& target, const StepNames& golden) {
  // First golden row of each name, and the next one of the same name.
  absl::flat_hash_map<std::string_view, int32_t> first;
  first.reserve(golden.rows.size());
  std::vector<int32_t> next(golden.rows.size(), kNoRow);
  for (auto i = static_cast<int32_t>(golden.rows.size()) - 1; i >= 0; --i) {
    const auto [it, added] = first.try_emplace(golden.rows[static_cast<size_t>(i)], i);
    if (!added) {
      next[static_cast<size_t>(i)] = it->second;
      it->second = i;
    }
  }
  RowMatch match;
  match.pairs.reserve(target.rows.size());
  std::vector<bool> taken(golden.rows.size());
  for (size_t i = 0; i < target.rows.size(); ++i) {
    const auto found = first.find(target.rows[i]);
    if (found == first.end()) {
      match.pairs.emplace_back(static_cast<int32_t>(i), kNoRow);
      continue;
    }
    for (int32_t partner = found->second; partner != kNoRow; partner = next[static_cast<size_t>(partner)]) {
      taken[static_cast<size_t>(partner)] = true;
      match.pairs.emplace_back(static_cast<int32_t>(i), partner);
    }
  }
  for (size_t i = 0; i < taken.size(); ++i) {
    if (!taken[i]) match.golden_only.push_back(static_cast<int32_t>(i));
  }
  return match;
}

RowMatch MatchFuzzily(const StepNames& target, const StepNames& golden) {
  absl::flat_hash_map<std::string, uint32_t> numbers;
  const std::vector<uint32_t> target_keys = FuzzyKeys(target, numbers);
  const std::vector<uint32_t> golden_keys = FuzzyKeys(golden, numbers);
  RowMatch match;
  std::vector<bool> taken(golden.rows.size());
  Waiting ours;
  Waiting theirs;
  const size_t longest = std::max(target_keys.size(), golden_keys.size());
  for (size_t i = 0; i < longest; ++i) {
    if (i < target_keys.size()) ours.Add(static_cast<int32_t>(i), target_keys[i]);
    if (i < golden_keys.size()) theirs.Add(static_cast<int32_t>(i), golden_keys[i]);
    // The rest of the longer side finds nothing any more.
    if (ours.empty() != theirs.empty()) break;
    int32_t row = ours.last();
    std::optional<int32_t> partner = theirs.First(target_keys[static_cast<size_t>(row)]);
    if (!partner) {
      partner = theirs.last();
      const std::optional<int32_t> found = ours.First(golden_keys[static_cast<size_t>(*partner)]);
      if (!found) continue;
      row = *found;
    }
    for (int32_t passed = ours.begin(); passed < row; ++passed) match.pairs.emplace_back(passed, kNoRow);
    match.pairs.emplace_back(row, *partner);
    taken[static_cast<size_t>(*partner)] = true;
    ours.PassTo(row + 1);
    theirs.PassTo(*partner + 1);
  }
  for (auto row = ours.begin(); row < static_cast<int32_t>(target_keys.size()); ++row) {
    match.pairs.emplace_back(row, kNoRow);
  }
  for (size_t i = 0; i < taken.size(); ++i) {
    if (!taken[i]) match.golden_only.push_back(static_cast<int32_t>(i));
  }
  return match;
}

RowMatch MatchFuzzily(const StepTable& target, const StepTable& golden) {
  if (target.layout != nullptr && target.layout == golden.layout) return MatchInPlace(target);
  return MatchFuzzily(NamesOf(target), NamesOf(golden));
}

}  // namespace msprobe::server
