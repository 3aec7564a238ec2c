#pragma once

#include <functional>
#include <span>
#include <string>

#include "msprobe/v1/record.pb.h"
#include "server/format/json/json_writer.h"

namespace msprobe::server {

// How records of one step are written.
struct RecordJsonOptions {
  bool xor_checksum = false;  // summary_mode xor: a checksum in place of statistics
  bool crc32 = false;         // summary_mode md5: a checksum beside them
  bool extended = false;
  bool high_precision = false;  // precision high: Mean and Norm of every dtype that has them
  bool nan_only =
      false;  // task nan_check: no statistics; each record ends with "is_nan", 1 where an output has NaN or Inf
  // data_name of a tensor, without directory; empty: none.
  std::function<std::string(std::span<const std::string> path, const v1::TensorLeaf& leaf)> data_name;
};

// The value of one entry of dump.json's data. DumpRules says which numbers are null.
// A record of level debug shows the value of its only field, without the field.
void WriteRecord(const v1::Record& record, const RecordJsonOptions& options, JsonWriter& writer);

}  // namespace msprobe::server
