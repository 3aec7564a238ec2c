#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "msprobe/v1/record.pb.h"

namespace msprobe::server {

// The keys of every column family. docs/storage_format.md is the specification. Numbers are big-endian, so that keys
// sort by number.

inline constexpr uint32_t kStorageFormat = 2;

// Bytes of a session id and of a payload hash.
inline constexpr size_t kIdBytes = 16;

// A rank as one number: a rank keeps its number (below 2^31), a process has the highest bit set.
uint32_t RankCode(const v1::Rank& rank);
v1::Rank RankOfCode(uint32_t code);
// Whether the number is below 2^31.
bool RankFits(const v1::Rank& rank);
// "rank3" or "proc1234", the name of the directory in mindstudio-probe's dumps.
std::string RankName(const v1::Rank& rank);

// Column family "rows": one block of fragments.
struct RowKey {
  uint32_t run = 0;
  uint32_t rank = 0;  // RankCode
  uint32_t step = 0;
  uint32_t token = 0;
  uint32_t epoch = 0;
  uint32_t block = 0;  // counts the blocks of one step of one session, over all tokens

  static constexpr size_t kBytes = 24;
  std::string Encode() const;
  static absl::StatusOr<RowKey> Decode(std::string_view key);
  // run | rank | step [ | token ]
  static std::string StepPrefix(uint32_t run, uint32_t rank, uint32_t step);
  static std::string RankPrefix(uint32_t run, uint32_t rank);
  std::string ToString() const;
  friend bool operator==(const RowKey&, const RowKey&) = default;
};

// Column family "tiles": a tile holds some fragments of some passes of one session, in entry-major order. A set is all
// tiles of the same passes. The sets of a session are numbered from 0.
struct TileKey {
  static constexpr uint32_t kPasses = 48;   // in a full set
  static constexpr uint32_t kEntries = 24;  // tensors in a tile, about
  uint32_t run = 0;
  uint32_t rank = 0;  // RankCode
  uint32_t epoch = 0;
  uint32_t set = 0;
  uint32_t tile = 0;  // number of the tile in its set, in order of fragments

  static constexpr size_t kBytes = 20;
  std::string Encode() const;
  static std::string SetPrefix(uint32_t run, uint32_t rank, uint32_t epoch, uint32_t set);
  static absl::StatusOr<TileKey> Decode(std::string_view key);
  std::string ToString() const;
  friend bool operator==(const TileKey&, const TileKey&) = default;
};

// Column families "extents" and "payloads": one chunk of a payload that one session sent.
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

// The key spaces of column family "meta". A key begins with the byte of its space.
enum class MetaSpace : uint8_t {
  kServer = 1,        // -> ServerRow
  kRunByName = 2,     // name -> number, u32
  kRun = 3,           // run -> RunRow
  kSession = 4,       // session id -> SessionRow
  kDefinition = 5,    // run | id u64 -> 'T' structure or 'K' stack, bytes as sent
  kStep = 6,          // run | rank | step | epoch -> StepRow
  kPayload = 7,       // hash -> PayloadRow
  kPending = 8,       // session id | hash -> PendingRow
  kReference = 9,     // run | hash -> ReferenceRow
  kReferrer = 10,     // hash | run -> empty
  kFault = 11,        // run | rank | step | epoch | n -> Marker.Fault
  kEpoch = 12,        // run | epoch -> session id, bare
  kUntiled = 13,      // run | rank | step | epoch -> empty: a finished step whose rows are to become tiles
  kTiled = 14,        // run | rank | step | epoch -> TiledRow
  kTileSet = 15,      // run | rank | epoch | set -> TileSetRow
  kJob = 16,          // run | job -> JobRow
  kJobProgress = 17,  // run | job -> JobProgressRow
  kJobItem = 18,      // run | job | item -> msprobe.v1.JobItem
  kJobLease = 19,     // run | job | lease u64 -> JobLeaseRow
  kJobReturned = 20,  // run | job | item -> JobReturnedRow
  kJobResult = 21,    // run | job | order -> msprobe.v1.ItemResult
  kJobResultOf = 22,  // run | job | item -> order, u32, and lease, u64
  kSeries = 23,       // run | XXH3-64 of the name, u64 -> the name, bare
  kScalars = 24,      // run | epoch | batch_sequence u64 -> ScalarsRow: points that are not in tiles yet
  kSeriesTile = 25,   // run | epoch | series u64 | first step | batch_sequence u64 -> a tile of one series
  kAlarm = 26,        // run | number -> msprobe.v1.Alarm
  kRules = 27,        // run -> msprobe.v1.RuleSet, in place of the server's
  kHold = 28,         // run | epoch | step | hash -> empty: a payload of a step whose calls have no verdict yet
  kHolder = 29,       // run | hash | epoch | step -> empty: a step that needs the payload
  kNotice = 30,       // run | number | receiver u64 -> NoticeRow: an alarm of which a receiver hears
};

// One step of one rank, in the view of one session.
struct StepKey {
  uint32_t run = 0;
  uint32_t rank = 0;  // RankCode
  uint32_t step = 0;
  uint32_t epoch = 0;

