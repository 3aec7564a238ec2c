#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"

struct XXH3_state_s;

namespace msprobe::server {

// One payload on its way in: the order of its chunks and the hash of what has come. One thread at a time.
class PayloadUpload {
 public:
  explicit PayloadUpload(uint64_t size);

  // InvalidArgument: not the next offset, or more bytes than were announced.
  absl::Status Add(uint64_t offset, std::string_view content);

  uint64_t received() const { return received_; }
  uint32_t chunks() const { return chunks_; }
  // Of every chunk but the last; 0: they differ.
  uint32_t chunk_bytes() const { return even_ ? chunk_bytes_ : 0; }
  // XXH3-128, big-endian canonical form, of what has come.
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

// XXH3-64, seed 0: the id of a definition.
uint64_t DefinitionId(std::string_view bytes);

}  // namespace msprobe::server
