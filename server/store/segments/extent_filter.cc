#include "server/store/segments/extent_filter.h"

#include <rocksdb/write_batch.h>

#include "absl/functional/function_ref.h"

namespace msprobe::server {
namespace {

class ExtentVisitor : public rocksdb::WriteBatch::Handler {
 public:
  ExtentVisitor(uint32_t family, absl::FunctionRef<void(const std::string& value)> visit)
      : family_(family), visit_(visit) {}
  rocksdb::Status PutCF(uint32_t family, const rocksdb::Slice&, const rocksdb::Slice& value) override {
    if (family == family_) visit_(value.ToString());
    return rocksdb::Status::OK();
  }
  rocksdb::Status DeleteCF(uint32_t, const rocksdb::Slice&) override { return rocksdb::Status::OK(); }
  rocksdb::Status DeleteRangeCF(uint32_t, const rocksdb::Slice&, const rocksdb::Slice&) override {
    return rocksdb::Status::OK();
  }

 private:
  const uint32_t family_;
  const absl::FunctionRef<void(const std::string& value)> visit_;
};

}  // namespace

void ExtentFilter::ColumnFamilyLogNumberMap(const std::map<uint32_t, uint64_t>& logs,
                                            const std::map<std::string, uint32_t>& families) {
  const auto family = families.find("extents");
  if (family == families.end()) return;
  const auto log = logs.find(family->second);
  family_ = family->second;
  first_log_ = log == logs.end() ? 0 : log->second;
}

rocksdb::WalFilter::WalProcessingOption ExtentFilter::LogRecordFound(unsigned long long log, const std::string&,
                                                                     const rocksdb::WriteBatch& batch,
                                                                     rocksdb::WriteBatch*, bool*) {
  if (log < first_log_) return WalProcessingOption::kContinueProcessing;
  bool there = true;
  const auto look = [&](const std::string& value) { there = there && IsThere(value); };
  ExtentVisitor visitor(family_, look);
  // A batch that cannot be read is RocksDB's to judge.
  batch.Iterate(&visitor).PermitUncheckedError();
  return there ? WalProcessingOption::kContinueProcessing : WalProcessingOption::kStopReplay;
}

bool ExtentFilter::IsThere(const std::string& value) {
  const auto extent = Extent::Decode(value);
  if (!extent.ok() || !segments_->IsUnproven(extent->segment)) return true;
  // A failure to read says nothing about the bytes.
  return !absl::IsDataLoss(segments_->Read(*extent, content_));
}

}  // namespace msprobe::server
