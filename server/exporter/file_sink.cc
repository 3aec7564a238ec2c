#include "server/exporter/file_sink.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "server/format/cat.h"
#include "server/format/storage/extent.h"

namespace msprobe::server {
namespace {

constexpr size_t kBufferBytes = 256 << 10;
// Shorter files are written through the page cache.
constexpr size_t kLongFile = 64 << 10;

absl::Status CheckRelative(std::string_view path) {
  for (const std::string& part : std::vector<std::string>(absl::StrSplit(std::string(path), '/'))) {
    if (part.empty() || part == "." || part == ".." || std::ranges::count(part, '\0') > 0) {
      return absl::InvalidArgumentError(Cat("'", path, "' is not a relative path below the directory"));
    }
  }
  return absl::OkStatus();
}

absl::Status SystemError(std::string_view doing, std::string_view path) {
  const int code = errno;
  return absl::ErrnoToStatus(code, Cat("cannot ", doing, " ", path));
}

absl::Status MakeDirectories(const std::filesystem::path& path, std::optional<mode_t> umask) {
  if (path.empty() || mkdir(path.c_str(), 0777) != 0) {
    if (path.empty() || errno == EEXIST) return absl::OkStatus();
    if (errno != ENOENT || !path.has_parent_path()) return SystemError("create the directory", path.native());
    if (absl::Status status = MakeDirectories(path.parent_path(), umask); !status.ok()) return status;
    if (mkdir(path.c_str(), 0777) != 0 && errno != EEXIST) return SystemError("create the directory", path.native());
  }
  if (umask.has_value()) chmod(path.c_str(), 0777 & ~*umask);
  return absl::OkStatus();
}

void RemoveAll(const std::string& directory) {
  std::error_code ignored;  // a failure leaves a hidden temporary, not a wrong export
  std::filesystem::remove_all(directory, ignored);
}

constexpr std::string_view kTemporary = ".partial";

// What the names of those temporaries begin with that are to be `directory`.
std::string TemporaryPrefix(const std::filesystem::path& directory) {
  return Cat(".", directory.filename().string(), ".");
}

// -1 and errno. EWOULDBLOCK: it is locked already. Others but ENOENT: it cannot be locked here (NFS).
int Lock(const std::string& directory) {
  const int descriptor = open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (descriptor < 0 || flock(descriptor, LOCK_EX | LOCK_NB) == 0) return descriptor;
  const int error = errno;
  close(descriptor);
  errno = error;
  return -1;
}

bool IsAt(const std::string& path, int descriptor) {
  struct stat held {};
  struct stat found {};
  return fstat(descriptor, &held) == 0 && stat(path.c_str(), &found) == 0 && held.st_dev == found.st_dev &&
         held.st_ino == found.st_ino;
}

// Removes the temporaries of `directory` that nobody writes.
void RemoveLeft(const std::filesystem::path& directory) {
  const std::string prefix = TemporaryPrefix(directory);
  std::error_code error;
  std::filesystem::directory_iterator entry(directory.parent_path(), error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with(prefix) || !name.ends_with(kTemporary)) continue;
    if (name.size() <= prefix.size() + kTemporary.size()) continue;
    const std::string_view numbers(name.data() + prefix.size(), name.size() - prefix.size() - kTemporary.size());
    if (numbers.find_first_not_of("0123456789.") != std::string_view::npos) continue;
    const int descriptor = Lock(entry->path().native());
    if (descriptor < 0) continue;
    RemoveAll(entry->path().native());
    close(descriptor);
  }
}

// Whose file systems note each write in a file's times, also one through a mapping (tmpfs maps a page that was read
// through a writable mapping as writable, so no time tells of the write that follows), and take writes past the page
// cache.
bool IsOnLocalDisk(const std::string& directory) {
  struct statfs system {};
  if (statfs(directory.c_str(), &system) != 0) return false;
  return system.f_type == EXT4_SUPER_MAGIC || system.f_type == XFS_SUPER_MAGIC || system.f_type == BTRFS_SUPER_MAGIC;
}

bool SameTime(const timespec& a, const timespec& b) { return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec; }

bool SameFile(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino && a.st_size == b.st_size && SameTime(a.st_mtim, b.st_mtim) &&
         a.st_mode == b.st_mode && a.st_uid == b.st_uid && a.st_gid == b.st_gid;
}

}  // namespace

absl::StatusOr<bool> FileSink::Repeat(std::string_view, std::string_view) { return false; }

bool FormerFiles::Link(std::string_view name, File& file, const std::string& path) const {
  const std::string from = Cat(directory_, "/", name);
  struct stat found {};
  if (lstat(from.c_str(), &found) != 0 || !SameFile(found, file.state)) return false;
  // Who writes a file can put its mtime back, but not its ctime. Links that come and go move the ctime, too.
  if (found.st_nlink == file.state.st_nlink && !SameTime(found.st_ctim, file.state.st_ctim)) return false;
  if (link(from.c_str(), path.c_str()) != 0) return false;
  // Asked of the link, so that no other file can have come in between.
  if (lstat(path.c_str(), &file.state) == 0 && SameFile(found, file.state)) return true;
  unlink(path.c_str());
  return false;
}

