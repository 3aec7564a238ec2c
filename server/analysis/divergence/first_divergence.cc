#include "server/analysis/divergence/first_divergence.h"

#include <algorithm>
#include <map>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "server/analysis/divergence/finiteness.h"
#include "server/analysis/module_tree/module_name.h"
#include "server/format/cat.h"

namespace msprobe::server {
namespace {

// The name without the number of the call.
std::string BaseName(std::string_view name) {
  const size_t last = name.rfind('.');
  if (last == std::string_view::npos || last == 0) return std::string(name);
  const size_t middle = name.rfind('.', last - 1);
  if (middle == std::string_view::npos) return std::string(name);
  const std::string_view between = name.substr(middle + 1, last - middle - 1);
  const std::string_view tail = name.substr(last + 1);
  if (IsNumberPart(tail)) return std::string(name.substr(0, last));
  if (IsNumberPart(between)) return Cat(name.substr(0, middle + 1), tail);
  return std::string(name);
}

// One side's entries by base name, with what stands around each.
class Calls {
 public:
  Calls(const StepTable& table, const StepNames& names) {
    const size_t count = table.entries.size();
    std::vector<std::string> bases;
    bases.reserve(count);
    for (std::string_view name : names.entries) bases.push_back(BaseName(name));
    absl::flat_hash_map<std::string_view, size_t> by_name;
    for (size_t i = 0; i < count; ++i) by_name.emplace(table.entries[i].name, i);
    contexts_.reserve(count);
    for (size_t i = 0; i < count; ++i) {
      const auto parent = by_name.find(table.entries[i].parent);
      contexts_.push_back(Cat(parent == by_name.end() ? BaseName(table.entries[i].parent) : bases[parent->second], "|",
                              i == 0 ? "" : bases[i - 1], "|", i + 1 == count ? "" : bases[i + 1]));
      by_base_[bases[i]].push_back(static_cast<int32_t>(i));
    }
  }
  const std::map<std::string, std::vector<int32_t>>& by_base() const { return by_base_; }
  const std::string& context(int32_t entry) const { return contexts_[static_cast<size_t>(entry)]; }

 private:
  std::vector<std::string> contexts_;
  std::map<std::string, std::vector<int32_t>> by_base_;
};

// Partners of calls of one operation that were made a different number of times.
void AlignByContext(const std::vector<int32_t>& ours, const Calls& target, const std::vector<int32_t>& theirs,
                    const Calls& golden, std::vector<int32_t>& partners) {
  size_t i = 0;
  size_t j = 0;
  while (i < ours.size() && j < theirs.size()) {
    const size_t left = ours.size() - i;
    const size_t right = theirs.size() - j;
    if (left == right || target.context(ours[i]) == golden.context(theirs[j])) {
      partners[static_cast<size_t>(ours[i++])] = theirs[j++];
    } else if (left < right) {
      ++j;
    } else {
      ++i;
    }
  }
}

bool IsOutput(const Row& row) { return row.state == RowState::kOutput || row.state == RowState::kParametersGrad; }

std::string Fingerprint(const StepTable& table, const Row& row) {
  std::string text = Cat(table.text(row.dtype), table.text(row.shape), row.checksum);
  for (const Cell& cell : row.statistics) {
    if (cell.kind == Cell::Kind::kText) {
      text.append(cell.view());
    } else {
      text.append(reinterpret_cast<const char*>(&cell.integer), sizeof(cell.integer));
    }
  }
  return text;
}

class Search {
 public:
  Search(const TableSource& target, const TableSource& golden, const DivergenceOptions& options)
      : target_source_(target),
        golden_source_(golden),
        target_(target.table()),
        golden_(golden.table()),
        options_(options),
        mapping_(MappingFor(options.comparison.mapping, target_, golden_)),
        names_(NamesByMapping(target_, golden_, mapping_)),
        across_frameworks_(AcrossFrameworks(target_, golden_)) {}

