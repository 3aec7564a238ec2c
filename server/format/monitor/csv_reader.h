#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace msprobe::server {

// The rows of a CSV file (RFC 4180: quoted cells may hold commas, line ends and doubled quotes), one after another.
// Memory: one row. Threads: one.
class CsvReader {
 public:
  // The system's error, naming the file.
  static absl::StatusOr<CsvReader> Open(const std::string& path);

  // Gives the cells of the next row, borrowed until the next call; false: there is none. Empty lines are passed over.
  // InvalidArgument: a quote without its end.
  absl::StatusOr<bool> Next(std::vector<std::string_view>& cells);
  // Where the row begins that Next gave; the first line is 1.
  uint64_t line() const { return line_; }

 private:
  CsvReader(std::string path, std::ifstream file) : path_(std::move(path)), file_(std::move(file)) {}

  std::string path_;
  std::ifstream file_;
  std::string row_;
  uint64_t line_ = 0;
  uint64_t lines_ = 0;  // that were read
};

}  // namespace msprobe::server