DirectorySink::DirectorySink(std::string directory, std::string temporary, std::optional<mode_t> umask,
                             FormerFiles* former)
    : directory_(std::move(directory)), umask_(umask), temporary_(std::move(temporary)), former_(former) {
  written_.directory_ = directory_;
}

DirectorySink::DirectorySink(DirectorySink&& other) noexcept
    : directory_(std::move(other.directory_)),
      umask_(other.umask_),
      temporary_(std::exchange(other.temporary_, {})),
      lock_(std::exchange(other.lock_, -1)),
      file_(std::move(other.file_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      buffer_(std::move(other.buffer_)),
      held_(std::exchange(other.held_, 0)),
      may_pass_cache_(other.may_pass_cache_),
      passes_cache_(other.passes_cache_),
      former_(other.former_),
      written_(std::move(other.written_)),
      repeatable_(std::move(other.repeatable_)) {}

DirectorySink::~DirectorySink() {
  if (descriptor_ >= 0) close(descriptor_);
  if (!temporary_.empty()) RemoveAll(temporary_);
  if (lock_ >= 0) close(lock_);
}

absl::StatusOr<DirectorySink> DirectorySink::Open(std::string directory, std::optional<mode_t> umask,
                                                  FormerFiles* former) {
  static std::atomic<uint32_t> next{0};
  while (directory.size() > 1 && directory.ends_with('/')) directory.pop_back();
  if (directory.empty() || directory == "/") {
    return absl::InvalidArgumentError(Cat("'", directory, "' cannot be an export's directory"));
  }
  const std::filesystem::path path(directory);
  if (absl::Status status = MakeDirectories(path.parent_path(), umask); !status.ok()) return status;
  RemoveLeft(path);
  std::string temporary;
  int lock = -1;
  bool is_ours = false;
  while (!is_ours) {
    temporary = (path.parent_path() / Cat(TemporaryPrefix(path), getpid(), ".", next++, kTemporary)).string();
    RemoveAll(temporary);  // an earlier process with the same id may have left it where nothing can be locked
    if (absl::Status status = MakeDirectories(temporary, umask); !status.ok()) return status;
    lock = Lock(temporary);
    // Until it was locked, another Open of this directory may have taken it for a leftover.
    is_ours = lock < 0 ? errno != EWOULDBLOCK && errno != ENOENT : IsAt(temporary, lock);
    if (!is_ours && lock >= 0) close(lock);
  }
  const bool on_local_disk = IsOnLocalDisk(temporary);
  DirectorySink sink(std::move(directory), temporary, umask, on_local_disk ? former : nullptr);
  sink.lock_ = lock;
  sink.may_pass_cache_ = on_local_disk;
  return sink;
}

absl::StatusOr<bool> DirectorySink::Repeat(std::string_view path, std::string_view content) {
  if (former_ == nullptr) return false;
  if (absl::Status status = CheckRelative(path); !status.ok()) return status;
  const std::string file = Cat(temporary_, "/", path);
  const auto known = former_->files_.find(path);
  if (known != former_->files_.end() && known->second.content == content) {
    std::string parent = std::filesystem::path(file).parent_path();
    if (parent != linked_into_) {
      if (absl::Status made = MakeDirectories(parent, umask_); !made.ok()) return made;
      linked_into_ = std::move(parent);
    }
    if (former_->Link(path, known->second, file)) {
      written_.files_.insert_or_assign(std::string(path), known->second);
      return true;
    }
  }
  written_.files_[std::string(path)] = {.content = std::string(content)};
  repeatable_ = file;
  return false;
}

void DirectorySink::NeverRepeat(std::string_view path) {
  repeatable_.clear();
  if (const auto known = written_.files_.find(path); known != written_.files_.end()) written_.files_.erase(known);
}

absl::Status DirectorySink::Begin(std::string_view path) {
  if (absl::Status status = CheckRelative(path); !status.ok()) return status;
  held_ = 0;
  passes_cache_ = false;
  file_ = Cat(temporary_, "/", path);
  for (int attempt = 0; attempt < 3; ++attempt) {
    descriptor_ = open(file_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor_ >= 0) {
      if (umask_.has_value()) fchmod(descriptor_, 0666 & ~*umask_);
      return absl::OkStatus();
    }
    // Never into what is there: it may be a link to a file of an earlier directory.
    if (errno == EEXIST && unlink(file_.c_str()) == 0) continue;
    if (errno != ENOENT) break;
    absl::Status made = MakeDirectories(std::filesystem::path(file_).parent_path(), umask_);
    if (!made.ok()) return made;
  }
  return SystemError("write", file_);
}

absl::Status DirectorySink::Write(std::string_view content) {
  while (!content.empty()) {
    const size_t part = std::min(content.size(), kBufferBytes - held_);
    std::memcpy(buffer_.Take(kBufferBytes) + held_, content.data(), part);
    content.remove_prefix(part);
    held_ += part;
    if (held_ < kBufferBytes) break;
    if (absl::Status status = Flush(); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status DirectorySink::Flush() {
  std::string_view held(buffer_.Take(kBufferBytes), std::exchange(held_, 0));
  if ((passes_cache_ || held.size() >= kLongFile) && PassCache(true)) {
    std::string_view blocks = held.substr(0, held.size() - held.size() % Extent::kAlignment);
    held.remove_prefix(blocks.size());
    absl::Status status = WriteOut(blocks);
    // A file system may take the flag and refuse the writes.
    if (absl::IsInvalidArgument(status)) {
      PassCache(false);
      may_pass_cache_ = false;
      status = WriteOut(blocks);
    }
    if (!status.ok() || held.empty()) return status;
    PassCache(false);
  }
  return WriteOut(held);
}

bool DirectorySink::PassCache(bool pass) {
  if (pass == passes_cache_) return true;
  if (pass && !may_pass_cache_) return false;
  if (fcntl(descriptor_, F_SETFL, pass ? O_DIRECT : 0) != 0) return false;
  passes_cache_ = pass;
  return true;
}

absl::Status DirectorySink::WriteOut(std::string_view& content) const {
  while (!content.empty()) {
    const ssize_t count = write(descriptor_, content.data(), content.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return SystemError("write", file_);
    content.remove_prefix(static_cast<size_t>(count));
  }
  return absl::OkStatus();
}

absl::Status DirectorySink::End() {
  if (absl::Status status = Flush(); !status.ok()) return status;
  if (file_ == std::exchange(repeatable_, {})) {
    FormerFiles::File& file = written_.files_[file_.substr(temporary_.size() + 1)];
    if (fstat(descriptor_, &file.state) != 0) file.state = {};
  }
  const int descriptor = std::exchange(descriptor_, -1);
  if (close(descriptor) != 0) return SystemError("write", file_);
  return absl::OkStatus();
}

absl::Status DirectorySink::Commit() {
  absl::Status placed = Place(std::exchange(temporary_, {}));
  if (placed.ok() && former_ != nullptr) *former_ = std::move(written_);
  return placed;
}

absl::Status DirectorySink::Place(const std::string& temporary) const {
  const char* from = temporary.c_str();
  const char* to = directory_.c_str();
  if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0) return absl::OkStatus();
  if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_EXCHANGE) == 0) {
    RemoveAll(temporary);
    return absl::OkStatus();
  }
  const std::string aside = Cat(temporary, ".old");
  const bool moved = rename(to, aside.c_str()) == 0;
  if (rename(from, to) == 0) {
    if (moved) RemoveAll(aside);
    return absl::OkStatus();
  }
  absl::Status status = SystemError("rename the export to", directory_);
  if (moved && rename(aside.c_str(), to) != 0) return SystemError("put back", directory_);
  RemoveAll(temporary);
  return status;
}

absl::Status FilesBelow::Begin(std::string_view path) {
  const bool below = path.starts_with(directory_) && path.substr(directory_.size()).starts_with('/');
  if (!below) return absl::InvalidArgumentError(Cat("'", path, "' does not lie in ", directory_));
  return sink_.Begin(path.substr(directory_.size() + 1));
}

ChunkSink::ChunkSink(std::string prefix, Send send, uint64_t files_total, size_t chunk_bytes)
    : prefix_(std::move(prefix)), send_(std::move(send)), files_total_(files_total), chunk_bytes_(chunk_bytes) {}

absl::Status ChunkSink::Begin(std::string_view path) {
  if (absl::Status status = CheckRelative(path); !status.ok()) return status;
  chunk_.set_path(Cat(prefix_, path));
  return absl::OkStatus();
}

absl::Status ChunkSink::Write(std::string_view content) {
  while (!content.empty()) {
    std::string& pending = *chunk_.mutable_content();
    const size_t count = std::min(chunk_bytes_ - pending.size(), content.size());
    pending.append(content.substr(0, count));
    content.remove_prefix(count);
    if (pending.size() < chunk_bytes_) return absl::OkStatus();
    if (absl::Status status = Flush(false); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status ChunkSink::End() { return Flush(true); }

absl::Status ChunkSink::Flush(bool last) {
  chunk_.set_last(last);
  chunk_.set_files_total(files_total_);
  const bool sent = send_(chunk_);
  chunk_.Clear();
  return sent ? absl::OkStatus() : absl::CancelledError("the receiver of the export is gone");
}

}  // namespace msprobe::server
