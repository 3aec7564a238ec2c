#include "agent/torch/diff_check.h"

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
void Collect(const FragmentBuilder& builder, core::BenchDump::Checksums* out) {
  size_t next = 0;
  for (const core::Node& field : builder.BuildStructure().fields.children) {
    const std::span<const core::Leaf> leaves = builder.leaves().subspan(next, TensorsOf(field));
    next += leaves.size();
    if (field.key == "parameters") continue;
    Sums& sums = field.key.starts_with("input") ? out->input : out->output;
    for (const core::Leaf& leaf : leaves) sums.push_back(leaf.crc32);
  }
}

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

void DiffCheck::SetBench(std::shared_ptr<const core::BenchDump> bench) {
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
  const core::BenchDump::Checksums* const theirs = bench_->Find(full_name);
  if (theirs == nullptr) return {};
  core::BenchDump::Checksums ours;
  if (begin != nullptr) Collect(*begin, &ours);
  Collect(end, &ours);
  if (FirstDifference(ours.input, theirs->input)) return {};
  const std::optional<size_t> first = FirstDifference(ours.output, theirs->output);
  if (!first) return {};
  return core::Cat(full_name, " differs from the dump under bench_path: inputs are equal, tensor ", *first,
                   " of its output has checksum ", Shown(ours.output, *first), ", there ", Shown(theirs->output, *first));
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
