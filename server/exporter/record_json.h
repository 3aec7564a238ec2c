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

// The value of one entry of dump.json's data. What mindstudio-probe leaves null is null here:
//   torch: Mean and Norm of float64, integers, bool and quantized types; Norm of complex ones; all of 8- and 4-bit
//   floats. A 0-D torch tensor, unless bool or complex, shows its value in all four, and with xor in place of the
//   checksum (integers in hexadecimal). numpy arrays and MindSpore tensors show what was computed.
// A record of level debug shows the value of its only field, without the field.
void WriteRecord(const v1::Record& record, const RecordJsonOptions& options, JsonWriter& writer);

}  // namespace msprobe::server
