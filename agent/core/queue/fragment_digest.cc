#include "agent/core/queue/fragment_digest.h"

#include <algorithm>
#include <optional>

#include "agent/core/queue/dictionary.h"
#include "agent/core/queue/leaf_flags.h"
#include "agent/core/queue/record_digest.h"
#include "agent/core/record.h"
#include "agent/core/utf8.h"
#include "msprobe/v1/record.pb.h"

namespace msprobe::core {
namespace {

void AddNonFinite(const Leaf& leaf, RecordDigest* digest) {
  for (uint64_t count : {leaf.nan_count, leaf.positive_inf_count, leaf.negative_inf_count}) digest->Add(count);
  digest->Add(uint64_t{leaf.has_finite ? 4U : 0U});
  if (!leaf.has_finite) return;
  for (double value : {leaf.finite_max, leaf.finite_min, leaf.finite_mean, leaf.finite_norm}) digest->Add(value);
}

void AddLeaf(const Leaf& leaf, RecordDigest* digest) {
  digest->AddShape(leaf.shape);
  const uint32_t flags = LeafFlags(leaf);
  digest->Add(uint64_t{flags});
  if (flags & v1::LEAF_STATISTICS) {
    if (flags & v1::LEAF_INTEGER) {
      digest->Add(static_cast<uint64_t>(leaf.integer_max));
      digest->Add(static_cast<uint64_t>(leaf.integer_min));
      for (double value : {leaf.mean, leaf.norm, leaf.variance}) digest->Add(value);
    } else {
      for (double value : {leaf.max, leaf.min, leaf.mean, leaf.norm, leaf.variance}) {
        if (flags & v1::LEAF_WIDE) {
          digest->Add(value);
        } else {
          digest->Add(static_cast<float>(value));
        }
      }
    }
    digest->Add(leaf.zero_count);
    if (HasNonFinite(leaf)) AddNonFinite(leaf, digest);
  }
  if (leaf.crc32.has_value()) digest->Add(uint64_t{*leaf.crc32});
  if (leaf.xor64.has_value()) digest->Add(*leaf.xor64);
  if (leaf.payload != nullptr) digest->Add(uint64_t{leaf.payload->size()});
}

}  // namespace

uint32_t DigestOf(const Fragment& fragment, const Dictionary& dictionary) {
  const std::optional<Dictionary::Hashes> hashes = dictionary.hashes(fragment.structure, fragment.parent);
  if (!hashes.has_value()) return 0;
  RecordDigest digest({.step = fragment.step,
                       .token = fragment.token,
                       .structure = hashes->structure,
                       .parent = hashes->parent,
                       .count = fragment.count,
                       .ordinal = fragment.ordinal,
                       .flags = fragment.flags,
                       .thread = fragment.thread});
  for (const Leaf& leaf : fragment.leaves) AddLeaf(leaf, &digest);
  for (int64_t value : fragment.integers) digest.Add(static_cast<uint64_t>(value));
  for (double value : fragment.floats) digest.Add(value);
  for (bool value : fragment.booleans) digest.Add(uint64_t{value});
  for (std::string_view text : fragment.strings) {
    if (IsUtf8(text)) {
      digest.AddText(text);
    } else {
      digest.AddText(ToUtf8(text));
    }
  }
  return digest.value();
}

uint32_t DigestAtCapture(const Fragment& fragment, const Dictionary& dictionary) {
  const bool is_final =
      std::all_of(fragment.leaves.begin(), fragment.leaves.end(), [](const Leaf& leaf) { return !leaf.pending; });
  return is_final ? DigestOf(fragment, dictionary) : 0;
}

}  // namespace msprobe::core
