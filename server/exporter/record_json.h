#pragma once

#include <functional>
#include <span>
#include <string>

#include "msprobe/v1/record.pb.h"
#include "server/format/json/json_writer.h"

namespace msprobe::server {

// How the records of one step are written.
struct RecordJsonOptions {
  bool xor_checksum = false;    // summary_mode xor: a checksum instead of statistics
  bool crc32 = false;           // summary_mode md5: a checksum besides the statistics
  bool extended = false;        // adds what mindstudio-probe does not have: statistics, "communication" and "touched"
  bool high_precision = false;  // precision high: Mean and Norm of every dtype that has them
  // task nan_check: no statistics. Each record ends with "is_nan": 1 if one of its outputs has a NaN or an infinity.
  bool nan_only = false;
  // The data_name of a tensor, without directory; empty: the tensor has no file.
  std::function<std::string(std::span<const std::string> path, const v1::TensorLeaf& leaf)> data_name;
};

// Writes the value of one entry of dump.json's data. DumpRules says which numbers are null.
// For a record of level debug it writes the value of the only field, without the field's name.
void WriteRecord(const v1::Record& record, const RecordJsonOptions& options, JsonWriter& writer);

}  // namespace msprobe::server
