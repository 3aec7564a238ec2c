#include "server/format/storage/key.h"

#include "absl/strings/escaping.h"
#include "server/format/cat.h"

namespace msprobe::server {
namespace {

constexpr uint32_t kProcessBit = 0x80000000u;

absl::Status WrongLength(std::string_view what, size_t wanted, std::string_view key) {
  return absl::DataLossError(Cat(what, " key has ", key.size(), " bytes, not ", wanted, ": ", Hex(key)));
}

std::string Space(MetaSpace space) { return std::string(1, static_cast<char>(space)); }

std::string CodeName(uint32_t code) { return RankName(RankOfCode(code)); }

std::string_view JobSpaceName(char space) {
  constexpr std::string_view kNames[] = {"job",          "job_progress", "job_item",     "job_lease",
                                         "job_returned", "job_result",   "job_result_of"};
  return kNames[space - static_cast<char>(MetaSpace::kJob)];
}

std::string JobName(std::string_view rest) { return Cat(" run=", ReadU32(rest, 0), " job=", ReadU32(rest, 4)); }

}  // namespace

void AppendU32(std::string& out, uint32_t value) {
  char bytes[4] = {static_cast<char>(value >> 24), static_cast<char>(value >> 16), static_cast<char>(value >> 8),
                   static_cast<char>(value)};
  out.append(bytes, 4);
}

void AppendU64(std::string& out, uint64_t value) {
  AppendU32(out, static_cast<uint32_t>(value >> 32));
  AppendU32(out, static_cast<uint32_t>(value));
}

uint32_t ReadU32(std::string_view bytes, size_t offset) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<uint8_t>(bytes[offset + i]);
  return value;
}

uint64_t ReadU64(std::string_view bytes, size_t offset) {
  return uint64_t{ReadU32(bytes, offset)} << 32 | ReadU32(bytes, offset + 4);
}

std::string Hex(std::string_view bytes) { return absl::BytesToHexString(AbslView(bytes)); }

uint32_t RankCode(const v1::Rank& rank) {
  return rank.kind() == v1::Rank::RANK ? rank.number() : kProcessBit | rank.number();
}

v1::Rank RankOfCode(uint32_t code) {
  v1::Rank rank;
  rank.set_kind(code & kProcessBit ? v1::Rank::PROCESS : v1::Rank::RANK);
  rank.set_number(code & ~kProcessBit);
  return rank;
}

bool RankFits(const v1::Rank& rank) { return rank.number() < kProcessBit; }

std::string RankName(const v1::Rank& rank) {
  return Cat(rank.kind() == v1::Rank::RANK ? "rank" : "proc", rank.number());
}

std::string RowKey::Encode() const {
  std::string key;
  key.reserve(kBytes);
  for (uint32_t part : {run, rank, step, token, epoch, block}) AppendU32(key, part);
  return key;
}

absl::StatusOr<RowKey> RowKey::Decode(std::string_view key) {
  if (key.size() != kBytes) return WrongLength("row", kBytes, key);
  return RowKey{ReadU32(key, 0),  ReadU32(key, 4),  ReadU32(key, 8),
                ReadU32(key, 12), ReadU32(key, 16), ReadU32(key, 20)};
}

std::string RowKey::RankPrefix(uint32_t run, uint32_t rank) {
  std::string key;
  AppendU32(key, run);
  AppendU32(key, rank);
  return key;
}

std::string RowKey::StepPrefix(uint32_t run, uint32_t rank, uint32_t step) {
  std::string key = RankPrefix(run, rank);
  AppendU32(key, step);
  return key;
}

std::string RowKey::ToString() const {
  return Cat("run=", run, " rank=", CodeName(rank), " step=", step, " token=", token, " epoch=", epoch,
             " block=", block);
}

std::string TileKey::Encode() const {
  std::string key;
  for (uint32_t part : {run, rank, epoch, set, tile}) AppendU32(key, part);
  return key;
}

std::string TileKey::SetPrefix(uint32_t run, uint32_t rank, uint32_t epoch, uint32_t set) {
  std::string key = TileKey{run, rank, epoch, set, 0}.Encode();
  key.resize(key.size() - sizeof(uint32_t));
  return key;
}

absl::StatusOr<TileKey> TileKey::Decode(std::string_view key) {
  if (key.size() != kBytes) return WrongLength("tile", kBytes, key);
  return TileKey{ReadU32(key, 0), ReadU32(key, 4), ReadU32(key, 8), ReadU32(key, 12), ReadU32(key, 16)};
}

