#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

struct sqlite3;
struct sqlite3_stmt;

namespace msprobe::server {

// A cell of a row: nothing (NULL), an integer, a real number or a text in UTF-8, which is borrowed until Run returns.
class SqliteValue {
 public:
  SqliteValue(std::nullopt_t /*null*/) {}                                   // NOLINT(google-explicit-constructor)
  SqliteValue(double number) : value_(number) {}                            // NOLINT(google-explicit-constructor)
  SqliteValue(std::string_view text) : value_(text) {}                      // NOLINT(google-explicit-constructor)
  SqliteValue(const std::string& text) : value_(std::string_view(text)) {}  // NOLINT(google-explicit-constructor)
  SqliteValue(const char* text) : value_(std::string_view(text)) {}         // NOLINT(google-explicit-constructor)
  template <std::integral T>
  SqliteValue(T number) : value_(static_cast<int64_t>(number)) {}  // NOLINT(google-explicit-constructor)
  template <typename T>
  SqliteValue(const std::optional<T>& value) {  // NOLINT(google-explicit-constructor)
    if (value) *this = SqliteValue(*value);
  }

  const std::variant<std::monostate, int64_t, double, std::string_view>& value() const { return value_; }

 private:
  std::variant<std::monostate, int64_t, double, std::string_view> value_;
};

// A SQLite database in the making. It is written beside its place, in one transaction without a journal, and appears
// there whole by Finish; an earlier file of that name is replaced. Without Finish nothing stays. Rows go to the disk as
// they come: the memory used does not depend on their number. Nothing waits for the disk (no fsync).
//
// Threads: one. Errors name the file. ResourceExhausted: the disk is full, or the directory is not there or takes no
// file. Internal: anything else, such as a row that breaks a constraint. After an error only destruction is allowed.
class SqliteFile {
 public:
  struct Options {
    int page_bytes = 16384;  // a power of two from 512 to 65536
    bool wal = false;        // the finished file is in WAL mode: whoever reads it may have a writer beside
  };

  // schema: statements that make the tables.
  static absl::StatusOr<std::unique_ptr<SqliteFile>> Create(std::string path, const Options& options,
                                                            const char* schema);
  SqliteFile(const SqliteFile&) = delete;
  SqliteFile& operator=(const SqliteFile&) = delete;
  ~SqliteFile();

  // One statement that answers nothing (INSERT, UPDATE), with its parameters ?1, ?2, ... It is prepared once, however
  // often it runs.
  absl::Status Run(std::string_view sql, std::span<const SqliteValue> values);
  absl::Status Run(std::string_view sql, std::initializer_list<SqliteValue> values) {
    return Run(sql, std::span<const SqliteValue>(values.begin(), values.size()));
  }

  // Runs the statements of `last`, such as those that make indexes, commits, and gives the file its name.
  absl::Status Finish(const char* last);

 private:
  SqliteFile(std::string path, std::string scratch, const Options& options)
      : path_(std::move(path)), scratch_(std::move(scratch)), options_(options) {}

  absl::Status RunScript(const char* script);
  absl::StatusOr<sqlite3_stmt*> Prepared(std::string_view sql);
  absl::Status Error(int code) const;
  void FinalizeAll();

  const std::string path_;
  const std::string scratch_;
  const Options options_;
  sqlite3* connection_ = nullptr;
  std::map<std::string, sqlite3_stmt*, std::less<>> statements_;
};

}  // namespace msprobe::server
