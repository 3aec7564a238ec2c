#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "msprobe/v1/query.pb.h"

namespace msprobe::server {

// Where the files of one rank directory (step0/rank0) go, one file after another.
//
// Threads: one thread at a time.
// Invariants:
// 1. paths are relative to the rank directory, '/' between parts, never ".." and never absolute;
// 2. Begin, any number of Write, End; files do not nest; the same path twice: the later content stands.
class FileSink {
 public:
  virtual ~FileSink() = default;

  virtual absl::Status Begin(std::string_view path) = 0;
  virtual absl::Status Write(std::string_view content) = 0;
  virtual absl::Status End() = 0;
};

// Writes into a temporary sibling of `directory` and puts it in place whole by Commit(). Nobody ever sees a
// half-written directory; an existing one is exchanged in one step (renameat2 RENAME_EXCHANGE; where the file system
// lacks it, by two renames with a gap in which neither name exists), then removed. Without fsync: the store is what
// survives power loss. Destroyed without Commit(): everything written is removed.
class DirectorySink : public FileSink {
 public:
  // Makes missing parents. InvalidArgument or the system's error, naming the directory. `umask`: of whoever is to read
  // the files, instead of this process's.
  static absl::StatusOr<DirectorySink> Open(std::string directory, std::optional<mode_t> umask = std::nullopt);

  DirectorySink(DirectorySink&& other) noexcept;
  DirectorySink& operator=(DirectorySink&&) = delete;
  ~DirectorySink() override;

  absl::Status Begin(std::string_view path) override;
  absl::Status Write(std::string_view content) override;
  absl::Status End() override;

  // The files appear. Once; nothing may be written afterwards.
  absl::Status Commit();

 private:
  DirectorySink(std::string directory, std::string temporary, std::optional<mode_t> umask);
  absl::Status Flush();

  std::string directory_;
  std::optional<mode_t> umask_;
  std::string temporary_;  // empty: committed or moved from
  std::string file_;       // the one being written, for messages
  int descriptor_ = -1;
  std::string buffer_;  // of that file, not written yet
};

// Sends each file as FileChunk messages: the first of a file carries `prefix` + path, the last has `last` set.
class ChunkSink : public FileSink {
 public:
  // False: the peer is gone.
  using Send = absl::AnyInvocable<bool(const v1::FileChunk&)>;

  // prefix: "step0/rank0/". files_total: over the whole answer, 0 where not known. chunk_bytes: content of one message.
  ChunkSink(std::string prefix, Send send, uint64_t files_total = 0, size_t chunk_bytes = 256 << 10);

  absl::Status Begin(std::string_view path) override;
  absl::Status Write(std::string_view content) override;
  absl::Status End() override;

 private:
  absl::Status Flush(bool last);

  const std::string prefix_;
  Send send_;
  const uint64_t files_total_;
  const size_t chunk_bytes_;
  v1::FileChunk chunk_;
};

}  // namespace msprobe::server