std::string TileKey::ToString() const {
  return Cat("run=", run, " rank=", CodeName(rank), " epoch=", epoch, " set=", set, " tile=", tile);
}

std::string ChunkKey::Prefix(std::string_view hash, uint32_t run, uint32_t epoch) {
  std::string key(hash);
  AppendU32(key, run);
  AppendU32(key, epoch);
  return key;
}

std::string ChunkKey::Encode() const {
  std::string key = Prefix(hash, run, epoch);
  AppendU32(key, index);
  return key;
}

absl::StatusOr<ChunkKey> ChunkKey::Decode(std::string_view key) {
  if (key.size() != kBytes) return WrongLength("payload chunk", kBytes, key);
  return ChunkKey{std::string(key.substr(0, kIdBytes)), ReadU32(key, kIdBytes), ReadU32(key, kIdBytes + 4),
                  ReadU32(key, kIdBytes + 8)};
}

std::string ChunkKey::ToString() const {
  return Cat("hash=", Hex(hash), " run=", run, " epoch=", epoch, " index=", index);
}

std::string StepKey::Encode(MetaSpace space) const {
  std::string key = Space(space);
  for (uint32_t part : {run, rank, step, epoch}) AppendU32(key, part);
  return key;
}

absl::StatusOr<StepKey> StepKey::Decode(std::string_view key) {
  if (key.size() != 17) return WrongLength("step", 17, key);
  return StepKey{ReadU32(key, 1), ReadU32(key, 5), ReadU32(key, 9), ReadU32(key, 13)};
}

std::string StepKey::ToString() const {
  return Cat("run=", run, " rank=", CodeName(rank), " step=", step, " epoch=", epoch);
}

std::string ServerKey() { return Space(MetaSpace::kServer); }
std::string RunByNameKey(std::string_view name) { return Cat(Space(MetaSpace::kRunByName), name); }
std::string RunKey(uint32_t run) { return MetaPrefix(MetaSpace::kRun, run); }
std::string SessionKey(std::string_view session) { return MetaPrefix(MetaSpace::kSession, session); }

std::string DefinitionKey(uint32_t run, uint64_t id) {
  std::string key = MetaPrefix(MetaSpace::kDefinition, run);
  AppendU64(key, id);
  return key;
}

std::string PayloadKey(std::string_view hash) { return MetaPrefix(MetaSpace::kPayload, hash); }

std::string PendingKey(std::string_view session, std::string_view hash) {
  return Cat(Space(MetaSpace::kPending), session, hash);
}

std::string ReferenceKey(uint32_t run, std::string_view hash) {
  return Cat(MetaPrefix(MetaSpace::kReference, run), hash);
}

std::string ReferrerKey(std::string_view hash, uint32_t run) {
  std::string key = MetaPrefix(MetaSpace::kReferrer, hash);
  AppendU32(key, run);
  return key;
}

std::string FaultKey(const StepKey& step, uint32_t n) {
  std::string key = MetaPrefix(MetaSpace::kFault, step.run, step.rank);
  for (uint32_t part : {step.step, step.epoch, n}) AppendU32(key, part);
  return key;
}

std::string EpochKey(uint32_t run, uint32_t epoch) {
  std::string key = MetaPrefix(MetaSpace::kEpoch, run);
  AppendU32(key, epoch);
  return key;
}

std::string TileSetKey(uint32_t run, uint32_t rank, uint32_t epoch, uint32_t set) {
  std::string key = MetaPrefix(MetaSpace::kTileSet, run, rank);
  AppendU32(key, epoch);
  AppendU32(key, set);
  return key;
}

std::string JobKey(MetaSpace space, uint32_t run, uint32_t job) { return MetaPrefix(space, run, job); }

std::string JobPartKey(MetaSpace space, uint32_t run, uint32_t job, uint32_t part) {
  std::string key = JobKey(space, run, job);
  AppendU32(key, part);
  return key;
}

std::string JobLeaseKey(uint32_t run, uint32_t job, uint64_t lease) {
  std::string key = JobKey(MetaSpace::kJobLease, run, job);
  AppendU64(key, lease);
  return key;
}

std::string SeriesKey(uint32_t run, uint64_t series) {
  std::string key = MetaPrefix(MetaSpace::kSeries, run);
  AppendU64(key, series);
  return key;
}

std::string ScalarsKey(uint32_t run, uint32_t epoch, uint64_t batch) {
  std::string key = MetaPrefix(MetaSpace::kScalars, run, epoch);
  AppendU64(key, batch);
  return key;
}

std::string AlarmKey(uint32_t run, uint32_t number) { return MetaPrefix(MetaSpace::kAlarm, run, number); }

