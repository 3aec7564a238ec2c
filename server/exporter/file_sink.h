#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "msprobe/v1/query.pb.h"
#include "server/store/disk/block_buffer.h"

namespace msprobe::server {

// Takes the files of one rank directory (step0/rank0), one after another.
//
// 1. Paths are relative to the rank directory, with '/' between parts. They never contain ".." and are never absolute.
// 2. Each file is Begin, any number of Write, End. Files do not nest. If a path comes twice, the later content wins.
// Threads: one at a time.
class FileSink {
 public:
  virtual ~FileSink() = default;

  // True: the sink has this file already, and it is neither begun nor written. False: it must be. `content` says what
  // the file will hold: with one path and one content, it has the same bytes each time.
  virtual absl::StatusOr<bool> Repeat(std::string_view path, std::string_view content);
  // The file that is written at `path` holds less than Repeat was told.
  virtual void NeverRepeat(std::string_view /*path*/) {}

  virtual absl::Status Begin(std::string_view path) = 0;
  virtual absl::Status Write(std::string_view content) = 0;
  virtual absl::Status End() = 0;
};

// The files that a directory was written with, for the next directory of its kind: of a model that only infers, most
// tensors of a step are weights, which the step before has in files of the same name, and most steps make the same
// calls.
class FormerFiles {
  friend class DirectorySink;

  struct File {
    std::string content;
    struct stat state = {};  // as this object's owner left it
  };

  // Makes `path` a link to one of the files. False: it is gone, or somebody has written it since, or given it another
  // mode or owner.
  bool Link(std::string_view name, File& file, const std::string& path) const;

  std::string directory_;
  std::map<std::string, File, std::less<>> files_;  // by path below it
};

// Writes into a temporary sibling of `directory`, which Commit() moves into place, so that nobody ever sees a
// half-written directory. An existing directory is exchanged in one step (renameat2 RENAME_EXCHANGE) and then removed.
// A file system without RENAME_EXCHANGE takes two renames, between which the directory is missing. There is no fsync,
// because the store is what survives power loss. Destruction without Commit() removes everything that was written. What
// a killed process left of a directory is removed by the next Open of it.
// On a local disk (ext4, XFS, Btrfs)
//   with `former`, files that stay as they were are hard links to those of the directory before;
//   long files are written past the page cache: a page for each 4 KiB costs more than the write, and drives out pages
//   of the program that is being watched.
class DirectorySink : public FileSink {
 public:
  // Makes missing parents. InvalidArgument or the system's error, naming the directory. `umask`: for the new files,
  // instead of this process's.
  // `former`: what the last sink with it has committed; outlives this sink.
  static absl::StatusOr<DirectorySink> Open(std::string directory, std::optional<mode_t> umask = std::nullopt,
                                            FormerFiles* former = nullptr);

  DirectorySink(DirectorySink&& other) noexcept;
  DirectorySink& operator=(DirectorySink&&) = delete;
  ~DirectorySink() override;

  absl::StatusOr<bool> Repeat(std::string_view path, std::string_view content) override;
  void NeverRepeat(std::string_view path) override;
  absl::Status Begin(std::string_view path) override;
  absl::Status Write(std::string_view content) override;
  absl::Status End() override;

  // Makes the files appear. Call once; nothing may be written afterwards.
  absl::Status Commit();

 private:
  DirectorySink(std::string directory, std::string temporary, std::optional<mode_t> umask, FormerFiles* former);
  // Writes what is held: a full buffer, or the end of the file.
  absl::Status Flush();
  // What is left of `content` was not written.
  absl::Status WriteOut(std::string_view& content) const;
  // Has what follows written past the page cache or through it. False: it cannot be passed.
  bool PassCache(bool pass);
  // Moves the files to where they appear.
  absl::Status Place(const std::string& temporary) const;

  std::string directory_;
  std::optional<mode_t> umask_;
  std::string temporary_;  // empty: committed or moved from
  int lock_ = -1;          // a lock on it, so that others know that it is being written
  std::string file_;       // the one being written, for messages
  int descriptor_ = -1;
  BlockBuffer buffer_;  // begins with the part of that file that is not written yet
  size_t held_ = 0;     // bytes of that part
  bool may_pass_cache_ = false;
  bool passes_cache_ = false;  // the file being written, now
  FormerFiles* former_;
  FormerFiles written_;
  std::string repeatable_;   // path of the file that Repeat was last asked for and does not have
  std::string linked_into_;  // a directory that is there
};

// Passes on the files below `directory`, without its name: "step0/rank0/dump.json" as "dump.json". The sink outlives
// this. Begin gives InvalidArgument for a file that lies elsewhere.
class FilesBelow : public FileSink {
 public:
  FilesBelow(std::string directory, FileSink& sink) : directory_(std::move(directory)), sink_(sink) {}

  absl::Status Begin(std::string_view path) override;
  absl::Status Write(std::string_view content) override { return sink_.Write(content); }
  absl::Status End() override { return sink_.End(); }

 private:
  const std::string directory_;
  FileSink& sink_;
};

// Sends each file as FileChunk messages. The first message of a file has `prefix` + path, the last has `last` set.
class ChunkSink : public FileSink {
 public:
  // Returns false if the receiver is gone.
  using Send = absl::AnyInvocable<bool(const v1::FileChunk&)>;

  // prefix: for example "step0/rank0/". files_total: number of files in the whole answer, 0 if not known. chunk_bytes:
  // content of one message at most.
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
