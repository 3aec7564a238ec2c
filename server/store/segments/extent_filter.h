#pragma once

#include <rocksdb/wal_filter.h>

#include <cstdint>
#include <map>
#include <string>

#include "server/store/segments/segment_directory.h"

namespace msprobe::server {

// After a crash, where the log is replayed: stops at the first row of an extent whose bytes are not there.
//
// The log and the segments are synced one after the other, so a power failure may leave rows without their bytes. None
// of these is durable, nor is anything behind it: what is replayed is a prefix, and holds all that was acknowledged.
// Looked at are extents in segments that were open (SegmentDirectory, unproven), so that starting takes no longer than
// to read these. A segment that is missing was taken away, which is no reason to give up what follows.
// Threads: RocksDB's, one at a time.
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
