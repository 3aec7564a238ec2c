#pragma once

#include <cstdint>
#include <istream>
#include <memory>
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
  // Rows of a text that is in memory. path: for messages.
  static CsvReader Of(std::string text, std::string path);

  // Gives the cells of the next row, borrowed until the next call; false: there is none. Empty lines are passed over.
  // InvalidArgument: a quote without its end.
  absl::StatusOr<bool> Next(std::vector<std::string_view>& cells);
  // Where the row begins that Next gave; the first line is 1.
  uint64_t line() const { return line_; }

 private:
  CsvReader(std::string path, std::unique_ptr<std::istream> rows) : path_(std::move(path)), rows_(std::move(rows)) {}

  std::string path_;
  std::unique_ptr<std::istream> rows_;
  std::string row_;
  uint64_t line_ = 0;
  uint64_t lines_ = 0;  // that were read
};

}  // namespace msprobe::server
