#include "agent/core/transport/outbox/spool.h"

#include <fcntl.h>
#include <isa-l/crc.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "agent/core/private_directory.h"
#include "agent/core/str_cat.h"

namespace msprobe::core {
namespace {

constexpr uint32_t kSpoolMagic = 0x4C50534D;  // "MSPL"
constexpr std::string_view kOriginKey = "origin";
constexpr std::string_view kHelloKey = "session";
constexpr std::string_view kSuffix = ".spool";

// Name and number of a segment's file; nothing for other files.
std::optional<std::pair<std::string, uint32_t>> SegmentOf(const std::filesystem::path& path) {
  if (path.extension() != kSuffix) return std::nullopt;
  const std::string stem = path.stem().string();
  const size_t dash = stem.rfind('-');
  uint32_t number = 0;
  if (dash == std::string::npos || !absl::SimpleAtoi(stem.substr(dash + 1), &number)) return std::nullopt;
  return std::pair(stem.substr(0, dash), number);
}

struct SpoolHeader {
  uint32_t magic;
  uint32_t crc;  // of what follows
  uint64_t length;
  uint64_t key_length;
};
static_assert(sizeof(SpoolHeader) == 24);

uint32_t Extend(uint32_t crc, std::string_view bytes) {
  return crc32_gzip_refl(crc, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
}

uint32_t CrcOfLengths(const SpoolHeader& header) {
  return Extend(0, {reinterpret_cast<const char*>(&header.length), sizeof(header.length) + sizeof(header.key_length)});
}

uint32_t Crc(const SpoolHeader& header, std::string_view key, std::string_view content) {
  return Extend(Extend(CrcOfLengths(header), key), content);
}

absl::Status Failure(std::string_view what, const std::string& path, int error) {
  const std::string message = Cat("cannot ", what, " ", path, ": ", std::strerror(error));
  return error == ENOSPC || error == EDQUOT ? absl::ResourceExhaustedError(message) : absl::UnavailableError(message);
}

int WriteAll(int descriptor, std::string_view bytes, uint64_t offset) {
  while (!bytes.empty()) {
    const ssize_t written = pwrite(descriptor, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return written < 0 ? errno : ENOSPC;
    bytes.remove_prefix(static_cast<size_t>(written));
    offset += static_cast<uint64_t>(written);
  }
  return 0;
}

int ReadAll(int descriptor, char* out, size_t size, uint64_t offset) {
  while (size > 0) {
    const ssize_t read = pread(descriptor, out, size, static_cast<off_t>(offset));
    if (read < 0 && errno == EINTR) continue;
    if (read <= 0) return read < 0 ? errno : EIO;
    out += read;
    size -= static_cast<size_t>(read);
    offset += static_cast<uint64_t>(read);
  }
  return 0;
}

// What another user left names servers, and files of access, of his own choice.
absl::Status CheckOwner(int descriptor, const std::string& path, struct stat* found) {
  if (fstat(descriptor, found) != 0) return Failure("look at", path, errno);
  if (S_ISREG(found->st_mode) && found->st_uid == geteuid()) return absl::OkStatus();
  return absl::PermissionDeniedError(Cat(path, " is not a file of this user"));
}

// By number.
std::map<uint32_t, std::string> SegmentsOf(const std::string& directory, const std::string& name) {
  std::map<uint32_t, std::string> paths;
  std::error_code error;
  for (std::filesystem::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    const auto segment = SegmentOf(it->path());
    if (segment && segment->first == name) paths.emplace(segment->second, it->path().string());
  }
  return paths;
}

// Whether the entry says whose the spool is.
bool TakeOrigin(const Spool::Entry& entry, SessionOrigin* origin) {
  if (entry.key == kOriginKey) {
    static_cast<void>(origin->ParseFromString(entry.content));
    return true;
  }
  if (entry.key != kHelloKey) return false;
  static_cast<void>(origin->mutable_hello()->ParseFromString(entry.content));
  return true;
}

// 0, or what errno says.
int WriteEntry(int descriptor, std::string_view key, std::string_view content, uint64_t offset) {
  SpoolHeader header{.magic = kSpoolMagic, .crc = 0, .length = content.size(), .key_length = key.size()};
  header.crc = Crc(header, key, content);
  std::string head(reinterpret_cast<const char*>(&header), sizeof(header));
  head += key;
  const int error = WriteAll(descriptor, head, offset);
  return error != 0 ? error : WriteAll(descriptor, content, offset + head.size());
}

absl::StatusOr<SpoolHeader> ReadHeader(int descriptor, const std::string& path, uint64_t offset, uint64_t limit) {
  SpoolHeader header;
  if (limit < sizeof(header)) return absl::DataLossError(Cat("cut off entry in ", path, " at ", offset));
  if (int error = ReadAll(descriptor, reinterpret_cast<char*>(&header), sizeof(header), offset)) {
    return Failure("read", path, error);
  }
  const uint64_t rest = limit - sizeof(header);
  if (header.magic != kSpoolMagic || header.key_length > rest || header.length > rest - header.key_length) {
    return absl::DataLossError(Cat("damaged entry in ", path, " at ", offset));
  }
  return header;
}

absl::StatusOr<Spool::Entry> ReadEntry(int descriptor, const std::string& path, uint64_t offset, uint64_t limit) {
  const absl::StatusOr<SpoolHeader> found = ReadHeader(descriptor, path, offset, limit);
  if (!found.ok()) return found.status();
  const SpoolHeader& header = *found;
  Spool::Entry entry;
  entry.key.resize(header.key_length);
  entry.content.resize(header.length);
  int error = ReadAll(descriptor, entry.key.data(), entry.key.size(), offset + sizeof(header));
  if (error == 0) {
    error =
        ReadAll(descriptor, entry.content.data(), entry.content.size(), offset + sizeof(header) + header.key_length);
  }
  if (error != 0) return Failure("read", path, error);
  if (Crc(header, entry.key, entry.content) != header.crc) {
    return absl::DataLossError(Cat("wrong checksum in ", path, " at ", offset));
  }
  return entry;
}

// Bytes free on the disk of `directory`, and those of them that are not ours to take. Not known: room for anything.
std::pair<uint64_t, uint64_t> RoomAt(const std::string& directory) {
  struct statvfs disk {};
  if (statvfs(directory.c_str(), &disk) != 0) return {UINT64_MAX, 0};
  const uint64_t whole = static_cast<uint64_t>(disk.f_blocks) * disk.f_frsize;
  return {static_cast<uint64_t>(disk.f_bavail) * disk.f_frsize, std::min(whole / 10, uint64_t{64} << 20)};
}

absl::Status CheckRoom(const std::string& directory, uint64_t size) {
  const auto [free, kept] = RoomAt(directory);
  if (free >= kept + size) return absl::OkStatus();
  return absl::ResourceExhaustedError(Cat("the disk of the spool in ", directory, " is full: ", free >> 20,
                                          " MiB are free, ", kept >> 20, " MiB are kept free"));
}

}  // namespace

Spool::Spool(std::string directory, std::string name, uint64_t quota_bytes, std::string origin)
    : directory_(std::move(directory)),
      name_(std::move(name)),
      quota_(quota_bytes),
      segment_bytes_(std::clamp<uint64_t>(quota_bytes / 8, 1 << 16, uint64_t{64} << 20)),
      origin_(std::move(origin)) {}

Spool::Spool(Spool&& other) noexcept
    : directory_(other.directory_),
      name_(other.name_),
      quota_(other.quota_),
      segment_bytes_(other.segment_bytes_),
      origin_(other.origin_),
      keep_(other.keep_),
      full_(other.full_),
      failure_(other.failure_),
      segments_(std::exchange(other.segments_, {})),
      next_segment_(other.next_segment_),
      held_bytes_(std::exchange(other.held_bytes_, 0)) {}

Spool::~Spool() {
  while (!segments_.empty()) {
    if (!keep_) {
      Remove(segments_.begin());
    } else {
      segments_.erase(segments_.begin());
    }
  }
}

absl::Status Spool::OpenSegment() {
  if (absl::Status status = MakeClosedDirectories(directory_); !status.ok()) return status;
  Segment segment;
  segment.path = Cat(directory_, "/", name_, "-", next_segment_, ".spool");
  segment.file = std::make_unique<OwnDescriptor>(segment.path, O_RDWR | O_CREAT | O_EXCL, 0600);
  if (segment.file->get() < 0) return Failure("make", segment.path, errno);
  flock(segment.file->get(), LOCK_EX | LOCK_NB);
  if (!origin_.empty()) {
    if (const int failed = WriteEntry(segment.file->get(), kOriginKey, origin_, 0)) {
      unlink(segment.path.c_str());
      return Failure("write", segment.path, failed);
    }
    segment.size = sizeof(SpoolHeader) + kOriginKey.size() + origin_.size();
    held_bytes_ += segment.size;
  }
  segments_.emplace(next_segment_++, std::move(segment));
  return absl::OkStatus();
}

absl::Status Spool::Check() const {
  std::filesystem::path made(directory_);  // what there is of it
  std::error_code error;
  while (!std::filesystem::exists(made, error) && made.has_parent_path()) made = made.parent_path();
  if (made.empty() || !std::filesystem::exists(made, error)) made = ".";
  const std::string path = made.string();
  if (!std::filesystem::is_directory(made, error)) {
    return absl::FailedPreconditionError(Cat(path, " is not a directory"));
  }
  if (access(path.c_str(), W_OK | X_OK) != 0) return Failure("write into", path, errno);
  return CheckRoom(path, 0);
}

absl::StatusOr<Spool::Place> Spool::Append(std::string_view key, std::string_view content) {
  absl::StatusOr<Place> place = TryAppend(key, content);
  full_ = !place.ok();
  if (full_) failure_ = place.status();
  return place;
}

absl::StatusOr<Spool::Place> Spool::TryAppend(std::string_view key, std::string_view content) {
  const uint64_t size = sizeof(SpoolHeader) + key.size() + content.size();
  if (held_bytes_ + size > quota_) {
    return absl::ResourceExhaustedError(Cat("the spool in ", directory_, " is full: ", quota_, " bytes"));
  }
  if (absl::Status status = CheckRoom(directory_, size); !status.ok()) return status;
  if (segments_.empty() || segments_.rbegin()->second.size >= segment_bytes_) {
    if (absl::Status status = OpenSegment(); !status.ok()) return status;
  }
  const auto newest = std::prev(segments_.end());
  Segment& segment = newest->second;
  if (const int error = WriteEntry(segment.file->get(), key, content, segment.size)) {
    [[maybe_unused]] const int ignored = ftruncate(segment.file->get(), static_cast<off_t>(segment.size));
    const absl::Status status = Failure("write", segment.path, error);
    if (segment.live == 0) Remove(newest);
    return status;
  }
  const Place place{.segment = newest->first, .offset = segment.size, .size = size};
  segment.size += size;
  ++segment.live;
  held_bytes_ += size;
  return place;
}

absl::StatusOr<Spool::Entry> Spool::Read(const Place& place) const {
  const auto it = segments_.find(place.segment);
  if (it == segments_.end()) return absl::NotFoundError("the spooled entry was released");
  return ReadEntry(it->second.file->get(), it->second.path, place.offset, place.size);
}

absl::Status Spool::Verify(const Place& place) const {
  const auto it = segments_.find(place.segment);
  if (it == segments_.end()) return absl::NotFoundError("the spooled entry was released");
  const auto& [file, path, size, live] = it->second;
  const int descriptor = file->get();
  const absl::StatusOr<SpoolHeader> header = ReadHeader(descriptor, path, place.offset, place.size);
  if (!header.ok()) return header.status();
  uint32_t crc = CrcOfLengths(*header);
  constexpr uint64_t kPiece = 1 << 18;
  std::string piece;
  const uint64_t end = place.offset + sizeof(SpoolHeader) + header->key_length + header->length;
  for (uint64_t at = place.offset + sizeof(SpoolHeader); at < end; at += piece.size()) {
    piece.resize(std::min(kPiece, end - at));
    if (int error = ReadAll(descriptor, piece.data(), piece.size(), at)) return Failure("read", path, error);
    crc = Extend(crc, piece);
  }
  if (crc != header->crc) return absl::DataLossError(Cat("wrong checksum in ", path, " at ", place.offset));
  return absl::OkStatus();
}

absl::StatusOr<Spool::Part> Spool::ReadPart(const Place& place, uint64_t from, size_t size) const {
  const auto it = segments_.find(place.segment);
  if (it == segments_.end()) return absl::NotFoundError("the spooled entry was released");
  const auto& [file, path, segment_size, live] = it->second;
  const int descriptor = file->get();
  const absl::StatusOr<SpoolHeader> header = ReadHeader(descriptor, path, place.offset, place.size);
  if (!header.ok()) return header.status();
  if (from > header->length) return absl::OutOfRangeError(Cat("the entry in ", path, " ends before ", from));
  Part part;
  part.bytes.resize(std::min<uint64_t>(size, header->length - from));
  part.last = from + part.bytes.size() == header->length;
  const uint64_t at = place.offset + sizeof(SpoolHeader) + header->key_length + from;
  if (int error = ReadAll(descriptor, part.bytes.data(), part.bytes.size(), at)) return Failure("read", path, error);
  return part;
}

void Spool::Release(const Place& place) {
  full_ = false;
  const auto it = segments_.find(place.segment);
  if (it != segments_.end() && --it->second.live == 0) Remove(it);
}

void Spool::Remove(std::map<uint32_t, Segment>::iterator segment) {
  held_bytes_ -= segment->second.size;
  if (segment->second.file->get() >= 0) unlink(segment->second.path.c_str());  // else it is the parent's
  segments_.erase(segment);
}

std::string Spool::NameOf(const std::string& file) {
  auto segment = SegmentOf(file);
  return segment ? std::move(segment->first) : "";
}

std::vector<std::string> Spool::Names(const std::string& directory) {
  std::set<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    if (const auto segment = SegmentOf(it->path())) names.insert(segment->first);
  }
  return {names.begin(), names.end()};
}

absl::StatusOr<Spool::Left> Spool::TakeOver(const std::string& directory, const std::string& name) {
  Left left{.spool = Spool(directory, name, std::numeric_limits<uint64_t>::max()), .origin = {}, .entries = {}};
  left.spool.Keep();
  for (const auto& [number, path] : SegmentsOf(directory, name)) {
    if (absl::Status status = left.spool.Adopt(number, path, &left); !status.ok()) return status;
  }
  if (left.origin.hello().session().empty()) {
    return absl::DataLossError(Cat(directory, "/", name, "-*.spool do not say whose they are"));
  }
  return left;
}

absl::StatusOr<SessionOrigin> Spool::ReadOrigin(const std::string& directory, const std::string& name) {
  for (const auto& [number, path] : SegmentsOf(directory, name)) {
    const OwnDescriptor file(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
    struct stat status {};
    if (file.get() < 0 || !CheckOwner(file.get(), path, &status).ok()) continue;
    const absl::StatusOr<Entry> entry = ReadEntry(file.get(), path, 0, static_cast<uint64_t>(status.st_size));
    SessionOrigin origin;
    if (entry.ok() && TakeOrigin(*entry, &origin)) return origin;
  }
  return absl::DataLossError(Cat(directory, "/", name, "-*.spool do not say whose they are"));
}

absl::Status Spool::Adopt(uint32_t number, const std::string& path, Left* left) {
  Segment segment;
  segment.path = path;
  segment.file = std::make_unique<OwnDescriptor>(path, O_RDWR | O_NOFOLLOW | O_NONBLOCK);
  const int descriptor = segment.file->get();
  if (descriptor < 0 && errno == ELOOP) return absl::PermissionDeniedError(Cat(path, " is a link"));
  if (descriptor < 0) return Failure("open", path, errno);
  struct stat status {};
  if (absl::Status owner = CheckOwner(descriptor, path, &status); !owner.ok()) return owner;
  if (flock(descriptor, LOCK_EX | LOCK_NB) != 0) return absl::UnavailableError(Cat(path, " is in use"));
  if (fstat(descriptor, &status) != 0 || status.st_nlink == 0) return absl::OkStatus();  // another has sent it
  const auto size = static_cast<uint64_t>(status.st_size);
  while (segment.size < size) {
    absl::StatusOr<Entry> entry = ReadEntry(descriptor, path, segment.size, size - segment.size);
    if (!entry.ok()) break;  // what a crash left unfinished
    const uint64_t length = sizeof(SpoolHeader) + entry->key.size() + entry->content.size();
    if (!TakeOrigin(*entry, &left->origin)) {
      left->entries.push_back({std::move(entry->key), {.segment = number, .offset = segment.size, .size = length}});
      ++segment.live;
    }
    segment.size += length;
  }
  const bool foreign = segment.size == 0 && size > 0;
  held_bytes_ += segment.size;
  next_segment_ = number + 1;
  const auto added = segments_.emplace(number, std::move(segment)).first;
  if (added->second.live == 0 && !foreign) Remove(added);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Spool::Entry>> Spool::ReadSegment(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return Failure("open", path, errno);
  struct stat status {};
  fstat(descriptor, &status);
  const uint64_t size = static_cast<uint64_t>(status.st_size);
  std::vector<Entry> entries;
  for (uint64_t offset = 0; offset < size;) {
    absl::StatusOr<Entry> entry = ReadEntry(descriptor, path, offset, size - offset);
    if (!entry.ok()) break;
    offset += sizeof(SpoolHeader) + entry->key.size() + entry->content.size();
    entries.push_back(*std::move(entry));
  }
  close(descriptor);
  return entries;
}

}  // namespace msprobe::core