std::string NoticeKey::Encode() const {
  std::string key = MetaPrefix(MetaSpace::kNotice, run, number);
  AppendU64(key, receiver);
  return key;
}

absl::StatusOr<NoticeKey> NoticeKey::Decode(std::string_view key) {
  if (key.size() != 17) return absl::DataLossError(Cat("the key of a notice has ", key.size(), " bytes, not 17"));
  return NoticeKey{ReadU32(key, 1), ReadU32(key, 5), ReadU64(key, 9)};
}

std::string HoldKey(uint32_t run, uint32_t epoch, uint32_t step, std::string_view hash) {
  std::string key = MetaPrefix(MetaSpace::kHold, run, epoch);
  AppendU32(key, step);
  return key.append(hash);
}

std::string HolderPrefix(uint32_t run, std::string_view hash) {
  return MetaPrefix(MetaSpace::kHolder, run).append(hash);
}

std::string HolderKey(uint32_t run, std::string_view hash, uint32_t epoch, uint32_t step) {
  std::string key = HolderPrefix(run, hash);
  AppendU32(key, epoch);
  AppendU32(key, step);
  return key;
}

std::string SeriesTileKey::Prefix(uint32_t run, uint32_t epoch, uint64_t series) {
  std::string key = MetaPrefix(MetaSpace::kSeriesTile, run, epoch);
  AppendU64(key, series);
  return key;
}

std::string SeriesTileKey::Encode() const {
  std::string key = Prefix(run, epoch, series);
  AppendU32(key, first_step);
  AppendU64(key, batch);
  return key;
}

absl::StatusOr<SeriesTileKey> SeriesTileKey::Decode(std::string_view key) {
  if (key.size() != 29)
    return absl::DataLossError(Cat("the key of a tile of a series has ", key.size(), " bytes, not 29"));
  return SeriesTileKey{ReadU32(key, 1), ReadU32(key, 5), ReadU64(key, 9), ReadU32(key, 17), ReadU64(key, 21)};
}

std::string JobResultPlace::Encode() const {
  std::string value;
  AppendU32(value, order);
  AppendU64(value, lease);
  return value;
}

absl::StatusOr<JobResultPlace> JobResultPlace::Decode(std::string_view value) {
  if (value.size() != 12) return absl::DataLossError(Cat("the place of a result has ", value.size(), " bytes, not 12"));
  return JobResultPlace{ReadU32(value, 0), ReadU64(value, 4)};
}

std::string PrefixEnd(std::string_view prefix) {
  std::string end(prefix);
  while (!end.empty() && static_cast<uint8_t>(end.back()) == 0xff) end.pop_back();
  if (!end.empty()) end.back() = static_cast<char>(static_cast<uint8_t>(end.back()) + 1);
  return end;
}

std::string MetaPrefix(MetaSpace space) { return Space(space); }

std::string MetaPrefix(MetaSpace space, uint32_t run) {
  std::string key = Space(space);
  AppendU32(key, run);
  return key;
}

std::string MetaPrefix(MetaSpace space, uint32_t run, uint32_t rank) {
  std::string key = MetaPrefix(space, run);
  AppendU32(key, rank);
  return key;
}

std::string MetaPrefix(MetaSpace space, std::string_view id) { return Cat(Space(space), id); }

