#include "server/store/segments/segments.h"

#include <rocksdb/env.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "server/format/cat.h"
#include "server/store/log/crc32c.h"
#include "server/store/rocks.h"

namespace msprobe::server {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;

}  // namespace

struct Segments::File {
  uint32_t number = 0;
  std::unique_ptr<rocksdb::WritableFile> file;
  uint64_t size = 0;    // guarded by append_mu_, like what follows
  bool dirty = false;   // in unsynced_
  bool closed = false;  // no more will come
};

Segments::Segments(SegmentsOptions options) : options_(std::move(options)) {}

absl::StatusOr<std::unique_ptr<Segments>> Segments::Open(SegmentsOptions options) {
  std::unique_ptr<Segments> segments(new Segments(std::move(options)));
  auto directory = SegmentDirectory::Open(segments->options_.directory, segments->options_.env);
  if (!directory.ok()) return directory.status();
  segments->directory_ = *std::move(directory);
  return segments;
}

Segments::~Segments() {
  if (directory_ != nullptr) Seal().IgnoreError();
}

absl::StatusOr<Extent> Segments::Append(std::string_view content) {
  auto extents = Append(std::span(&content, 1));
  if (!extents.ok()) return extents.status();
  return extents->front();
}

absl::StatusOr<std::vector<Extent>> Segments::Append(std::span<const std::string_view> contents) {
  std::vector<Extent> extents;
  for (std::string_view content : contents) {
    extents.push_back(
        {.size = static_cast<uint32_t>(content.size()), .crc32c = Crc32c(0, content.data(), content.size())});
  }
  bool rolled = false;
  {
    absl::MutexLock lock(&append_mu_);
    absl::Status status = AppendOnce(contents, extents);
    // A file system may take the open of a direct file and refuse its writes.
    if (!status.ok() && !absl::IsResourceExhausted(status) && std::exchange(direct_, false)) {
      status = AppendOnce(contents, extents);
    }
    if (!status.ok()) return status;
    if (open_->size >= options_.roll_bytes) {
      CloseOpen();
      rolled = true;
    }
  }
  if (rolled) {
    if (absl::Status status = Sync(); !status.ok()) return status;
  }
  return extents;
}

absl::Status Segments::AppendOnce(std::span<const std::string_view> contents, std::vector<Extent>& extents) {
  if (open_ == nullptr) {
    absl::StatusOr<SegmentDirectory::Created> created = directory_->Create(direct_);
    if (!created.ok()) return created.status();
    open_ = std::make_shared<File>();
    open_->number = created->number;
    open_->file = std::move(created->file);
  }
  if (!std::exchange(open_->dirty, true)) unsynced_.push_back(open_);
  uint64_t end = open_->size;
  for (size_t i = 0; i < contents.size();) {
    const char* const begin = contents[i].data();
    size_t size = 0;
    do {
      extents[i].segment = open_->number;
      extents[i].offset = static_cast<uint32_t>(end);
      size = end - open_->size + contents[i].size();
      end += extents[i].padded_size();
      ++i;
    } while (i < contents.size() && BlockBuffer::IsAligned(begin) && contents[i].data() == begin + (end - open_->size));
    if (absl::Status status = Write(*open_, {begin, size}); !status.ok()) {
      CloseOpen();
      return status;
    }
    directory_->Grow(open_->number, end - open_->size);
    open_->size = end;
  }
  return absl::OkStatus();
}

absl::Status Segments::Write(File& file, std::string_view content) {
  static constexpr char kZeros[Extent::kAlignment] = {};
  const size_t padding = (Extent::kAlignment - content.size() % Extent::kAlignment) % Extent::kAlignment;
  if (!file.file->use_direct_io()) {
    rocksdb::Status status = file.file->Append(Slice(content));
    if (status.ok() && padding > 0) status = file.file->Append(rocksdb::Slice(kZeros, padding));
    return FromRocks(status);
  }
  // Direct writes ask for memory and sizes that are multiples of a block.
  if (BlockBuffer::IsAligned(content.data())) {
    const size_t blocks = content.size() - content.size() % Extent::kAlignment;
    if (blocks > 0) {
      rocksdb::Status status = file.file->Append(Slice(content.substr(0, blocks)));
      if (!status.ok()) return FromRocks(status);
    }
    content.remove_prefix(blocks);
  }
  while (!content.empty()) {
    const size_t part = std::min(content.size(), kBufferBytes);
    char* const bytes = buffer_.Take(kBufferBytes);
    std::memcpy(bytes, content.data(), part);
    content.remove_prefix(part);
    const size_t tail = content.empty() ? padding : 0;
    std::memset(bytes + part, 0, tail);
    rocksdb::Status status = file.file->Append(rocksdb::Slice(bytes, part + tail));
    if (!status.ok()) return FromRocks(status);
  }
  return absl::OkStatus();
}

void Segments::CloseOpen() {
  open_->closed = true;
  open_.reset();
}

absl::Status Segments::Sync() {
  absl::MutexLock lock(&sync_mu_);
  if (!lost_.ok()) return lost_;
  struct Taken {
    std::shared_ptr<File> file;
    bool closed;
  };
  std::vector<Taken> taken;
  {
    absl::MutexLock append(&append_mu_);
    for (std::shared_ptr<File>& file : std::exchange(unsynced_, {})) {
      file->dirty = false;
      const bool closed = file->closed;
      taken.push_back({std::move(file), closed});
    }
  }
  for (const Taken& each : taken) {
    if (rocksdb::Status status = each.file->file->Sync(); !status.ok()) {
      lost_ = absl::UnavailableError(Cat("segment ", each.file->number, " was not synced: ", status.ToString()));
      if (options_.on_lost) options_.on_lost(lost_);
      return lost_;
    }
    // Where the name cannot be changed the file is looked at again at the next start, and no worse.
    if (each.closed) directory_->Seal(each.file->number).IgnoreError();
  }
  return absl::OkStatus();
}

uint32_t Segments::BeginNew() {
  absl::MutexLock lock(&append_mu_);
  if (open_ != nullptr) {
    // Synced or not: Sync is what seals.
    if (!std::exchange(open_->dirty, true)) unsynced_.push_back(open_);
    CloseOpen();
  }
  return directory_->next();
}

absl::Status Segments::Seal() {
  BeginNew();
  return Sync();
}

absl::Status Segments::LinkInto(const std::string& directory) {
  const uint32_t below = BeginNew();
  if (absl::Status status = Sync(); !status.ok()) return status;
  return directory_->LinkInto(directory, below);
}

}  // namespace msprobe::server
