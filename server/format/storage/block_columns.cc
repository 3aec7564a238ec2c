#include "server/format/storage/block_columns.h"

#include <limits>

#include "absl/strings/str_format.h"
#include "server/format/cat.h"
#include "server/format/storage/key.h"

namespace msprobe::server {
namespace {

absl::Status Length(std::string_view column, uint64_t got, uint64_t wanted) {
  if (got == wanted) return absl::OkStatus();
  return absl::InvalidArgumentError(Cat("column ", column, " has ", got, " values, ", wanted, " are needed"));
}

absl::Status Index(std::string_view column, uint64_t index, uint64_t size) {
  if (index < size) return absl::OkStatus();
  return absl::InvalidArgumentError(Cat("column ", column, " points at ", index, " of a table of ", size, " entries"));
}

struct Wanted {
  std::string_view column;
  uint64_t got;
  uint64_t needed;
};

absl::Status Lengths(std::initializer_list<Wanted> columns) {
  for (const Wanted& column : columns) {
    if (absl::Status status = Length(column.column, column.got, column.needed); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status CheckPerFragment(const v1::Block& block) {
  const uint64_t n = block.structure_size();
  absl::Status status = Lengths({{"count", static_cast<uint64_t>(block.count_size()), n},
                                 {"ordinal_delta", static_cast<uint64_t>(block.ordinal_delta_size()), n},
                                 {"fragment_flags", static_cast<uint64_t>(block.fragment_flags_size()), n},
                                 {"stack", static_cast<uint64_t>(block.stack_size()), n},
                                 {"parent", static_cast<uint64_t>(block.parent_size()), n}});
  if (status.ok() && block.thread_size() != 0) status = Length("thread", block.thread_size(), n);
  if (status.ok() && block.digest_size() != 0) status = Length("digest", block.digest_size(), n);
  return status;
}

absl::Status CheckIds(const v1::Block& block, StackLookup has_stack) {
  for (uint64_t stack : block.stacks()) {
    if (!has_stack(stack)) {
      return absl::InvalidArgumentError(absl::StrFormat("stack %016x was never defined", stack));
    }
  }
  for (const v1::Shape& shape : block.shapes()) {
    for (int64_t dim : shape.dims()) {
      if (dim < 0) return absl::InvalidArgumentError(Cat("a shape has the dimension ", dim));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckLeafIndexes(const v1::Block& block) {
  for (uint32_t shape : block.shape()) {
    if (absl::Status status = Index("shape", shape, block.shapes_size()); !status.ok()) return status;
  }
  for (const v1::NonFinite& entry : block.non_finite()) {
    if (absl::Status status = Index("non_finite", entry.leaf(), block.shape_size()); !status.ok()) return status;
  }
  for (const v1::PayloadRef& payload : block.payload()) {
    if (payload.hash().size() != kIdBytes) {
      return absl::InvalidArgumentError(Cat("a payload hash has ", payload.hash().size(), " bytes, not ", kIdBytes));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckEnds(const v1::Block& block, const FragmentColumns& end) {
  return Lengths({{"shape", static_cast<uint64_t>(block.shape_size()), end.leaf},
                  {"zero_count", static_cast<uint64_t>(block.zero_count_size()), end.statistics},
                  {"narrow", static_cast<uint64_t>(block.narrow_size()), uint64_t{end.narrow} * 5},
                  {"wide", static_cast<uint64_t>(block.wide_size()), uint64_t{end.wide} * 5},
                  {"integer_extremes", static_cast<uint64_t>(block.integer_extremes_size()), uint64_t{end.integer} * 2},
                  {"integer_moments", static_cast<uint64_t>(block.integer_moments_size()), uint64_t{end.integer} * 3},
                  {"crc32", static_cast<uint64_t>(block.crc32_size()), end.crc32},
                  {"xor64", static_cast<uint64_t>(block.xor64_size()), end.xor64},
                  {"payload", static_cast<uint64_t>(block.payload_size()), end.payload},
                  {"integers", static_cast<uint64_t>(block.integers_size()), end.integers},
                  {"floats", static_cast<uint64_t>(block.floats_size()), end.floats},
                  {"edge", static_cast<uint64_t>(block.edge_size()), block.edge_size() == 0 ? 0 : end.leaf},
                  {"edge_distance", static_cast<uint64_t>(block.edge_distance_size()), end.producers},
                  {"edge_leaf", static_cast<uint64_t>(block.edge_leaf_size()), end.producers},
                  {"booleans", static_cast<uint64_t>(block.booleans_size()), end.booleans},
                  {"strings", static_cast<uint64_t>(block.strings_size()), end.strings}});
}

}  // namespace

absl::StatusOr<std::vector<FragmentColumns>> CheckBlock(const v1::Block& block, SummaryLookup structure,
                                                        StackLookup has_stack) {
  absl::Status status = CheckPerFragment(block);
  if (status.ok()) status = CheckIds(block, has_stack);
  if (!status.ok()) return status;

  std::vector<const StructureSummary*> summaries;
  summaries.reserve(block.structures_size());
  for (uint64_t id : block.structures()) {
    summaries.push_back(structure(id));
    if (summaries.back() == nullptr) {
      return absl::InvalidArgumentError(absl::StrFormat("structure %016x was never defined", id));
    }
  }

  std::vector<FragmentColumns> fragments;
  fragments.reserve(block.structure_size());
  FragmentColumns next;
  int64_t ordinal = 0;
  for (int i = 0; i < block.structure_size(); ++i) {
    if (status = Index("structure", block.structure(i), summaries.size()); !status.ok()) return status;
    if (block.stack(i) != 0) status = Index("stack", block.stack(i) - 1, block.stacks_size());
    if (status.ok() && block.parent(i) != 0) status = Index("parent", block.parent(i) - 1, block.parents_size());
    if (!status.ok()) return status;
    if (__builtin_add_overflow(ordinal, block.ordinal_delta(i), &ordinal) || ordinal < 0) {
      return absl::InvalidArgumentError(Cat("column ordinal_delta leads to a negative ordinal at fragment ", i));
    }
    const StructureSummary& summary = *summaries[block.structure(i)];
    next.ordinal = static_cast<uint64_t>(ordinal);
    fragments.push_back(next);
    // Must come before any loop over leaves: a small message may name a structure with millions of slots many times.
    if (uint64_t{next.leaf} + summary.leaves > static_cast<uint64_t>(block.leaf_flags_size())) {
      return absl::InvalidArgumentError(Cat("column leaf_flags has ", block.leaf_flags_size(), " values, fragment ", i,
                                            " (", summary.name, ") needs more"));
    }
    for (uint32_t leaf = 0; leaf < summary.leaves; ++leaf) {
      if (static_cast<int>(next.leaf) < block.edge_size()) next.producers += NamesProducer(block.edge(next.leaf));
      TakeLeaf(block.leaf_flags(next.leaf), next);
    }
    next.integers += summary.integers;
    next.floats += summary.floats;
    next.booleans += summary.booleans;
    next.strings += summary.strings;
  }
  status = Length("leaf_flags", block.leaf_flags_size(), next.leaf);
  if (status.ok()) status = CheckEnds(block, next);
  if (status.ok()) status = CheckLeafIndexes(block);
  if (!status.ok()) return status;
  return fragments;
}

}  // namespace msprobe::server
