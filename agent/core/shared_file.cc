#include "agent/core/shared_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <iterator>
#include <string_view>
#include <utility>

#include "agent/core/process_identity.h"
#include "agent/core/str_cat.h"

namespace msprobe::core {
namespace {

constexpr std::string_view kPrefix = "msprobe-";
constexpr size_t kDigits = 32;
constexpr uint64_t kSmallestFileSystem = uint64_t{1} << 30;

bool IsLimited(__rlimit_resource resource) {
  rlimit limit{};
  return getrlimit(resource, &limit) != 0 || limit.rlim_cur != RLIM_INFINITY;
}

bool IsOurName(std::string_view name) {
  return name.size() == kPrefix.size() + kDigits && name.starts_with(kPrefix) &&
         name.find_first_not_of("0123456789abcdef", kPrefix.size()) == std::string_view::npos;
}

// False: it was taken for a leftover before it was locked.
bool LockWhileNamed(int descriptor) {
  struct stat found {};
  return flock(descriptor, LOCK_EX | LOCK_NB) == 0 && fstat(descriptor, &found) == 0 && found.st_nlink == 1;
}

// Files whose processes are gone: nobody holds their locks.
void RemoveLeftovers(const std::string& directory) {
  DIR* const opened = opendir(directory.c_str());
  if (opened == nullptr) return;
  while (const dirent* const entry = readdir(opened)) {
    if (!IsOurName(entry->d_name)) continue;
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

}  // namespace

std::shared_ptr<SharedFile> SharedFile::Create(size_t room, const std::string& directory) {
  // Beyond a limit on files the kernel sends SIGXFSZ; a limit on addresses is for the program to use up.
  if (IsLimited(RLIMIT_FSIZE) || IsLimited(RLIMIT_AS)) return nullptr;
  RemoveLeftovers(directory);
  std::string name;
  int descriptor = -1;
  for (int attempt = 0; attempt < 3; ++attempt) {
    name = Cat(kPrefix, ToHex(RandomSessionId()));
    descriptor = open(Cat(directory, "/", name).c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (descriptor < 0) return nullptr;
    if (LockWhileNamed(descriptor)) break;
    unlink(Cat(directory, "/", name).c_str());
    close(std::exchange(descriptor, -1));
  }
  if (descriptor < 0) return nullptr;
  // Twice, so that pieces of many sizes find each a place.
  const size_t size = MappedMemory::Rounded(room) * 2;
  void* base = MAP_FAILED;
  if (ftruncate(descriptor, static_cast<off_t>(size)) == 0) {
    base = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, descriptor, 0);
  }
  if (base == MAP_FAILED) {
    unlink(Cat(directory, "/", name).c_str());
    close(descriptor);
    return nullptr;
  }
  return std::shared_ptr<SharedFile>(
      new SharedFile(directory, std::move(name), descriptor, static_cast<std::byte*>(base), size));
}

SharedFile::SharedFile(std::string directory, std::string name, int descriptor, std::byte* base, size_t size)
    : directory_(std::move(directory)),
      name_(std::move(name)),
      descriptor_(descriptor),
      base_(base),
      size_(size),
      owner_(getpid()) {
  free_[0] = size_;
}

SharedFile::~SharedFile() {
  EndSharing();
  munmap(base_, size_);
  close(descriptor_);
}

void SharedFile::EndSharing() {
  if (getpid() == owner_) unlink(Cat(directory_, "/", name_).c_str());
}

bool SharedFile::LeavesRoom(size_t size) const {
  struct statvfs found {};
  if (fstatvfs(descriptor_, &found) != 0) return false;
  const uint64_t all = found.f_blocks * found.f_frsize;
  if (all == 0) return true;  // no limit
  return all >= kSmallestFileSystem && found.f_bavail * found.f_frsize >= all / 2 + size;
}

MappedMemory SharedFile::Allocate(size_t size) {
  const size_t rounded = MappedMemory::Rounded(size);
  if (rounded == 0 || getpid() != owner_ || !LeavesRoom(rounded)) return {};
  uint64_t offset = 0;
  {
    MutexLock lock(&mu_);
    auto found = free_.begin();
    while (found != free_.end() && found->second < rounded) ++found;
    if (found == free_.end()) return {};
    offset = found->first;
    const uint64_t left = found->second - rounded;
    free_.erase(found);
    if (left > 0) free_[offset + rounded] = left;
  }
  if (!GivePages(offset, rounded)) {
    Free(base_ + offset, rounded);
    return {};
  }
  return MappedMemory(base_ + offset, rounded, shared_from_this());
}

bool SharedFile::GivePages(uint64_t offset, size_t size) const {
  // Bounded: a program's timer may interrupt each attempt.
  for (int attempt = 0; attempt < 3; ++attempt) {
    if (fallocate(descriptor_, 0, static_cast<off_t>(offset), static_cast<off_t>(size)) == 0) return true;
    if (errno != EINTR) return false;
  }
  return false;
}

void SharedFile::Free(std::byte* piece, size_t size) {
  if (getpid() != owner_) return;
  uint64_t offset = OffsetOf(piece);
  fallocate(descriptor_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
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