  absl::StatusOr<std::optional<Divergence>> Run() {
    if (!WithContents() && mapping_.empty() && SurelyAgree(target_, golden_, options_.comparison)) return std::nullopt;
    uint64_t collectives = 0;
    const std::vector<std::pair<int32_t, int32_t>> aligned = AlignEntries(
        target_, golden_, names_,
        options_.target_lacks_records || options_.golden_lacks_records ? Pairing::kByNumber : Pairing::kByContext);
    const bool passes_missing =
        options_.ignore_missing ||
        (across_frameworks_ && std::any_of(aligned.begin(), aligned.end(),
                                           [](const auto& pair) { return pair.first >= 0 && pair.second >= 0; }));
    for (const auto& [a, b] : aligned) {
      if (options_.comparison.content.cancelled && options_.comparison.content.cancelled()) {
        return absl::CancelledError("the search was cancelled");
      }
      const Entry& entry = a >= 0 ? target_.entries[static_cast<size_t>(a)] : golden_.entries[static_cast<size_t>(b)];
      if (options_.comparison.wanted && !options_.comparison.wanted(entry.name)) continue;
      std::optional<Divergence> found;
      if (a < 0 || b < 0) {
        if (!passes_missing && !MayBeLeftOut(a, b)) found = Missing(a, b);
      } else {
        found = Compare(a, b);
      }
      if (found) {
        found->collectives_before = collectives;
        Follow(*found);
        return found;
      }
      if (a < 0) continue;
      if (b >= 0) agreed_.insert({a, b});
      collectives += IsCommunication(entry.name);
      RememberOutputs(entry);
    }
    return std::nullopt;
  }

 private:
  bool WithContents() const {
    return options_.comparison.mode == CompareMode::kContent ||
           (options_.comparison.mode == CompareMode::kBest && target_.mode == StepTable::Mode::kTensor &&
            golden_.mode == StepTable::Mode::kTensor);
  }

  // From an operation with an input that differs to the one that made it, as long as the edges of both sides name one
  // that differs, too. They are a pair whatever their names, because each made the same input.
  void Follow(Divergence& found) {
    while (found.blame == Blame::kInput && found.path.size() < target_.entries.size()) {
      const int32_t ours = ProducerOf(target_, found.culprit_row);
      const int32_t theirs = ProducerOf(golden_, culprit_golden_);
      if (ours < 0 || theirs < 0 || agreed_.contains({ours, theirs})) return;
      if (options_.comparison.wanted && !options_.comparison.wanted(target_.entries[static_cast<size_t>(ours)].name))
        return;
      if (ours == found.target_entry || std::count(found.path.begin(), found.path.end(), ours) > 0) return;
      std::optional<Divergence> producer = Compare(ours, theirs);
      if (!producer) return;
      producer->path = std::move(found.path);
      producer->path.push_back(found.target_entry);
      for (int32_t i = 0; i < ours; ++i) {
        producer->collectives_before += IsCommunication(target_.entries[static_cast<size_t>(i)].name);
      }
      found = *std::move(producer);
    }
  }

  static int32_t ProducerOf(const StepTable& table, int32_t row) {
    if (row == kNoRow || table.rows[static_cast<size_t>(row)].producer < 0) return -1;
    return static_cast<int32_t>(table.EntryOf(static_cast<uint32_t>(table.rows[static_cast<size_t>(row)].producer)));
  }

  // Whether a side lacks what the other one has, an entry or a row, and lacks records.
  bool MayBeLeftOut(int32_t ours, int32_t theirs) const {
    return (ours < 0 && options_.target_lacks_records) || (theirs < 0 && options_.golden_lacks_records);
  }

  static std::optional<Divergence> Missing(int32_t a, int32_t b) {
    Divergence found;
    found.blame = Blame::kMissing;
    found.target_entry = a;
    found.golden_entry = b;
    return found;
  }

