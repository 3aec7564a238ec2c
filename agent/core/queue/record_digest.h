#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <string_view>

#include "absl/container/inlined_vector.h"

namespace msprobe::core {

// Computes Block.digest, a 32-bit hash of what a fragment says. The capturing process computes it before the fragment
// goes anywhere. Every reader of the fragment, from a store, a tile or another server, computes it again and compares.
//
// It is the lower half of the XXH3-64 of a sequence of 64-bit words, with 1 in place of 0, because 0 means "no digest".
// The words are those of the constructor; for each leaf its shape, LeafFlags, and as far as it has them its statistics
// in wire form, zero count, NonFinite, CRC-32, XOR and payload size; then integers, floats, booleans and strings.
// Stacks are left out, because their source lines are read later, and so is payload content, because its name is its
// hash. Edges are left out, because earlier servers, which share a run with this one, know nothing of them.
class RecordDigest {
 public:
  struct Head {
    uint32_t step = 0, token = 0;
    uint64_t structure = 0;  // the id of the definition
    uint64_t parent = 0;     // DefinitionHash of the full name; 0: no parent
    uint32_t count = 0;
    uint64_t ordinal = 0;
    uint32_t flags = 0;
    uint32_t thread = 0;
  };
  explicit RecordDigest(const Head& head);

  void Add(uint64_t word) { words_.push_back(word); }
  void Add(float value) { words_.push_back(std::bit_cast<uint32_t>(value)); }
  void Add(double value) { words_.push_back(std::bit_cast<uint64_t>(value)); }
  void AddShape(std::span<const int64_t> dims);
  void AddText(std::string_view text);  // well-formed UTF-8

  uint32_t value() const;

 private:
  absl::InlinedVector<uint64_t, 256> words_;
};

}  // namespace msprobe::core
