#include "server/format/storage/block_digest.h"

#include <span>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_format.h"
#include "agent/core/content_hash.h"
#include "agent/core/queue/record_digest.h"

namespace msprobe::server {
namespace {

class BlockDigest {
 public:
  explicit BlockDigest(const v1::Block& block) : block_(block) {
    parents_.reserve(block.parents_size());
    for (const std::string& parent : block.parents()) parents_.push_back(core::DefinitionHash(parent));
    for (const v1::NonFinite& entry : block.non_finite()) non_finite_.emplace(entry.leaf(), &entry);
  }

  uint32_t Of(int i, FragmentColumns at, const StructureSummary& summary) const {
    core::RecordDigest digest({.step = block_.step(),
                               .token = block_.token(),
                               .structure = block_.structures(static_cast<int>(block_.structure(i))),
                               .parent = block_.parent(i) == 0 ? 0 : parents_[block_.parent(i) - 1],
                               .count = block_.count(i),
                               .ordinal = at.ordinal,
                               .flags = block_.fragment_flags(i),
                               .thread = block_.thread_size() == 0 ? 0 : block_.thread(i)});
    for (uint32_t leaf = 0; leaf < summary.leaves; ++leaf) {
      AddLeaf(at, digest);
      TakeLeaf(block_.leaf_flags(static_cast<int>(at.leaf)), at);
    }
    for (uint32_t k = 0; k < summary.integers; ++k) {
      digest.Add(static_cast<uint64_t>(block_.integers(static_cast<int>(at.integers + k))));
    }
    for (uint32_t k = 0; k < summary.floats; ++k) digest.Add(block_.floats(static_cast<int>(at.floats + k)));
    for (uint32_t k = 0; k < summary.booleans; ++k) {
      digest.Add(uint64_t{block_.booleans(static_cast<int>(at.booleans + k))});
    }
    for (uint32_t k = 0; k < summary.strings; ++k) digest.AddText(block_.strings(static_cast<int>(at.strings + k)));
    return digest.value();
  }

 private:
  void AddLeaf(const FragmentColumns& at, core::RecordDigest& digest) const {
    const auto& dims = block_.shapes(static_cast<int>(block_.shape(static_cast<int>(at.leaf)))).dims();
    digest.AddShape(std::span<const int64_t>(dims.data(), static_cast<size_t>(dims.size())));
    const uint32_t flags = block_.leaf_flags(static_cast<int>(at.leaf));
    digest.Add(uint64_t{flags});
    if (flags & v1::LEAF_STATISTICS) {
      AddStatistics(flags, at, digest);
      digest.Add(uint64_t{block_.zero_count(static_cast<int>(at.statistics))});
      if (const auto found = non_finite_.find(at.leaf); found != non_finite_.end())
        AddNonFinite(*found->second, digest);
    }
    if (flags & v1::LEAF_CRC32) digest.Add(uint64_t{block_.crc32(static_cast<int>(at.crc32))});
    if (flags & v1::LEAF_XOR) digest.Add(uint64_t{block_.xor64(static_cast<int>(at.xor64))});
    if (flags & v1::LEAF_PAYLOAD) digest.Add(uint64_t{block_.payload(static_cast<int>(at.payload)).size()});
  }

  void AddStatistics(uint32_t flags, const FragmentColumns& at, core::RecordDigest& digest) const {
    if (TakesInteger(flags)) {
      for (uint32_t k = 0; k < 2; ++k) {
        digest.Add(static_cast<uint64_t>(block_.integer_extremes(static_cast<int>(at.integer * 2 + k))));
      }
      for (uint32_t k = 0; k < 3; ++k) digest.Add(block_.integer_moments(static_cast<int>(at.integer * 3 + k)));
      return;
    }
    for (uint32_t k = 0; k < 5; ++k) {
      if (TakesWide(flags)) {
        digest.Add(block_.wide(static_cast<int>(at.wide * 5 + k)));
      } else {
        digest.Add(block_.narrow(static_cast<int>(at.narrow * 5 + k)));
      }
    }
  }

  static void AddNonFinite(const v1::NonFinite& entry, core::RecordDigest& digest) {
    for (uint64_t count : {entry.nan_count(), entry.positive_inf_count(), entry.negative_inf_count()}) {
      digest.Add(uint64_t{count});
    }
    digest.Add(uint64_t{0} + entry.has_finite_max() + entry.has_finite_min() + entry.has_finite_mean() +
               entry.has_finite_norm());
    if (entry.has_finite_max()) digest.Add(entry.finite_max());
    if (entry.has_finite_min()) digest.Add(entry.finite_min());
    if (entry.has_finite_mean()) digest.Add(entry.finite_mean());
    if (entry.has_finite_norm()) digest.Add(entry.finite_norm());
  }

  const v1::Block& block_;
  std::vector<uint64_t> parents_;
  absl::flat_hash_map<uint32_t, const v1::NonFinite*> non_finite_;  // by leaf
};

}  // namespace

absl::Status CheckDigests(const v1::Block& block, const std::vector<FragmentColumns>& fragments,
                          SummaryLookup structure) {
  if (block.digest_size() == 0) return absl::OkStatus();
  const BlockDigest digest(block);
  for (int i = 0; i < block.digest_size(); ++i) {
    if (block.digest(i) == 0) continue;
    const StructureSummary& summary = *structure(block.structures(static_cast<int>(block.structure(i))));
    const uint32_t taken = digest.Of(i, fragments[i], summary);
    if (taken == block.digest(i)) continue;
    return absl::DataLossError(absl::StrFormat(
        "%s of step %u is not as it was captured: its digest is %08x and was %08x",
        FullName(summary.name, summary.kind, summary.direction, block.count(i)), block.step(), taken, block.digest(i)));
  }
  return absl::OkStatus();
}

}  // namespace msprobe::server
