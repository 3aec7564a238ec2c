#include "server/analysis/checkpoint/weight_comparison.h"

#include <algorithm>
#include <numeric>

#include "agent/core/weight_digest.h"
#include "server/format/cat.h"
#include "server/format/dtype_name.h"

namespace msprobe::server {
namespace {

using WeightKind = WeightDifference::Kind;

// The dtype in which both sides have digests. A rounded side is held against what it was rounded to.
std::optional<v1::DType> CommonDType(const DigestedWeight& target, const DigestedWeight& golden) {
  if (target.dtype == golden.dtype) return target.dtype;
  if (golden.digests.contains(target.dtype) && DTypeSize(target.dtype) <= DTypeSize(golden.dtype)) return target.dtype;
  if (target.digests.contains(golden.dtype)) return golden.dtype;
  if (golden.digests.contains(target.dtype)) return target.dtype;
  return std::nullopt;
}

std::vector<WeightDifference::Rows> RowsOf(const std::vector<size_t>& blocks, uint64_t rows) {
  const uint64_t size = core::RowsOfDigestBlock(rows);
  std::vector<WeightDifference::Rows> ranges;
  for (const size_t block : blocks) {
    const uint64_t begin = block * size, end = std::min(begin + size, rows);
    if (!ranges.empty() && ranges.back().second == begin) {
      ranges.back().second = end;
    } else {
      ranges.emplace_back(begin, end);
    }
  }
  return ranges;
}

}  // namespace

WeightComparison::WeightComparison(const DigestedWeights& golden, std::vector<WeightVersion> earlier)
    : golden_(golden), earlier_(std::move(earlier)) {
  for (const auto& [name, weight] : golden_) {
    for (const auto& [dtype, blocks] : weight.digests) by_digest_[{dtype, WholeDigest(blocks)}].push_back(name);
  }
}

WeightDifference WeightComparison::Judge(const DigestedWeight& target, const std::string& name) const {
  const DigestedWeight& golden = golden_.at(name);
  if (target.shape != golden.shape) return {.kind = WeightKind::kShape};
  const std::optional<v1::DType> dtype = CommonDType(target, golden);
  if (!dtype) return {.kind = WeightKind::kDType, .note = "record one side with cast= the other's dtype"};
  WeightDifference found{.compared_as = *dtype};
  const BlockDigests& ours = target.digests.at(*dtype);
  const BlockDigests& theirs = golden.digests.at(*dtype);
  std::vector<size_t> unequal;
  for (size_t block = 0; block < ours.size(); ++block) {
    if (ours[block] != theirs[block]) unequal.push_back(block);
  }
  if (unequal.empty()) {
    found.kind = target.dtype == golden.dtype ? WeightKind::kEqual : WeightKind::kCast;
    return found;
  }
  std::vector<size_t> all(ours.size());
  std::iota(all.begin(), all.end(), 0);
  if (target.missing == 0 && golden.missing == 0) {
    found.step = StepOf(target, *dtype, name, all);
    found.kind = found.step ? WeightKind::kStale : WeightKind::kSwapped;
    if (found.step) return found;
    if (IsZero(ours)) return {.kind = WeightKind::kDiffers, .compared_as = *dtype, .note = "the target is all zeros"};
    found.other = NameOf(target, *dtype);
    if (!found.other.empty()) return found;
  }
  found.kind = unequal.size() < ours.size() ? WeightKind::kPartial : WeightKind::kDiffers;
  if (found.kind == WeightKind::kPartial) {
    found.rows = RowsOf(unequal, DigestedRows(target.shape));
    found.step = StepOf(target, *dtype, name, unequal);
    if (std::all_of(unequal.begin(), unequal.end(), [&](size_t block) { return ours[block] == 0; })) {
      found.note = "these rows are zeros in the target";
    }
  }
  for (const auto& [side, weight] : {std::pair("target", &target), std::pair("golden", &golden)}) {
    if (weight->missing == 0) continue;
    found.kind = WeightKind::kPartial;
    found.note = Cat("no rank of the ", side, " tells ", weight->missing, " elements");
  }
  return found;
}

std::optional<uint32_t> WeightComparison::StepOf(const DigestedWeight& target, v1::DType dtype, const std::string& name,
                                                 const std::vector<size_t>& blocks) const {
  for (const WeightVersion& version : earlier_) {
    const auto found = version.weights->find(name);
    if (found == version.weights->end() || found->second.shape != target.shape) continue;
    const auto digests = found->second.digests.find(dtype);
    if (digests == found->second.digests.end()) continue;
    const BlockDigests &then = digests->second, &now = target.digests.at(dtype);
    if (std::all_of(blocks.begin(), blocks.end(), [&](size_t block) { return then[block] == now[block]; })) {
      return version.step;
    }
  }
  return std::nullopt;
}

std::string WeightComparison::NameOf(const DigestedWeight& target, v1::DType dtype) const {
  const BlockDigests& blocks = target.digests.at(dtype);
  if (IsZero(blocks)) return "";
  const auto names = by_digest_.find({dtype, WholeDigest(blocks)});
  if (names == by_digest_.end()) return "";
  for (const std::string& name : names->second) {
    const DigestedWeight& other = golden_.at(name);
    if (other.shape == target.shape && other.digests.at(dtype) == blocks) return name;
  }
  return "";
}

}  // namespace msprobe::server
