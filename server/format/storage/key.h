#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "msprobe/v1/record.pb.h"

namespace msprobe::server {

// Keys of every column family; docs/storage_format.md is their specification. Numbers are big-endian, so that the order
// of bytes is the order of numbers.

inline constexpr uint32_t kStorageFormat = 2;

// 16 bytes: a session id, a payload hash.
inline constexpr size_t kIdBytes = 16;

// A rank as one number: ranks as they are (below 2^31), processes with the highest bit set.
uint32_t RankCode(const v1::Rank& rank);
v1::Rank RankOfCode(uint32_t code);
// Whether the number leaves the highest bit free.
bool RankFits(const v1::Rank& rank);
// "rank3" or "proc1234": the directory of mindstudio-probe.
std::string RankName(const v1::Rank& rank);

// Column family "rows": one block of fragments.
struct RowKey {
  uint32_t run = 0;
  uint32_t rank = 0;  // RankCode
  uint32_t step = 0;
  uint32_t token = 0;
  uint32_t epoch = 0;
  uint32_t block = 0;  // grows over the whole step of one session, whatever the token

  static constexpr size_t kBytes = 24;
  std::string Encode() const;
  static absl::StatusOr<RowKey> Decode(std::string_view key);
  // run | rank | step [ | token ]
  static std::string StepPrefix(uint32_t run, uint32_t rank, uint32_t step);
  static std::string RankPrefix(uint32_t run, uint32_t rank);
  std::string ToString() const;
  friend bool operator==(const RowKey&, const RowKey&) = default;
};

// Column family "tiles": some passes of one session by some fragments, entry-major inside. A set is the tiles of the
// same passes; sets of a session are counted from 0.
struct TileKey {
  static constexpr uint32_t kPasses = 48;   // of a full set
  static constexpr uint32_t kEntries = 24;  // tensors of a tile, about
  uint32_t run = 0;
  uint32_t rank = 0;  // RankCode
  uint32_t epoch = 0;
  uint32_t set = 0;
  uint32_t tile = 0;  // in order of fragments

  static constexpr size_t kBytes = 20;
  std::string Encode() const;
  static std::string SetPrefix(uint32_t run, uint32_t rank, uint32_t epoch, uint32_t set);
  static absl::StatusOr<TileKey> Decode(std::string_view key);
  std::string ToString() const;
  friend bool operator==(const TileKey&, const TileKey&) = default;
};

// Column families "extents" and "payloads": one chunk of a payload as one session sent it.
struct ChunkKey {
  std::string hash;  // kIdBytes
  uint32_t run = 0;
  uint32_t epoch = 0;
  uint32_t index = 0;

  static constexpr size_t kBytes = kIdBytes + 12;
  std::string Encode() const;
  static absl::StatusOr<ChunkKey> Decode(std::string_view key);
  static std::string Prefix(std::string_view hash, uint32_t run, uint32_t epoch);
  std::string ToString() const;
  friend bool operator==(const ChunkKey&, const ChunkKey&) = default;
};

// Key spaces of column family "meta": the first byte of each key.
enum class MetaSpace : uint8_t {
  kServer = 1,      // -> ServerRow
  kRunByName = 2,   // name -> number, u32
  kRun = 3,         // run -> RunRow
  kSession = 4,     // session id -> SessionRow
  kDefinition = 5,  // run | id u64 -> 'T' structure or 'K' stack, bytes as sent
  kStep = 6,        // run | rank | step | epoch -> StepRow
  kPayload = 7,     // hash -> PayloadRow
  kPending = 8,     // session id | hash -> PendingRow
  kReference = 9,   // run | hash -> ReferenceRow
  kReferrer = 10,   // hash | run -> empty
  kFault = 11,      // run | rank | step | epoch | n -> Marker.Fault
  kEpoch = 12,      // run | epoch -> session id, bare
  kUntiled = 13,    // run | rank | step | epoch -> empty: finished, and its rows wait for tiles
  kTiled = 14,      // run | rank | step | epoch -> TiledRow
  kTileSet = 15,    // run | rank | epoch | set -> TileSetRow
};

// Which session's view of which step of which rank.
struct StepKey {
  uint32_t run = 0;
  uint32_t rank = 0;  // RankCode
  uint32_t step = 0;
  uint32_t epoch = 0;

  // In kStep, or in another space of the same form.
  std::string Encode(MetaSpace space = MetaSpace::kStep) const;
  static absl::StatusOr<StepKey> Decode(std::string_view key);
  std::string ToString() const;
  friend bool operator==(const StepKey&, const StepKey&) = default;
};

std::string ServerKey();
std::string RunByNameKey(std::string_view name);
std::string RunKey(uint32_t run);
std::string SessionKey(std::string_view session);
std::string DefinitionKey(uint32_t run, uint64_t id);
std::string PayloadKey(std::string_view hash);
std::string PendingKey(std::string_view session, std::string_view hash);
std::string ReferenceKey(uint32_t run, std::string_view hash);
std::string ReferrerKey(std::string_view hash, uint32_t run);
std::string FaultKey(const StepKey& step, uint32_t n);
std::string EpochKey(uint32_t run, uint32_t epoch);
std::string TileSetKey(uint32_t run, uint32_t rank, uint32_t epoch, uint32_t set);

// Prefixes for iteration.
std::string MetaPrefix(MetaSpace space);
std::string MetaPrefix(MetaSpace space, uint32_t run);
std::string MetaPrefix(MetaSpace space, uint32_t run, uint32_t rank);
std::string MetaPrefix(MetaSpace space, std::string_view id);

// A meta key for people: "step run=1 rank=rank0 step=3 epoch=0". Never fails; unknown bytes are shown in hex.
std::string MetaKeyToString(std::string_view key);

// The smallest key after every key that begins with `prefix`; empty where there is none.
std::string PrefixEnd(std::string_view prefix);

// Lower-case hex.
std::string Hex(std::string_view bytes);

// Big-endian numbers at the end of a string, and from bytes.
void AppendU32(std::string& out, uint32_t value);
void AppendU64(std::string& out, uint64_t value);
uint32_t ReadU32(std::string_view bytes, size_t offset);
uint64_t ReadU64(std::string_view bytes, size_t offset);

}  // namespace msprobe::server
