#include "server/store/segments/segment_directory.h"

#include <rocksdb/env.h>

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "server/format/cat.h"
#include "server/store/disk/block_buffer.h"
#include "server/store/log/crc32c.h"
#include "server/store/rocks.h"

namespace msprobe::server {
namespace {

constexpr std::string_view kOpen = ".open", kSealed = ".segment";
constexpr size_t kMaxReaders = 64;
constexpr size_t kCopyBytes = size_t{1} << 20;

// Of "0000000012.open" 12; 0: it is no segment's name.
uint32_t NumberOf(std::string_view name) {
  uint32_t number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  const std::string_view rest(end, static_cast<size_t>(name.data() + name.size() - end));
  return error == std::errc() && (rest == kOpen || rest == kSealed) ? number : 0;
}

absl::Status SyncDirectory(rocksdb::Env* env, const std::string& path) {
  std::unique_ptr<rocksdb::Directory> directory;
  rocksdb::Status status = env->NewDirectory(path, &directory);
  if (status.ok()) status = directory->Fsync();
  return FromRocks(status);
}

}  // namespace

SegmentDirectory::~SegmentDirectory() = default;

absl::StatusOr<std::unique_ptr<SegmentDirectory>> SegmentDirectory::Open(std::string path, rocksdb::Env* env) {
  std::unique_ptr<SegmentDirectory> directory(new SegmentDirectory(std::move(path), env));
  absl::Status status = FromRocks(env->CreateDirIfMissing(directory->path_));
  if (status.ok()) status = SyncDirectory(env, std::filesystem::path(directory->path_).parent_path().string());
  if (status.ok()) status = directory->List();
  if (!status.ok()) {
    return absl::Status(status.code(), Cat("cannot open segments ", directory->path_, ": ", status.message()));
  }
  return directory;
}

absl::Status SegmentDirectory::List() {
  std::vector<std::string> names;
  if (rocksdb::Status status = env_->GetChildren(path_, &names); !status.ok()) return FromRocks(status);
  absl::MutexLock lock(&mu_);
  for (const std::string& name : names) {
    const uint32_t number = NumberOf(name);
    if (number == 0) continue;
    State state;
    const std::string path = path_ + "/" + name;
    state.sealed = name.ends_with(kSealed);
    state.unproven = !state.sealed;
    rocksdb::Status status = env_->GetFileSize(path, &state.bytes);
    if (status.ok() && state.unproven) {
      std::unique_ptr<rocksdb::WritableFile> file;
      status = env_->ReopenWritableFile(path, &file, rocksdb::EnvOptions());
      if (status.ok()) status = file->Sync();
    }
    if (!status.ok()) return FromRocks(status);
    states_[number] = state;
    next_ = std::max(next_, number + 1);
  }
  return SyncNames();
}

absl::Status SegmentDirectory::SyncNames() const { return SyncDirectory(env_, path_); }

std::string SegmentDirectory::PathOf(uint32_t number, bool sealed) const {
  std::string digits = std::to_string(number);
  digits.insert(0, 10 - digits.size(), '0');
  return Cat(path_, "/", digits, sealed ? kSealed : kOpen);
}

absl::StatusOr<SegmentDirectory::Created> SegmentDirectory::Create(bool direct) {
  Created created;
  {
    absl::MutexLock lock(&mu_);
    created.number = next_++;
  }
  rocksdb::EnvOptions options;
  options.use_mmap_writes = false;
  options.use_direct_writes = direct;
  const std::string path = PathOf(created.number, false);
  rocksdb::Status status = env_->NewWritableFile(path, &created.file, options);
  if (!status.ok() && direct && !status.IsNoSpace()) {
    options.use_direct_writes = false;  // tmpfs, for one, refuses them
    status = env_->NewWritableFile(path, &created.file, options);
  }
  if (!status.ok()) return FromRocks(status);
  if (absl::Status synced = SyncNames(); !synced.ok()) return synced;
  absl::MutexLock lock(&mu_);
  states_[created.number] = State();
  return created;
}

void SegmentDirectory::Grow(uint32_t number, uint64_t bytes) {
  absl::MutexLock lock(&mu_);
  states_[number].bytes += bytes;
}

absl::Status SegmentDirectory::Seal(uint32_t number) {
  absl::MutexLock lock(&mu_);
  auto found = states_.find(number);
  if (found == states_.end() || found->second.sealed) return absl::OkStatus();
  rocksdb::Status status = env_->RenameFile(PathOf(number, false), PathOf(number, true));
  if (!status.ok()) return FromRocks(status);
  found->second.sealed = true;
  found->second.unproven = false;
  return absl::OkStatus();
}

absl::StatusOr<SegmentDirectory::Opened> SegmentDirectory::OpenToRead(uint32_t number, PageCache cache) const {
  // Opened under the lock: the name changes when the file is sealed.
  absl::MutexLock lock(&mu_);
  const auto found = states_.find(number);
  if (found == states_.end()) return absl::NotFoundError(Cat("there is no segment ", number));
  auto cached = std::find_if(readers_.begin(), readers_.end(),
                             [&](const Reader& each) { return each.number == number && each.cache == cache; });
  if (cached != readers_.end()) {
    std::rotate(cached, cached + 1, readers_.end());
    return readers_.back().file;
  }
  rocksdb::EnvOptions options;
  options.use_direct_reads = cache == PageCache::kPassed;
  const std::string path = PathOf(number, found->second.sealed);
  std::unique_ptr<rocksdb::RandomAccessFile> file;
  rocksdb::Status status = env_->NewRandomAccessFile(path, &file, options);
  if (status.IsPathNotFound() || status.IsNotFound()) {
    return absl::DataLossError(Cat("the file of segment ", number, " is gone"));
  }
  if (!status.ok() && options.use_direct_reads) {
    options.use_direct_reads = false;  // tmpfs, for one, refuses them
    status = env_->NewRandomAccessFile(path, &file, options);
  }
  if (!status.ok()) return FromRocks(status);
  Opened opened = std::move(file);
  // One that still grows is opened each time: what a handle shows of later bytes is the file system's affair.
  if (found->second.sealed) {
    if (readers_.size() >= kMaxReaders) readers_.erase(readers_.begin());
    readers_.push_back({number, cache, opened});
  }
  return opened;
}

absl::Status SegmentDirectory::Read(const Extent& extent, std::string& content, PageCache cache) const {
  absl::StatusOr<Opened> file = OpenToRead(extent.segment, cache);
  if (!file.ok()) return file.status();
  rocksdb::Slice read;
  BlockBuffer blocks;
  rocksdb::Status status;
  if ((*file)->use_direct_io()) {
    status = (*file)->Read(extent.offset, extent.padded_size(), &read, blocks.Take(extent.padded_size()));
  } else {
    content.resize(extent.size);
    status = (*file)->Read(extent.offset, extent.size, &read, content.data());
  }
  if (!status.ok()) {
    // A file system may take the open of a direct file and refuse its reads.
    return (*file)->use_direct_io() ? Read(extent, content, PageCache::kUsed) : FromRocks(status);
  }
  if (read.size() < extent.size) {
    return absl::DataLossError(
        Cat("segment ", extent.segment, " ends within ", extent.size, " bytes at ", extent.offset));
  }
  if (read.data() != content.data()) content.assign(read.data(), extent.size);
  if (Crc32c(0, content.data(), content.size()) != extent.crc32c) {
    return absl::DataLossError(Cat("segment ", extent.segment, " has other bytes than were written, among ",
                                   extent.size, " at ", extent.offset));
  }
  return absl::OkStatus();
}

bool SegmentDirectory::IsUnproven(uint32_t number) const {
  absl::MutexLock lock(&mu_);
  const auto found = states_.find(number);
  return found != states_.end() && found->second.unproven;
}

absl::Status SegmentDirectory::SealUnproven() {
  std::vector<uint32_t> unproven;
  {
    absl::MutexLock lock(&mu_);
    for (const auto& [number, state] : states_) {
      if (state.unproven) unproven.push_back(number);
    }
  }
  for (uint32_t number : unproven) {
    if (absl::Status status = Seal(number); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status SegmentDirectory::Delete(const std::vector<uint32_t>& numbers) {
  absl::MutexLock lock(&mu_);
  for (uint32_t number : numbers) {
    auto found = states_.find(number);
    if (found == states_.end()) continue;
    rocksdb::Status status = env_->DeleteFile(PathOf(number, found->second.sealed));
    if (!status.ok()) return FromRocks(status);
    states_.erase(found);
    std::erase_if(readers_, [&](const Reader& each) { return each.number == number; });
  }
  return absl::OkStatus();
}

absl::Status SegmentDirectory::LinkInto(const std::string& directory, uint32_t below) const {
  if (rocksdb::Status status = env_->CreateDirIfMissing(directory); !status.ok()) return FromRocks(status);
  for (const Segment& segment : segments()) {
    if (segment.number >= below) continue;
    const std::string from = PathOf(segment.number, segment.sealed);
    const std::string to = directory + from.substr(path_.size());
    rocksdb::Status linked = env_->LinkFile(from, to);
    absl::Status status = linked.IsNotSupported() ? Copy(from, to) : FromRocks(linked);
    if (!status.ok()) return status;
  }
  return SyncDirectory(env_, directory);
}

absl::Status SegmentDirectory::Copy(const std::string& from, const std::string& to) const {
  std::unique_ptr<rocksdb::SequentialFile> in;
  std::unique_ptr<rocksdb::WritableFile> out;
  rocksdb::Status status = env_->NewSequentialFile(from, &in, rocksdb::EnvOptions());
  if (status.ok()) status = env_->NewWritableFile(to, &out, rocksdb::EnvOptions());
  std::string piece(kCopyBytes, '\0');
  for (rocksdb::Slice read; status.ok();) {
    status = in->Read(piece.size(), &read, piece.data());
    if (!status.ok() || read.empty()) break;
    status = out->Append(read);
  }
  if (status.ok()) status = out->Sync();
  return FromRocks(status);
}

std::vector<SegmentDirectory::Segment> SegmentDirectory::segments() const {
  absl::MutexLock lock(&mu_);
  std::vector<Segment> segments;
  for (const auto& [number, state] : states_) segments.push_back({number, state.bytes, state.sealed});
  return segments;
}

uint64_t SegmentDirectory::bytes() const {
  absl::MutexLock lock(&mu_);
  uint64_t bytes = 0;
  for (const auto& [number, state] : states_) bytes += state.bytes;
  return bytes;
}

uint32_t SegmentDirectory::next() const {
  absl::MutexLock lock(&mu_);
  return next_;
}

}  // namespace msprobe::server