  std::optional<Divergence> Compare(int32_t a, int32_t b) {
    const Entry& ours = target_.entries[static_cast<size_t>(a)];
    Divergence found;
    found.target_entry = a;
    found.golden_entry = b;
    const bool contents = WithContents();
    bool differs = false;
    for (const auto& [x, y] : PairRows(a, b)) {
      const ContentResult* content = nullptr;
      if (contents && x != kNoRow && y != kNoRow) {
        found.contents.push_back(CompareContent(target_.rows[static_cast<size_t>(x)], target_source_,
                                                golden_.rows[static_cast<size_t>(y)], golden_source_,
                                                &options_.comparison.tolerances));
        content = &found.contents.back();
      }
      ComparedRow row = JudgeRow(target_, golden_, options_.comparison, x, y, content);
      if ((across_frameworks_ && (x == kNoRow || y == kNoRow)) || MayBeLeftOut(x, y)) row.verdict = Verdict::kUnknown;
      if (content != nullptr) row.content = static_cast<int32_t>(found.contents.size()) - 1;
      if (IsValue(row.verdict) && (IsUnwritten(target_, x) || IsUnwritten(golden_, y) || IsOverwritten(ours, x, y))) {
        row.verdict = Verdict::kUnknown;
      }
      differs = differs || IsDifference(row.verdict);
      found.rows.push_back(row);
    }
    if (!differs) return std::nullopt;
    Judge(ours, found);
    std::stable_partition(found.rows.begin(), found.rows.end(),
                          [](const ComparedRow& row) { return IsDifference(row.verdict); });
    return found;
  }

  static bool IsValue(Verdict verdict) { return verdict == Verdict::kDiffers || verdict == Verdict::kNonFinite; }

  // Whether a tensor is memory that nothing was written to yet, which has any value.
  static bool IsUnwritten(const StepTable& table, int32_t number) {
    if (number == kNoRow) return false;
    const Row& row = table.rows[static_cast<size_t>(number)];
    if (row.state == RowState::kOutput) {
      return GivesUninitialisedMemory(table.entries[table.EntryOf(static_cast<uint32_t>(number))].name);
    }
    if (row.edge != EdgeKind::kSame && row.edge != EdgeKind::kView) return false;
    const int32_t producer = ProducerOf(table, number);
    return producer >= 0 && GivesUninitialisedMemory(table.entries[static_cast<size_t>(producer)].name);
  }

  // Whether a tensor that no recorded operation made is about to be overwritten: it may be memory that nothing was
  // written to. A difference that the operation leaves in it shows where it is read.
  bool IsOverwritten(const Entry& entry, int32_t number, int32_t golden) const {
    if (number == kNoRow || !OverwritesItsArgument(entry.name)) return false;
    const Row& row = target_.rows[static_cast<size_t>(number)];
    return row.state == RowState::kInput && row.name.ends_with(".input.0") && row.producer < 0 &&
           !made_.contains(Fingerprint(target_, row)) && !IsWeight(entry, row, golden);
  }

  // Rows of two calls, by what follows the name of the call.
  std::vector<std::pair<int32_t, int32_t>> PairRows(int32_t a, int32_t b) const {
    const Entry& ours = target_.entries[static_cast<size_t>(a)];
    const Entry& theirs = golden_.entries[static_cast<size_t>(b)];
    const auto suffix = [](const StepNames& names, int32_t entry, uint32_t row) {
      const std::string_view called = names.entries[static_cast<size_t>(entry)];
      const std::string_view name = names.rows[row];
      return name.starts_with(called) ? name.substr(called.size()) : name;
    };
    absl::flat_hash_map<std::string_view, int32_t> others;
    for (uint32_t i = 0; i < theirs.rows; ++i) {
      const uint32_t row = theirs.first_row + i;
      others.emplace(suffix(names_.golden, b, row), static_cast<int32_t>(row));
    }
    std::vector<std::pair<int32_t, int32_t>> pairs;
    for (uint32_t i = 0; i < ours.rows; ++i) {
      const uint32_t row = ours.first_row + i;
      const auto found = others.find(suffix(names_.target, a, row));
      if (found == others.end()) {
        pairs.emplace_back(static_cast<int32_t>(row), kNoRow);
      } else {
        pairs.emplace_back(static_cast<int32_t>(row), found->second);
        others.erase(found);
      }
    }
    std::vector<int32_t> lonely;
    for (const auto& [name, row] : others) lonely.push_back(row);
    std::sort(lonely.begin(), lonely.end());
    for (int32_t row : lonely) pairs.emplace_back(kNoRow, row);
    return pairs;
  }

