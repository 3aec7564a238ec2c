#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"

struct XXH3_state_s;

namespace msprobe::server {

// One payload on its way in: checks the order of its chunks and hashes what has come. Threads: one at a time.
class PayloadUpload {
 public:
  explicit PayloadUpload(uint64_t size);

  // InvalidArgument: not the next offset, or more bytes than were announced.
  absl::Status Add(uint64_t offset, std::string_view content);

  uint64_t received() const { return received_; }
  uint32_t chunks() const { return chunks_; }
  // The size of every chunk but the last; 0: they differ.
  uint32_t chunk_bytes() const { return even_ ? chunk_bytes_ : 0; }
  // XXH3-128 of what has come, in the big-endian canonical form.
  std::string Hash() const;

 private:
  struct FreeState {
    void operator()(XXH3_state_s* state) const;
  };
  const uint64_t size_;
  uint64_t received_ = 0;
  uint32_t chunks_ = 0;
  uint32_t chunk_bytes_ = 0;  // of the first
  bool even_ = true;
  std::unique_ptr<XXH3_state_s, FreeState> state_;
};

// The id of a definition: XXH3-64 of its bytes, seed 0.
uint64_t DefinitionId(std::string_view bytes);

}  // namespace msprobe::server
