#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <string_view>

#include "absl/container/inlined_vector.h"

namespace msprobe::core {

// Block.digest: what a fragment says, in 32 bits. The capturing process takes it before the fragment goes anywhere;
// whoever reads the fragment, from a store, from tiles or from another server, takes it again and compares.
//
// It is the lower half of XXH3-64 (0 is written as 1: none is 0) over 64-bit words in this order: those of the
// constructor; then of each leaf its shape, its LeafFlags, its statistics as they travel, zero count, NonFinite,
// CRC-32, XOR and size of its payload, as far as it has them; then integers, floats, booleans and strings. Not in it:
// the stack, whose source lines are read later, and the content of payloads, whose names are hashes of it.
class RecordDigest {
 public:
  struct Head {
    uint32_t step = 0, token = 0;
    uint64_t structure = 0;  // its definition's id
    uint64_t parent = 0;     // DefinitionHash of the full name; 0: null
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
