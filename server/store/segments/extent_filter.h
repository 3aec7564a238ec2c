#pragma once

#include <rocksdb/wal_filter.h>

#include <cstdint>
#include <map>
#include <string>

#include "server/store/segments/segment_directory.h"

namespace msprobe::server {

// Ends the replay of the log after a crash at the first extent whose bytes are not there.
//
// Segments are synced before the log. A power failure in between may leave rows in the log whose bytes are lost. No
// such row is durable, and nothing behind it is: so what is replayed is a prefix of the writes that holds everything
// that was acknowledged. Only extents in segments that were open are looked at (SegmentDirectory, unproven), so that a
// start takes no longer than reading those. Where a whole segment is missing somebody took it away, and the replay goes
// on. Threads: RocksDB's, one at a time.
class ExtentFilter : public rocksdb::WalFilter {
 public:
  // Borrows the directory.
  explicit ExtentFilter(const SegmentDirectory* segments) : segments_(segments) {}

  const char* Name() const override { return "ExtentFilter"; }
  void ColumnFamilyLogNumberMap(const std::map<uint32_t, uint64_t>& logs,
                                const std::map<std::string, uint32_t>& families) override;
  WalProcessingOption LogRecordFound(unsigned long long log, const std::string& file, const rocksdb::WriteBatch& batch,
                                     rocksdb::WriteBatch* new_batch, bool* batch_changed) override;

 private:
  bool IsThere(const std::string& value);

  const SegmentDirectory* const segments_;
  uint32_t family_ = 0;              // RocksDB's number of "extents"
  uint64_t first_log_ = UINT64_MAX;  // what is in earlier ones is in tables already; none before the family is there
  std::string content_;
};

}  // namespace msprobe::server