  void Judge(const Entry& entry, Divergence& found) {
    const ComparedRow* input = nullptr;
    const ComparedRow* weight = nullptr;
    const ComparedRow* argument = nullptr;
    const ComparedRow* output = nullptr;
    const ComparedRow* unreadable = nullptr;
    const auto keep = [](const ComparedRow*& first, const ComparedRow& row) {
      if (first == nullptr) first = &row;
    };
    for (const ComparedRow& row : found.rows) {
      if (!IsDifference(row.verdict)) continue;
      const Row& shown = row.target != kNoRow ? target_.rows[static_cast<size_t>(row.target)]
                                              : golden_.rows[static_cast<size_t>(row.golden)];
      if (row.verdict == Verdict::kUnreadable) {
        keep(unreadable, row);
      } else if (IsOutput(shown)) {
        keep(output, row);
      } else if (row.verdict != Verdict::kDiffers && row.verdict != Verdict::kNonFinite) {
        keep(argument, row);
      } else if (shown.state == RowState::kParameters || IsWeight(entry, shown, row.golden)) {
        keep(weight, row);
      } else {
        keep(input, row);
      }
    }
    const ComparedRow* culprit = output;
    found.blame = IsCommunication(entry.name) ? Blame::kCommunication : Blame::kComputation;
    if (argument != nullptr) {
      found.blame = Blame::kArgument;
      culprit = argument;
    } else if (input != nullptr && !(IsCommunication(entry.name) && IsReceiver(entry.name))) {
      found.blame = Blame::kInput;
      culprit = input;
    } else if (weight != nullptr) {
      found.blame = Blame::kWeight;
      culprit = weight;
    } else if (culprit == nullptr) {
      culprit = input;
    }
    if (culprit == nullptr) {
      found.blame = Blame::kUnreadable;
      culprit = unreadable;
    }
    const Row& blamed = culprit->target != kNoRow ? target_.rows[static_cast<size_t>(culprit->target)]
                                                  : golden_.rows[static_cast<size_t>(culprit->golden)];
    found.culprit = std::string(blamed.name);
    found.culprit_row = culprit->target;
    culprit_golden_ = culprit->golden;
  }

  // A receive fills the buffer it was given, so that its "input" is what came.
  static bool IsReceiver(std::string_view name) { return name.find("recv") != std::string_view::npos; }

  // An input of an API call that is a parameter: the module around it says so, or it needs a gradient and no recorded
  // operation made it. Where edges do not tell who made it, an output with its numbers did.
  bool IsWeight(const Entry& entry, const Row& row, int32_t golden) const {
    if (row.state != RowState::kInput || !row.is_tensor || row.producer >= 0) return false;
    if (const Entry* const module = EntryNamed(entry.parent); module != nullptr) {
      const std::string wanted = Fingerprint(target_, row);
      for (uint32_t i = module->first_row; i < module->first_row + module->rows; ++i) {
        if (target_.rows[i].state == RowState::kParameters && Fingerprint(target_, target_.rows[i]) == wanted)
          return true;
      }
    }
    // MindSpore does not say.
    const Row& said = across_frameworks_ && row.requires_grad == Row::Grad::kAbsent && golden != kNoRow
                          ? golden_.rows[static_cast<size_t>(golden)]
                          : row;
    if (said.requires_grad != Row::Grad::kTrue) return false;
    return row.edge == EdgeKind::kOutside || !made_.contains(Fingerprint(target_, row));
  }

