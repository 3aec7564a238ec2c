#include "server/store/log/log_check.h"

#include <rocksdb/write_batch.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "server/format/cat.h"
#include "server/format/storage/key.h"
#include "server/format/storage/value.h"
#include "server/store/change_set.h"
#include "server/store/disk/directory_lock.h"
#include "server/store/log/crc32c.h"

namespace msprobe::server {
namespace {

namespace fs = std::filesystem;

// RocksDB's log: blocks with records in them, each after a header of checksum, size and type; a write is one record or
// several in a row (db/log_format.h).
constexpr size_t kBlock = 32768;
constexpr size_t kHeader = 7;
enum RecordType : uint8_t { kFull = 1, kFirst = 2, kMiddle = 3, kLast = 4 };

struct Records {
  std::vector<std::string> writes;  // that are whole
  std::optional<size_t> damaged_at;
  size_t behind = 0;                       // bytes from there on
  std::vector<std::string> writes_behind;  // whole ones after the damage
};

uint32_t Masked(uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xa282ead8u; }

// The writes of one log. `is_last`: it may end within a write.
Records ReadLog(const std::string& bytes, bool is_last) {
  Records found;
  std::string write;
  bool in_write = false;
  size_t begun = 0;  // where the present write begins
  const auto damage = [&](size_t at) {
    if (!found.damaged_at.has_value()) found.damaged_at = at;
    in_write = false;
  };
  size_t at = 0;
  while (at < bytes.size()) {
    const size_t left = kBlock - at % kBlock;
    if (left < kHeader) {
      at += left;
      continue;
    }
    if (bytes.size() - at < kHeader) break;
    uint32_t checksum;
    std::memcpy(&checksum, &bytes[at], sizeof(checksum));
    const auto byte = [&](size_t i) { return static_cast<uint8_t>(bytes[at + i]); };
    const size_t size = byte(4) | byte(5) << 8;
    const uint8_t type = byte(6);
    if (type == 0 && size == 0 && checksum == 0) {  // room that was never written
      at += left;
      continue;
    }
    if (at + kHeader + size > bytes.size() && kHeader + size <= left) break;  // cut off
    if (kHeader + size > left || type < kFull || type > kLast ||
        Masked(Crc32c(0, &bytes[at + 6], size + 1)) != checksum) {
      damage(in_write ? begun : at);
      at += left;  // where records begin anew
      continue;
    }
    if (type == kFull || type == kFirst) {
      begun = at;
      write.clear();
    } else if (!in_write) {  // the end of one whose beginning is damaged
      at += kHeader + size;
      continue;
    }
    write.append(bytes, at + kHeader, size);
    in_write = type == kFirst || type == kMiddle;
    if (!in_write) (found.damaged_at.has_value() ? found.writes_behind : found.writes).push_back(write);
    at += kHeader + size;
  }
  if (!is_last && (in_write || at < bytes.size())) damage(in_write ? begun : at);
  if (found.damaged_at.has_value()) found.behind = bytes.size() - *found.damaged_at;
  return found;
}

// What writes hold of runs.
class Contents : public rocksdb::WriteBatch::Handler {
 public:
  struct OfRank {
    uint64_t watermark = 0;
    std::set<uint32_t> steps;
  };

  rocksdb::Status PutCF(uint32_t family, const rocksdb::Slice& key, const rocksdb::Slice& value) override {
    // Column families are numbered in the order in which they were made, behind RocksDB's own.
    const std::string_view name(key.data(), key.size());
    if (family == static_cast<uint32_t>(Family::kMeta) + 1 && !name.empty() &&
        name[0] == static_cast<char>(MetaSpace::kSession)) {
      auto session = DecodeAs<storage::SessionRow>(std::string_view(value.data(), value.size()));
      if (!session.ok()) return rocksdb::Status::OK();
      names_[session->run()] = session->hello().run();
      OfRank& rank = ranks_[{session->run(), RankCode(session->hello().rank())}];
      rank.watermark = std::max(rank.watermark, session->watermark());
    } else if (family == static_cast<uint32_t>(Family::kRows) + 1) {
      if (auto row = RowKey::Decode(name); row.ok()) ranks_[{row->run, row->rank}].steps.insert(row->step);
    }
    return rocksdb::Status::OK();
  }
  rocksdb::Status DeleteCF(uint32_t, const rocksdb::Slice&) override { return rocksdb::Status::OK(); }
  rocksdb::Status DeleteRangeCF(uint32_t, const rocksdb::Slice&, const rocksdb::Slice&) override {
    return rocksdb::Status::OK();
  }
  rocksdb::Status PutBlobIndexCF(uint32_t, const rocksdb::Slice&, const rocksdb::Slice&) override {
    return rocksdb::Status::OK();
  }
  void LogData(const rocksdb::Slice&) override {}

  void Add(const std::vector<std::string>& writes) {
    for (const std::string& write : writes) rocksdb::WriteBatch(write).Iterate(this).PermitUncheckedError();
  }
  std::vector<std::string> Lines() const {
    std::vector<std::string> lines;
    for (const auto& [of, rank] : ranks_) {
      const auto name = names_.find(of.first);
      std::string line = Cat("run ", name == names_.end() ? Cat("number ", of.first) : name->second, ", ",
                             RankName(RankOfCode(of.second)), ": missing are");
      if (rank.watermark > 0) line += Cat(" batches up to ", rank.watermark);
      if (!rank.steps.empty()) {
        line += Cat(rank.watermark > 0 ? ", with" : "", " rows of steps ", *rank.steps.begin(), " to ",
                    *rank.steps.rbegin());
      }
      if (rank.watermark > 0 || !rank.steps.empty()) lines.push_back(std::move(line));
    }
    return lines;
  }

 private:
  std::map<uint32_t, std::string> names_;                  // of runs, by number
  std::map<std::pair<uint32_t, uint32_t>, OfRank> ranks_;  // by run and rank
};

}  // namespace

absl::StatusOr<std::vector<std::string>> CheckLogs(const std::string& data_directory) {
  std::error_code error;
  const fs::path store = fs::path(data_directory) / "store";
  if (!fs::is_directory(store, error)) return std::vector<std::string>();
  auto lock = DirectoryLock::Acquire(data_directory);
  if (!lock.ok()) return lock.status();
  std::map<uint64_t, fs::path> logs;  // by number, the order in which they were written
  for (const fs::directory_entry& entry : fs::directory_iterator(store, error)) {
    if (entry.path().extension() == ".log") logs[std::stoull("0" + entry.path().stem().string())] = entry.path();
  }
  std::vector<std::string> lines;
  Contents missing;
  for (const auto& [number, path] : logs) {
    std::ifstream file(path, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    const Records found = ReadLog(bytes, number == logs.rbegin()->first);
    if (!lines.empty()) {  // behind the damage of an earlier one
      lines.push_back(Cat("log ", path.filename().string(), ": lies behind it, ", bytes.size(), " bytes"));
      missing.Add(found.writes);
    } else if (found.damaged_at.has_value()) {
      lines.push_back(Cat("log ", path.filename().string(), ": damaged at byte ", *found.damaged_at, "; the ",
                          found.behind, " bytes from there on are left out at the next start"));
    }
    missing.Add(found.writes_behind);
  }
  const std::vector<std::string> contents = missing.Lines();
  lines.insert(lines.end(), contents.begin(), contents.end());
  return lines;
}

}  // namespace msprobe::server