  // The key in kStep, or in another space whose keys have the same parts.
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
// A key of kJob or kJobProgress, and the prefix of all keys of the job in one of the spaces after them.
std::string JobKey(MetaSpace space, uint32_t run, uint32_t job);
// A key of the spaces that count: items, or results in their order.
std::string JobPartKey(MetaSpace space, uint32_t run, uint32_t job, uint32_t part);
std::string JobLeaseKey(uint32_t run, uint32_t job, uint64_t lease);
std::string SeriesKey(uint32_t run, uint64_t series);
std::string ScalarsKey(uint32_t run, uint32_t epoch, uint64_t batch);
std::string AlarmKey(uint32_t run, uint32_t number);
struct NoticeKey {
  uint32_t run = 0;
  uint32_t number = 0;    // of the alarm
  uint64_t receiver = 0;  // NoticeReceiver::id

  std::string Encode() const;
  static absl::StatusOr<NoticeKey> Decode(std::string_view key);
  friend auto operator<=>(const NoticeKey&,
                          const NoticeKey&) = default;  // NOLINT(modernize-use-nullptr): it has no pointer
};
// The prefix of all holds of a step is that of an empty hash.
std::string HoldKey(uint32_t run, uint32_t epoch, uint32_t step, std::string_view hash);
// The prefix of all holders of a payload.
std::string HolderPrefix(uint32_t run, std::string_view hash);
std::string HolderKey(uint32_t run, std::string_view hash, uint32_t epoch, uint32_t step);

// A tile of scalars. Of one session the later batch wins where two have the same step.
struct SeriesTileKey {
  uint32_t run = 0;
  uint32_t epoch = 0;
  uint64_t series = 0;
  uint32_t first_step = 0;
  uint64_t batch = 0;  // the last that is in the tile

  std::string Encode() const;
  static std::string Prefix(uint32_t run, uint32_t epoch, uint64_t series);
  static absl::StatusOr<SeriesTileKey> Decode(std::string_view key);
};

// The value in kJobResultOf.
struct JobResultPlace {
  uint32_t order = 0;  // of the item's result
  uint64_t lease = 0;  // that gave it; 0: the server itself

  std::string Encode() const;
  static absl::StatusOr<JobResultPlace> Decode(std::string_view value);
  friend bool operator==(const JobResultPlace&, const JobResultPlace&) = default;
};

// Prefixes for iteration.
std::string MetaPrefix(MetaSpace space);
std::string MetaPrefix(MetaSpace space, uint32_t run);
std::string MetaPrefix(MetaSpace space, uint32_t run, uint32_t rank);
std::string MetaPrefix(MetaSpace space, std::string_view id);

// Shows a meta key to people: "step run=1 rank=rank0 step=3 epoch=0". Never fails; unknown bytes are shown in hex.
std::string MetaKeyToString(std::string_view key);

// The smallest key after all keys that begin with `prefix`; empty if there is none.
std::string PrefixEnd(std::string_view prefix);

// Lower-case hex.
std::string Hex(std::string_view bytes);

// Append and read big-endian numbers.
void AppendU32(std::string& out, uint32_t value);
void AppendU64(std::string& out, uint64_t value);
uint32_t ReadU32(std::string_view bytes, size_t offset);
uint64_t ReadU64(std::string_view bytes, size_t offset);

}  // namespace msprobe::server