  const Entry* EntryNamed(std::string_view name) const {
    if (name.empty()) return nullptr;
    for (const Entry& entry : target_.entries) {
      if (entry.name == name) return &entry;
    }
    return nullptr;
  }

  void RememberOutputs(const Entry& entry) {
    for (uint32_t i = entry.first_row; i < entry.first_row + entry.rows; ++i) {
      const Row& row = target_.rows[i];
      if (row.is_tensor && row.state == RowState::kOutput) made_.insert(Fingerprint(target_, row));
    }
  }

  const TableSource& target_source_;
  const TableSource& golden_source_;
  const StepTable& target_;
  const StepTable& golden_;
  const DivergenceOptions& options_;
  const NameMapping& mapping_;
  const MappedNames names_;
  const bool across_frameworks_;
  absl::flat_hash_set<std::string> made_;                    // fingerprints of outputs so far
  absl::flat_hash_set<std::pair<int32_t, int32_t>> agreed_;  // entries of both sides
  int32_t culprit_golden_ = kNoRow;                          // the golden side's row of the last culprit
};

}  // namespace

bool IsCommunication(std::string_view entry_name) { return entry_name.starts_with("Distributed."); }

std::vector<std::pair<int32_t, int32_t>> AlignEntries(const StepTable& target, const StepTable& golden,
                                                      const MappedNames& names, Pairing pairing) {
  std::vector<int32_t> partners(target.entries.size(), -1);
  absl::flat_hash_map<std::string_view, int32_t> by_name;
  for (size_t i = 0; i < golden.entries.size(); ++i) {
    by_name.emplace(names.golden.entries[i], static_cast<int32_t>(i));
  }
  bool all = target.entries.size() == golden.entries.size();
  for (size_t i = 0; i < partners.size(); ++i) {
    const auto found = by_name.find(names.target.entries[i]);
    if (found != by_name.end()) {
      partners[i] = found->second;
    } else {
      all = false;
    }
  }
  if (!all && pairing == Pairing::kByContext) {
    const Calls ours(target, names.target);
    const Calls theirs(golden, names.golden);
    for (const auto& [base, calls] : ours.by_base()) {
      const auto found = theirs.by_base().find(base);
      if (found == theirs.by_base().end()) continue;
      if (calls.size() == found->second.size()) {
        for (size_t i = 0; i < calls.size(); ++i) partners[static_cast<size_t>(calls[i])] = found->second[i];
        continue;
      }
      for (int32_t call : calls) partners[static_cast<size_t>(call)] = -1;
      AlignByContext(calls, ours, found->second, theirs, partners);
    }
  }
  std::vector<bool> taken(golden.entries.size());
  for (int32_t partner : partners) {
    if (partner >= 0) taken[static_cast<size_t>(partner)] = true;
  }
  std::vector<std::pair<int32_t, int32_t>> aligned;
  aligned.reserve(std::max(partners.size(), taken.size()));
  size_t passed = 0;
  const auto pass = [&](size_t to) {
    for (; passed < to; ++passed) {
      if (!taken[passed]) aligned.emplace_back(-1, static_cast<int32_t>(passed));
    }
  };
  for (size_t i = 0; i < partners.size(); ++i) {
    if (partners[i] >= 0) pass(static_cast<size_t>(partners[i]));
    aligned.emplace_back(static_cast<int32_t>(i), partners[i]);
  }
  pass(taken.size());
  return aligned;
}

absl::StatusOr<std::optional<Divergence>> FindFirstDivergence(const TableSource& target, const TableSource& golden,
                                                              const DivergenceOptions& options) {
  return Search(target, golden, options).Run();
}

}  // namespace msprobe::server
