#include "agent/capture/compare/diff_check.h"

#include <cstdio>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "agent/core/str_cat.h"

namespace msprobe::capture {
namespace {

using Sums = std::vector<std::optional<uint32_t>>;

size_t TensorsOf(const core::Node& node) {
  if (node.kind == core::NodeKind::kTensor) return 1;
  size_t count = 0;
  for (const core::Node& child : node.children) count += TensorsOf(child);
  return count;
}

// The checksums of a fragment's fields, as BenchDump has them.
void Collect(const FragmentBuilder& builder, BenchDump::Fields* out) {
  size_t next = 0;
  for (const core::Node& node : builder.BuildStructure().fields.children) {
    BenchDump::Field field{node.key, {}};
    for (size_t count = TensorsOf(node); count > 0; --count) field.checksums.push_back(builder.leaves()[next++].crc32);
    if (node.key != "parameters") out->push_back(std::move(field));
  }
}

bool IsInput(const BenchDump::Field& field) { return field.key.starts_with("input"); }

// The first tensor that is not the same; nullopt: all are. One without a checksum is the same as any.
std::optional<size_t> FirstDifference(const Sums& ours, const Sums& theirs) {
  for (size_t i = 0; i < std::min(ours.size(), theirs.size()); ++i) {
    if (ours[i] && theirs[i] && *ours[i] != *theirs[i]) return i;
  }
  if (ours.size() != theirs.size()) return std::min(ours.size(), theirs.size());
  return std::nullopt;
}

std::string Shown(const Sums& sums, size_t index) {
  if (index >= sums.size() || !sums[index]) return "none";
  char text[9];
  std::snprintf(text, sizeof(text), "%08x", *sums[index]);
  return text;
}

}  // namespace

void DiffCheck::SetBench(std::shared_ptr<const BenchDump> bench) {
  absl::MutexLock lock(&mu_);
  bench_ = std::move(bench);
}

bool DiffCheck::comparing() const {
  absl::MutexLock lock(&mu_);
  return bench_ != nullptr && (diff_nums_ < 0 || found_ < diff_nums_);
}

bool DiffCheck::done() const {
  absl::MutexLock lock(&mu_);
  return diff_nums_ >= 0 && found_ >= diff_nums_;
}

std::string DiffCheck::Compare(const std::string& full_name, const FragmentBuilder* begin,
                               const FragmentBuilder& end) const {
  if (bench_ == nullptr || (diff_nums_ >= 0 && found_ >= diff_nums_)) return {};
  const BenchDump::Fields* const theirs = bench_->Find(full_name);
  if (theirs == nullptr) return {};
  BenchDump::Fields ours;
  if (begin != nullptr) Collect(*begin, &ours);
  Collect(end, &ours);
  for (const BenchDump::Field& input : *theirs) {
    if (!IsInput(input)) continue;
    const BenchDump::Field* const our = ours.Find(input.key);
    if (FirstDifference(our == nullptr ? Sums() : our->checksums, input.checksums)) return {};
  }
  for (const BenchDump::Field& our : ours) {
    const BenchDump::Field* const there = theirs->Find(our.key);
    if (IsInput(our) || there == nullptr) continue;
    if (const std::optional<size_t> first = FirstDifference(our.checksums, there->checksums)) {
      return core::Cat(full_name, " differs from the dump under bench_path: inputs are equal, tensor ", *first, " of ",
                       our.key, " has checksum ", Shown(our.checksums, *first), ", there ",
                       Shown(there->checksums, *first));
    }
  }
  return {};
}

DiffCheck::Verdict DiffCheck::Check(const std::string& full_name, bool enters, bool exits, FragmentBuilder& builder) {
  absl::MutexLock lock(&mu_);
  if (!exits) {
    held_[full_name] = std::make_unique<FragmentBuilder>(builder);
    builder.DropPayloads();
    return {};
  }
  Verdict verdict;
  if (const auto found = held_.find(full_name); found != held_.end()) {
    if (!enters) verdict.held = std::move(found->second);
    held_.erase(found);
  }
  verdict.message = Compare(full_name, verdict.held.get(), builder);
  verdict.differs = !verdict.message.empty();
  if (verdict.differs) {
    ++found_;
  } else {
    verdict.held.reset();
    builder.DropPayloads();
  }
  return verdict;
}

void DiffCheck::EndStep() {
  absl::MutexLock lock(&mu_);
  held_.clear();
}

}  // namespace msprobe::capture
