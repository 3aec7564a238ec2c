#include "agent/core/payload/shared_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <string_view>
#include <utility>

#include "agent/core/str_cat.h"

namespace msprobe::core {
namespace {

constexpr std::string_view kUnpublished = ".new";
constexpr uint64_t kSmallestMemoryForPayloads = uint64_t{1} << 30;
constexpr uint64_t kFreeOnDisk = uint64_t{64} << 20;
constexpr uint64_t kFreeOnDiskForPayloads = uint64_t{1} << 30;

bool IsLimited(__rlimit_resource resource) {
  rlimit limit{};
  return getrlimit(resource, &limit) != 0 || limit.rlim_cur != RLIM_INFINITY;
}

bool IsMemory(int descriptor) {
  struct statfs found {};
  return fstatfs(descriptor, &found) == 0 && found.f_type == 0x01021994;  // tmpfs
}

// Whether pages from fallocate stay available when the file system fills up.
bool KeepsPages(int descriptor) {
  struct statfs found {};
  if (fstatfs(descriptor, &found) != 0) return false;
  switch (static_cast<uint32_t>(found.f_type)) {
    case 0x01021994:  // tmpfs
    case 0x0000EF53:  // ext2 to ext4
    case 0x58465342:  // XFS
    case 0x794C7630:  // overlayfs, on top of one of these
      return true;
    default:
      return false;
  }
}

// False: another process took the file for a leftover and removed it before it was locked.
bool LockWhileNamed(int descriptor) {
  struct stat found {};
  return flock(descriptor, LOCK_EX | LOCK_NB) == 0 && fstat(descriptor, &found) == 0 && found.st_nlink == 1;
}

// Removes files whose makers died before they published them. Nobody holds their locks.
void RemoveUnpublished(const std::string& directory) {
  DIR* const opened = opendir(directory.c_str());
  if (opened == nullptr) return;
  while (const dirent* const entry = readdir(opened)) {
    const std::string_view name = entry->d_name;
    if (!name.starts_with("msprobe-") || !name.ends_with(kUnpublished)) continue;
    const int descriptor = openat(dirfd(opened), entry->d_name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (descriptor < 0) continue;
    struct stat found {};
    if (fstat(descriptor, &found) == 0 && found.st_uid == geteuid() && flock(descriptor, LOCK_EX | LOCK_NB) == 0) {
      unlinkat(dirfd(opened), entry->d_name, 0);
    }
    close(descriptor);
  }
  closedir(opened);
}

absl::Status CannotMake(const std::string& path, int error) {
  const std::string message = Cat("cannot make ", path, ": ", std::strerror(error));
  return error == ENOSPC || error == EDQUOT ? absl::ResourceExhaustedError(message) : absl::UnavailableError(message);
}

std::byte* Map(int descriptor, size_t size) {
  void* const base = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, descriptor, 0);
  return base == MAP_FAILED ? nullptr : static_cast<std::byte*>(base);
}

}  // namespace

absl::StatusOr<std::shared_ptr<SharedFile>> SharedFile::Create(const std::string& path, size_t room) {
  // Beyond a limit on file sizes the kernel sends SIGXFSZ. A limit on addresses is left for the program.
  if (IsLimited(RLIMIT_FSIZE)) return absl::FailedPreconditionError("the size of files is limited (ulimit -f)");
  if (IsLimited(RLIMIT_AS)) return absl::FailedPreconditionError("the address space is limited (ulimit -v)");
  RemoveUnpublished(std::filesystem::path(path).parent_path());
  const std::string unpublished = Cat(path, kUnpublished);
  std::unique_ptr<OwnDescriptor> file;
  for (int attempt = 0; attempt < 3; ++attempt) {
    file = std::make_unique<OwnDescriptor>(unpublished, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
    if (file->get() < 0) return CannotMake(path, errno);
    if (LockWhileNamed(file->get())) break;
    unlink(unpublished.c_str());
    file.reset();
  }
  if (file == nullptr) return absl::UnavailableError(Cat("cannot make ", path, ": it was removed at once"));
  // Twice the room, so that pieces of different sizes find a place.
  const size_t size = MappedMemory::Rounded(room) * 2;
  absl::Status status;
  std::byte* base = nullptr;
  if (!KeepsPages(file->get())) {
    status = absl::FailedPreconditionError(
        Cat(std::filesystem::path(path).parent_path().string(), " is on a file system that does not keep pages"));
  } else if (ftruncate(file->get(), static_cast<off_t>(size)) != 0 || (base = Map(file->get(), size)) == nullptr) {
    status = CannotMake(path, errno);
  }
  if (!status.ok()) {
    unlink(unpublished.c_str());
    return status;
  }
  return std::shared_ptr<SharedFile>(new SharedFile(path, std::move(file), base, size));
}

absl::Status SharedFile::Publish() {
  if (rename(Cat(path_, kUnpublished).c_str(), path_.c_str()) != 0) return CannotMake(path_, errno);
  MutexLock lock(&mu_);
  published_ = true;
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<SharedFile>> SharedFile::TakeOver(const std::string& path) {
  auto opened = std::make_unique<OwnDescriptor>(path, O_RDWR | O_NONBLOCK);
  const int descriptor = opened->get();
  if (descriptor < 0) {
    const std::string message = Cat("cannot open ", path, ": ", std::strerror(errno));
    return errno == ENOENT ? absl::NotFoundError(message) : absl::PermissionDeniedError(message);
  }
  struct stat found {};
  if (fstat(descriptor, &found) != 0 || !S_ISREG(found.st_mode) || found.st_uid != geteuid() ||
      (found.st_mode & 077) != 0) {
    return absl::PermissionDeniedError(Cat(path, " is not a file of this user alone (mode 0600)"));
  }
  if (flock(descriptor, LOCK_EX | LOCK_NB) != 0) return absl::UnavailableError(Cat(path, " is in use"));
  if (fstat(descriptor, &found) != 0 || found.st_nlink == 0) return absl::NotFoundError(Cat(path, " is gone"));
  const auto size = static_cast<size_t>(found.st_size);
  std::byte* const base = size > 0 && KeepsPages(descriptor) ? Map(descriptor, size) : nullptr;
  if (base == nullptr) return absl::DataLossError(Cat(path, " is damaged: it cannot be mapped"));
  std::shared_ptr<SharedFile> file(new SharedFile(path, std::move(opened), base, size));
  MutexLock lock(&file->mu_);
  file->published_ = true;
  return file;
}

SharedFile::SharedFile(std::string path, std::unique_ptr<OwnDescriptor> file, std::byte* base, size_t size)
    : path_(std::move(path)), file_(std::move(file)), base_(base), size_(size), owner_(getpid()), at_fork_([this] {
        // A private mapping of the file, so that the child can still read everything. The file is opened again, because
        // a mapping made from the parent's descriptor would keep the lock.
        const int again = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
        const int flags = MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE | (again < 0 ? MAP_ANONYMOUS : 0);
        static_cast<void>(mmap(base_, size_, PROT_READ | PROT_WRITE, flags, again, 0));
        if (again >= 0) close(again);
      }) {
  free_[0] = size_;
}

SharedFile::~SharedFile() {
  if (OfThisProcess() && !published_) unlink(Cat(path_, kUnpublished).c_str());
  munmap(base_, size_);
}

bool SharedFile::OfThisProcess() const { return getpid() == owner_; }

bool SharedFile::Remove() {
  if (!OfThisProcess()) return false;
  unlink(path_.c_str());
  return true;
}

void SharedFile::Leave() {
  if (!OfThisProcess()) return;
  MutexLock lock(&mu_);
  left_ = true;
  flock(file_->get(), LOCK_UN);
}

bool SharedFile::LeavesRoom(size_t size, Use use) const {
  struct statvfs found {};
  if (fstatvfs(file_->get(), &found) != 0) return false;
  const uint64_t all = found.f_blocks * found.f_frsize;
  if (all == 0) return true;  // no limit
  const uint64_t free = found.f_bavail * found.f_frsize;
  if (!IsMemory(file_->get())) return free >= size + (use == Use::kPayloads ? kFreeOnDiskForPayloads : kFreeOnDisk);
  return (use == Use::kRecords || all >= kSmallestMemoryForPayloads) && free >= all / 2 + size;
}

MappedMemory SharedFile::Allocate(size_t size, Use use) {
  const size_t rounded = MappedMemory::Rounded(size);
  if (rounded == 0 || !OfThisProcess() || !LeavesRoom(rounded, use)) return {};
  uint64_t offset = 0;
  {
    MutexLock lock(&mu_);
    const auto found = std::find_if(free_.begin(), free_.end(), [&](const auto& range) {
      const uint64_t skipped = MappedMemory::Rounded(range.first) - range.first;
      return range.second >= skipped && range.second - skipped >= rounded;
    });
    if (left_ || found == free_.end()) return {};
    offset = MappedMemory::Rounded(found->first);
    TakeFromFree(found, offset, rounded);
  }
  if (!GivePages(offset, rounded)) {
    Free(base_ + offset, rounded);
    return {};
  }
  return MappedMemory(base_ + offset, rounded, shared_from_this());
}

MappedMemory SharedFile::Claim(uint64_t offset, size_t size) {
  if (offset > size_ || size > size_ - offset || size == 0) return {};
  const uint64_t end = offset + size;
  {
    MutexLock lock(&mu_);
    auto found = free_.upper_bound(offset);
    if (found == free_.begin()) return {};
    --found;
    if (end > found->first + found->second) return {};
    TakeFromFree(found, offset, size);
  }
  // A copy of the file may have holes.
  if (!GivePages(offset, size)) return {};
  return MappedMemory(base_ + offset, size, shared_from_this());
}

void SharedFile::TakeFromFree(std::map<uint64_t, uint64_t>::iterator range, uint64_t offset, size_t size) {
  const uint64_t end = range->first + range->second;
  if (offset + size < end) free_[offset + size] = end - offset - size;
  if (range->first < offset) {
    range->second = offset - range->first;
  } else {
    free_.erase(range);
  }
}

bool SharedFile::GivePages(uint64_t offset, size_t size) const {
  // Bounded, because a timer of the program may interrupt every attempt.
  for (int attempt = 0; attempt < 3; ++attempt) {
    if (fallocate(file_->get(), 0, static_cast<off_t>(offset), static_cast<off_t>(size)) == 0) return true;
    if (errno != EINTR) return false;
  }
  return false;
}

void SharedFile::Free(std::byte* piece, size_t size) {
  if (!OfThisProcess()) return;
  uint64_t offset = OffsetOf(piece);
  {
    MutexLock lock(&mu_);
    if (left_) return;
  }
  // Only a part of the page was claimed; the rest may belong to other pieces that were left.
  if (offset % MappedMemory::kPage != 0 || size % MappedMemory::kPage != 0) return;
  fallocate(file_->get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
            static_cast<off_t>(size));
  uint64_t length = size;
  MutexLock lock(&mu_);
  auto next = free_.lower_bound(offset);
  if (next != free_.end() && next->first == offset + length) {
    length += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      before->second += length;
      return;
    }
  }
  free_[offset] = length;
}

}  // namespace msprobe::core
