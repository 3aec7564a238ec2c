#include "server/exporter/sqlite_file.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <system_error>
#include <utility>

#include "server/format/cat.h"

namespace msprobe::server {
namespace {

std::string SystemMessage(int error) { return std::generic_category().message(error); }

struct Binder {
  sqlite3_stmt* statement;
  int at;

  int operator()(std::monostate /*null*/) const { return sqlite3_bind_null(statement, at); }
  int operator()(int64_t number) const { return sqlite3_bind_int64(statement, at, number); }
  int operator()(double number) const { return sqlite3_bind_double(statement, at, number); }
  int operator()(std::string_view text) const {
    // A null pointer would be NULL.
    return sqlite3_bind_text64(statement, at, text.data() == nullptr ? "" : text.data(), text.size(), SQLITE_STATIC,
                               SQLITE_UTF8);
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<SqliteFile>> SqliteFile::Create(std::string path, const Options& options,
                                                               const char* schema) {
  static std::atomic<uint64_t> number = 0;
  std::string scratch = Cat(path, ".", getpid(), "-", ++number);
  const int made = open(scratch.c_str(), O_CREAT | O_EXCL | O_CLOEXEC | O_RDWR, 0644);
  if (made < 0) return absl::ResourceExhaustedError(Cat("cannot write ", path, ": ", SystemMessage(errno)));
  close(made);
  std::unique_ptr<SqliteFile> file(new SqliteFile(std::move(path), std::move(scratch), options));
  const int code =
      sqlite3_open_v2(file->scratch_.c_str(), &file->connection_, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, nullptr);
  if (code != SQLITE_OK) return file->Error(code);
  const std::string setup =
      Cat("PRAGMA page_size=", options.page_bytes,
          "; PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; PRAGMA locking_mode=EXCLUSIVE; PRAGMA cache_size=-2048; "
          "PRAGMA temp_store=FILE; BEGIN;",
          schema);
  if (absl::Status status = file->RunScript(setup.c_str()); !status.ok()) return status;
  return file;
}

SqliteFile::~SqliteFile() {
  FinalizeAll();
  if (connection_ == nullptr) return;
  sqlite3_close_v2(connection_);
  unlink(scratch_.c_str());
}

void SqliteFile::FinalizeAll() {
  for (const auto& [sql, statement] : statements_) sqlite3_finalize(statement);
  statements_.clear();
}

absl::Status SqliteFile::Error(int code) const {
  const int system = connection_ == nullptr ? 0 : sqlite3_system_errno(connection_);
  const int kind = code & 0xff;
  if (kind == SQLITE_FULL || (kind == SQLITE_IOERR && (system == ENOSPC || system == EDQUOT || system == EFBIG))) {
    return absl::ResourceExhaustedError(
        Cat("cannot write ", path_, ": ", system == 0 ? "the disk is full" : SystemMessage(system)));
  }
  const std::string message = connection_ == nullptr ? "no memory" : sqlite3_errmsg(connection_);
  return absl::InternalError(Cat(path_, ": ", message, kind == SQLITE_IOERR ? Cat(", ", SystemMessage(system)) : ""));
}

absl::Status SqliteFile::RunScript(const char* script) {
  const int code = sqlite3_exec(connection_, script, nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? absl::OkStatus() : Error(code);
}

absl::StatusOr<sqlite3_stmt*> SqliteFile::Prepared(std::string_view sql) {
  if (const auto known = statements_.find(sql); known != statements_.end()) return known->second;
  sqlite3_stmt* statement = nullptr;
  const int code = sqlite3_prepare_v3(connection_, sql.data(), static_cast<int>(sql.size()), SQLITE_PREPARE_PERSISTENT,
                                      &statement, nullptr);
  if (code != SQLITE_OK) return Error(code);
  statements_.emplace(sql, statement);
  return statement;
}

absl::Status SqliteFile::Run(std::string_view sql, std::span<const SqliteValue> values) {
  auto statement = Prepared(sql);
  if (!statement.ok()) return statement.status();
  int at = 0;
  for (const SqliteValue& value : values) {
    const int code = std::visit(Binder{*statement, ++at}, value.value());
    if (code != SQLITE_OK) return Error(code);
  }
  const int code = sqlite3_step(*statement);
  absl::Status status = code == SQLITE_DONE ? absl::OkStatus() : Error(code);
  sqlite3_reset(*statement);
  return status;
}

absl::Status SqliteFile::Finish(const char* last) {
  const std::string script =
      Cat(last, ";COMMIT;", options_.wal ? "PRAGMA locking_mode=NORMAL; PRAGMA journal_mode=WAL;" : "");
  if (absl::Status status = RunScript(script.c_str()); !status.ok()) return status;
  FinalizeAll();
  if (const int code = sqlite3_close(connection_); code != SQLITE_OK) return Error(code);
  connection_ = nullptr;
  // An earlier file's log would be taken for this one's.
  for (const char* left : {"-wal", "-shm"}) unlink((path_ + left).c_str());
  if (std::rename(scratch_.c_str(), path_.c_str()) != 0) {
    const int error = errno;
    unlink(scratch_.c_str());
    return absl::ResourceExhaustedError(Cat("cannot write ", path_, ": ", SystemMessage(error)));
  }
  return absl::OkStatus();
}

}  // namespace msprobe::server
