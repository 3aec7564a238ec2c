#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "msprobe/v1/ingest.pb.h"
#include "msprobe/v1/record.pb.h"

namespace msprobe::server {

// For tests and benchmarks: passes of an invented model, which repeat as real ones do: the same calls with new numbers.
//
// A call is an ENTER and an EXIT fragment. Most leaves are float32. With `variety`, some calls have everything else
// that a block can hold: 64-bit floats, integers beyond 2^53, booleans, NaN and infinities, leaves without checksums,
// payload references, scalars of all kinds, and a field that only some steps have.
class RepeatedPass {
 public:
  struct Options {
    uint32_t calls = 500;  // each with one input leaf and one output leaf
    bool variety = false;
    bool varying_shapes = false;  // each pass has another first dimension
    uint64_t seed = 1;
  };
  explicit RepeatedPass(const Options& options);

  // The definitions of all structures and of the stack.
  const std::vector<v1::Definition>& definitions() const { return definitions_; }
  uint32_t leaves() const { return leaves_; }

  // One pass, cut into blocks of at most `calls_a_block` calls.
  std::vector<v1::Block> Blocks(uint32_t step, uint32_t token, uint32_t calls_a_block = 1'000'000) const;

 private:
  struct Call {
    uint32_t enter = 0;  // indexes into structures_
    uint32_t exit = 0;
    uint32_t count = 0;
  };
  uint32_t Define(const v1::Structure& structure);

  const Options options_;
  std::vector<v1::Structure> structures_;
  std::vector<uint64_t> ids_;
  std::vector<v1::Definition> definitions_;
  std::vector<Call> calls_;
  uint64_t stack_ = 0;
  uint32_t leaves_ = 0;
};

}  // namespace msprobe::server