std::string MetaKeyToString(std::string_view key) {
  auto unknown = [&] { return Cat("unknown ", Hex(key)); };
  if (key.empty()) return unknown();
  std::string_view rest = key.substr(1);
  switch (static_cast<MetaSpace>(key[0])) {
    case MetaSpace::kServer:
      return rest.empty() ? "server" : unknown();
    case MetaSpace::kRunByName:
      return Cat("run_by_name ", rest);
    case MetaSpace::kRun:
      return rest.size() == 4 ? Cat("run run=", ReadU32(rest, 0)) : unknown();
    case MetaSpace::kSession:
      return rest.size() == kIdBytes ? Cat("session ", Hex(rest)) : unknown();
    case MetaSpace::kDefinition:
      return rest.size() == 12 ? Cat("definition run=", ReadU32(rest, 0), " id=", Hex(rest.substr(4))) : unknown();
    case MetaSpace::kStep:
    case MetaSpace::kUntiled:
    case MetaSpace::kTiled: {
      auto step = StepKey::Decode(key);
      const auto space = static_cast<MetaSpace>(key[0]);
      const char* const name = space == MetaSpace::kStep      ? "step "
                               : space == MetaSpace::kUntiled ? "untiled "
                                                              : "tiled ";
      return step.ok() ? Cat(name, step->ToString()) : unknown();
    }
    case MetaSpace::kTileSet:
      return rest.size() == 16 ? Cat("tile_set run=", ReadU32(rest, 0), " rank=", CodeName(ReadU32(rest, 4)),
                                     " epoch=", ReadU32(rest, 8), " set=", ReadU32(rest, 12))
                               : unknown();
    case MetaSpace::kPayload:
      return rest.size() == kIdBytes ? Cat("payload ", Hex(rest)) : unknown();
    case MetaSpace::kPending:
      return rest.size() == 2 * kIdBytes
                 ? Cat("pending session=", Hex(rest.substr(0, kIdBytes)), " hash=", Hex(rest.substr(kIdBytes)))
                 : unknown();
    case MetaSpace::kReference:
      return rest.size() == 4 + kIdBytes ? Cat("reference run=", ReadU32(rest, 0), " hash=", Hex(rest.substr(4)))
                                         : unknown();
    case MetaSpace::kHold:
      return rest.size() == 12 + kIdBytes ? Cat("hold run=", ReadU32(rest, 0), " epoch=", ReadU32(rest, 4),
                                                " step=", ReadU32(rest, 8), " hash=", Hex(rest.substr(12)))
                                          : unknown();
    case MetaSpace::kHolder:
      return rest.size() == 12 + kIdBytes
                 ? Cat("holder run=", ReadU32(rest, 0), " hash=", Hex(rest.substr(4, kIdBytes)),
                       " epoch=", ReadU32(rest, 4 + kIdBytes), " step=", ReadU32(rest, 8 + kIdBytes))
                 : unknown();
    case MetaSpace::kReferrer:
      return rest.size() == 4 + kIdBytes
                 ? Cat("referrer hash=", Hex(rest.substr(0, kIdBytes)), " run=", ReadU32(rest, kIdBytes))
                 : unknown();
    case MetaSpace::kEpoch:
      return rest.size() == 8 ? Cat("epoch run=", ReadU32(rest, 0), " epoch=", ReadU32(rest, 4)) : unknown();
    case MetaSpace::kJob:
    case MetaSpace::kJobProgress:
      return rest.size() == 8 ? Cat(JobSpaceName(key[0]), JobName(rest)) : unknown();
    case MetaSpace::kJobItem:
    case MetaSpace::kJobReturned:
    case MetaSpace::kJobResultOf:
      return rest.size() == 12 ? Cat(JobSpaceName(key[0]), JobName(rest), " item=", ReadU32(rest, 8)) : unknown();
    case MetaSpace::kJobResult:
      return rest.size() == 12 ? Cat(JobSpaceName(key[0]), JobName(rest), " order=", ReadU32(rest, 8)) : unknown();
    case MetaSpace::kJobLease:
      return rest.size() == 16 ? Cat(JobSpaceName(key[0]), JobName(rest), " lease=", Hex(rest.substr(8))) : unknown();
    case MetaSpace::kSeries:
      return rest.size() == 12 ? Cat("series run=", ReadU32(rest, 0), " id=", Hex(rest.substr(4))) : unknown();
    case MetaSpace::kScalars:
      return rest.size() == 16
                 ? Cat("scalars run=", ReadU32(rest, 0), " epoch=", ReadU32(rest, 4), " batch=", ReadU64(rest, 8))
                 : unknown();
    case MetaSpace::kSeriesTile: {
      auto tile = SeriesTileKey::Decode(key);
      return tile.ok() ? Cat("series_tile run=", tile->run, " epoch=", tile->epoch, " series=", Hex(rest.substr(8, 8)),
                             " first_step=", tile->first_step, " batch=", tile->batch)
                       : unknown();
    }
    case MetaSpace::kRules:
      return rest.size() == 4 ? Cat("rules run=", ReadU32(rest, 0)) : unknown();
    case MetaSpace::kAlarm:
      return rest.size() == 8 ? Cat("alarm run=", ReadU32(rest, 0), " number=", ReadU32(rest, 4)) : unknown();
    case MetaSpace::kNotice: {
      auto notice = NoticeKey::Decode(key);
      return notice.ok()
                 ? Cat("notice run=", notice->run, " number=", notice->number, " receiver=", Hex(rest.substr(8)))
                 : unknown();
    }
    case MetaSpace::kFault: {
      if (rest.size() != 20) return unknown();
      StepKey step{ReadU32(rest, 0), ReadU32(rest, 4), ReadU32(rest, 8), ReadU32(rest, 12)};
      return Cat("fault ", step.ToString(), " n=", ReadU32(rest, 16));
    }
  }
  return unknown();
}

}  // namespace msprobe::server
