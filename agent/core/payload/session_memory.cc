#include "agent/core/payload/session_memory.h"

#include <fcntl.h>
#include <isa-l/crc.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <tuple>

#include "agent/core/str_cat.h"

namespace msprobe::core {
namespace {

namespace fs = std::filesystem;

constexpr char kMagic[8] = {'m', 's', 'p', 'r', 'o', 'b', 'e', '\n'};
// Format 1 has no edges in the entries of the queue, formats 1 and 2 have stacks as text.
constexpr uint32_t kFormat = 3;
constexpr size_t kTableBytes = size_t{64} << 10;
constexpr size_t kLongestOrigin = size_t{4} << 20;
constexpr size_t kMaxLosses = 16;
constexpr size_t kLongestServer = 256;

uint32_t Crc(std::string_view bytes) {
  return crc32_gzip_refl(0, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
}

struct LossRecord {
  uint64_t fragments, payloads;
  uint32_t step, has_step, reason, unused;
};

struct LossPage {
  uint64_t after;
  uint64_t count;
  LossRecord losses[kMaxLosses];
};

absl::Status Damaged(const std::string& path, std::string_view what) {
  return absl::DataLossError(Cat(path, " is damaged: ", what));
}

}  // namespace

struct alignas(128) Listing::Slot {
  std::atomic<uint32_t> kind;  // PieceKind; 0: free
  uint32_t first_step;
  uint64_t offset, size;  // of the piece
  std::atomic<uint64_t> used;
  uint64_t number, last_entry, fragments;
  char hash[16];
};
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

struct SessionMemory::Header {
  char magic[sizeof(kMagic)];
  uint32_t format;
  uint32_t slot_bytes;
  uint64_t origin_offset, origin_size;
  uint32_t origin_crc;
  std::atomic<uint32_t> server_bytes;
  char server[kLongestServer];
  std::atomic<uint64_t> cut_through, cut_entry, freed_through;
  std::atomic<uint64_t> loss_page;  // the one of the two that counts
  LossPage losses[2];
};

// Has kTableBytes and is a piece of its own, except for the first table, which follows the header.
struct alignas(128) SessionMemory::Table {
  std::atomic<uint64_t> next;  // offset of the next table; 0: there is none

  std::span<Listing::Slot> lines() {
    return {reinterpret_cast<Listing::Slot*>(this + 1), (kTableBytes - sizeof(Table)) / sizeof(Listing::Slot)};
  }
};

void Listing::SetUsed(uint64_t used) {
  if (slot_ != nullptr) slot_->used.store(used, std::memory_order_release);
}

void Listing::Clear() {
  if (slot_ != nullptr) memory_->Free(std::exchange(slot_, nullptr));
  memory_.reset();
}

SessionMemory::SessionMemory(std::shared_ptr<SharedFile> file, std::string link)
    : file_(std::move(file)), link_(std::move(link)) {}

SessionMemory::~SessionMemory() = default;

SessionMemory::Header* SessionMemory::header() const { return reinterpret_cast<Header*>(header_piece_.get()); }

std::shared_ptr<SessionMemory> SessionMemory::Private() {
  return std::shared_ptr<SessionMemory>(new SessionMemory(nullptr, ""));
}

absl::StatusOr<std::shared_ptr<SessionMemory>> SessionMemory::Create(const std::string& path, const std::string& link,
                                                                     size_t room, const SessionOrigin& origin) {
  absl::StatusOr<std::shared_ptr<SharedFile>> file = SharedFile::Create(path, room);
  if (!file.ok()) return file.status();
  std::shared_ptr<SessionMemory> memory(new SessionMemory(*std::move(file), link));
  if (absl::Status status = memory->Begin(origin); !status.ok()) return status;
  // Make the link first: a file without one might stay for ever.
  if (!link.empty() && symlink(path.c_str(), link.c_str()) != 0) {
    return absl::UnavailableError(Cat("cannot make ", link, ": ", std::strerror(errno)));
  }
  if (absl::Status status = memory->file_->Publish(); !status.ok()) {
    if (!link.empty()) unlink(link.c_str());
    return status;
  }
  return memory;
}

absl::Status SessionMemory::Begin(const SessionOrigin& origin) {
  static_assert(sizeof(Header) <= MappedMemory::kPage);
  const std::string bytes = origin.SerializeAsString();
  spool_directory_ = origin.spool_directory();
  header_piece_ = Allocate(MappedMemory::kPage + kTableBytes, SharedFile::Use::kRecords);
  origin_piece_ = Allocate(bytes.size(), SharedFile::Use::kRecords);
  if (header_piece_.empty() || origin_piece_.empty()) {
    const std::string directory = fs::path(path()).parent_path();
    return absl::ResourceExhaustedError(Cat(directory, " has no room that it can spare"));
  }
  std::memcpy(origin_piece_.get(), bytes.data(), bytes.size());
  Header* const head = new (header_piece_.get()) Header();
  std::memcpy(head->magic, kMagic, sizeof(kMagic));
  head->format = kFormat;
  head->slot_bytes = sizeof(Listing::Slot);
  head->origin_offset = *origin_piece_.shared_offset();
  head->origin_size = bytes.size();
  head->origin_crc = Crc(bytes);
  MutexLock lock(&mu_);
  last_table_ = new (header_piece_.get() + MappedMemory::kPage) Table();
  AddSlots(last_table_->lines());
  return absl::OkStatus();
}

void SessionMemory::AddSlots(std::span<Listing::Slot> slots) {
  for (Listing::Slot& slot : slots) free_.push_back(new (&slot) Listing::Slot());
}

MappedMemory SessionMemory::Allocate(size_t size, SharedFile::Use use) const {
  if (file_ == nullptr) return {};
  MappedMemory memory = file_->Allocate(size, use);
  if (memory.empty()) lacked_room_ = true;
  return memory;
}

MappedMemory SessionMemory::AllocateRecords(size_t size) const {
  MappedMemory memory = Allocate(size, SharedFile::Use::kRecords);
  return memory.empty() ? MappedMemory::Allocate(size) : std::move(memory);
}

MappedMemory SessionMemory::Claim(uint64_t offset, size_t size) const {
  return file_ == nullptr ? MappedMemory() : file_->Claim(offset, size);
}

Listing SessionMemory::List(PieceKind kind, const MappedMemory& piece, const PieceFacts& facts, uint64_t used) {
  const std::optional<uint64_t> offset = piece.shared_offset();
  return offset.has_value() ? List(kind, *offset, piece.size(), facts, used) : Listing();
}

Listing SessionMemory::List(PieceKind kind, uint64_t offset, size_t size, const PieceFacts& facts, uint64_t used) {
  Listing::Slot* const slot = TakeSlot();
  if (slot == nullptr) return {};
  slot->first_step = facts.first_step;
  slot->offset = offset;
  slot->size = size;
  slot->used.store(used, std::memory_order_relaxed);
  slot->number = facts.number;
  slot->last_entry = facts.last_entry;
  slot->fragments = facts.fragments;
  std::copy_n(facts.hash.begin(), std::min(facts.hash.size(), sizeof(slot->hash)), slot->hash);
  slot->kind.store(static_cast<uint32_t>(kind), std::memory_order_release);
  return {shared_from_this(), slot};
}

Listing::Slot* SessionMemory::TakeSlot() {
  if (file_ == nullptr) return nullptr;
  MutexLock lock(&mu_);
  if (left_) return nullptr;
  if (free_.empty()) {
    MappedMemory piece = Allocate(kTableBytes, SharedFile::Use::kRecords);
    if (piece.empty()) return nullptr;
    Table* const table = new (piece.get()) Table();
    AddSlots(table->lines());
    last_table_->next.store(*piece.shared_offset(), std::memory_order_release);
    last_table_ = table;
    tables_.push_back(std::move(piece));
  }
  Listing::Slot* const slot = free_.back();
  free_.pop_back();
  ++listed_;
  return slot;
}

void SessionMemory::Free(Listing::Slot* slot) {
  MutexLock lock(&mu_);
  if (left_) return;
  slot->kind.store(0, std::memory_order_release);
  free_.push_back(slot);
  --listed_;
}

size_t SessionMemory::listed() const {
  MutexLock lock(&mu_);
  return listed_;
}

void SessionMemory::NoteCut(uint64_t sequence, uint64_t last_entry) {
  if (file_ == nullptr) return;
  header()->cut_through.store(sequence, std::memory_order_release);
  header()->cut_entry.store(last_entry, std::memory_order_release);
}

void SessionMemory::NoteFreed(uint64_t freed_through) {
  if (file_ != nullptr) header()->freed_through.store(freed_through, std::memory_order_release);
}

void SessionMemory::NoteLosses(uint64_t after, std::span<const Loss> losses) {
  if (file_ == nullptr) return;
  Header& head = *header();
  const uint64_t other = 1 - (head.loss_page.load(std::memory_order_relaxed) & 1);
  LossPage& page = head.losses[other];
  page.after = after;
  page.count = std::min(losses.size(), kMaxLosses);
  for (size_t i = 0; i < losses.size(); ++i) {
    LossRecord& record = page.losses[std::min(i, kMaxLosses - 1)];
    if (i < kMaxLosses) record = {};
    record.fragments += losses[i].fragments;
    record.payloads += losses[i].payloads;
    record.step = losses[i].step.value_or(0);
    record.has_step = losses[i].step.has_value() ? 1 : 0;
    record.reason = static_cast<uint32_t>(losses[i].reason);
  }
  head.loss_page.store(other, std::memory_order_release);
}

void SessionMemory::NoteServer(std::string_view address) {
  if (file_ == nullptr || address.size() > kLongestServer) return;
  Header& head = *header();
  head.server_bytes.store(0, std::memory_order_release);
  std::copy_n(address.begin(), address.size(), head.server);
  head.server_bytes.store(static_cast<uint32_t>(address.size()), std::memory_order_release);
}

const std::string& SessionMemory::path() const {
  static const std::string none;
  return file_ == nullptr ? none : file_->path();
}

std::string SessionMemory::name() const { return fs::path(path()).filename(); }

void SessionMemory::Remove() {
  // Remove the file first: a link without a file is harmless.
  if (file_ == nullptr || !file_->Remove()) return;
  if (!link_.empty()) unlink(link_.c_str());
  const fs::path spool = spool_directory_;
  if (!spool.empty()) rmdir(spool.c_str());
  if (spool.parent_path().filename() == ".msprobe") rmdir(spool.parent_path().c_str());
}

void SessionMemory::Leave() {
  if (file_ == nullptr) return;
  MutexLock lock(&mu_);
  left_ = true;
  file_->Leave();
}

absl::StatusOr<SessionOrigin> SessionMemory::ReadOrigin(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (descriptor < 0) return absl::NotFoundError(Cat("cannot open ", path, ": ", std::strerror(errno)));
  struct stat found {};
  alignas(Header) char bytes[sizeof(Header)];
  const Header& head = reinterpret_cast<const Header&>(bytes);
  absl::Status status;
  std::string content;
  if (fstat(descriptor, &found) != 0 || !S_ISREG(found.st_mode) || found.st_uid != geteuid()) {
    status = absl::PermissionDeniedError(Cat(path, " is not a file of this user"));
  } else if (pread(descriptor, bytes, sizeof(bytes), 0) != static_cast<ssize_t>(sizeof(bytes)) ||
             std::memcmp(head.magic, kMagic, sizeof(kMagic)) != 0 || head.format == 0 || head.format > kFormat) {
    status = absl::DataLossError(Cat(path, " is of a format that this version does not know"));
  } else if (head.origin_size > kLongestOrigin) {
    status = Damaged(path, "its header");
  } else {
    content.resize(head.origin_size);
    const ssize_t got = pread(descriptor, content.data(), content.size(), static_cast<off_t>(head.origin_offset));
    if (got != static_cast<ssize_t>(content.size()) || Crc(content) != head.origin_crc) {
      status = Damaged(path, "its header");
    }
  }
  close(descriptor);
  if (!status.ok()) return status;
  SessionOrigin origin;
  if (!origin.ParseFromString(content) || origin.hello().session().empty()) return Damaged(path, "its header");
  return origin;
}

absl::StatusOr<SessionMemory::Left> SessionMemory::TakeOver(const std::string& path, const std::string& link) {
  absl::StatusOr<std::shared_ptr<SharedFile>> file = SharedFile::TakeOver(path);
  if (!file.ok()) return file.status();
  Left left;
  left.memory.reset(new SessionMemory(*std::move(file), link));
  absl::Status status;
  if (absl::StatusOr<SessionOrigin> origin = ReadOrigin(path); origin.ok()) {
    left.origin = *std::move(origin);
    status = left.memory->ReadLeft(&left);
  } else {
    status = origin.status();
  }
  if (status.ok()) return left;
  left.memory->Leave();
  return status;
}

absl::Status SessionMemory::ReadLeft(Left* left) {
  spool_directory_ = link_.empty() ? left->origin.spool_directory() : fs::path(link_).parent_path().string();
  if (link_.empty()) {
    const std::string link = Cat(spool_directory_, "/", name());
    std::error_code error;
    if (fs::read_symlink(link, error) == path()) link_ = link;
  }
  header_piece_ = Claim(0, MappedMemory::kPage + kTableBytes);
  if (header_piece_.empty()) return Damaged(path(), "it is too short");
  const Header& head = *header();
  if (head.slot_bytes != sizeof(Listing::Slot)) {
    return absl::DataLossError(Cat(path(), " is of a format that this version does not know"));
  }
  origin_piece_ = Claim(head.origin_offset, MappedMemory::Rounded(head.origin_size));
  if (origin_piece_.empty()) return Damaged(path(), "its header");
  if (const uint32_t size = head.server_bytes.load(std::memory_order_acquire); size <= kLongestServer) {
    left->server.assign(head.server, size);
  }
  left->cut_through = head.cut_through.load(std::memory_order_acquire);
  left->cut_entry = head.cut_entry.load(std::memory_order_acquire);
  left->freed_through = head.freed_through.load(std::memory_order_acquire);
  const LossPage page = head.losses[head.loss_page.load(std::memory_order_acquire) & 1];
  left->losses_after = page.after;
  for (size_t i = 0; i < std::min<uint64_t>(page.count, kMaxLosses); ++i) {
    const LossRecord& record = page.losses[i];
    Loss loss{.step = {}, .fragments = record.fragments, .payloads = record.payloads};
    if (record.has_step != 0) loss.step = record.step;
    if (v1::Marker::Gap::Reason_IsValid(static_cast<int>(record.reason))) {
      loss.reason = static_cast<v1::Marker::Gap::Reason>(record.reason);
    }
    left->losses.push_back(loss);
  }
  if (absl::Status status = ReadTables(left); !status.ok()) return status;
  std::sort(left->pieces.begin(), left->pieces.end(), [](const Left::Piece& one, const Left::Piece& other) {
    return std::tuple(one.kind, one.facts.number) < std::tuple(other.kind, other.facts.number);
  });
  return absl::OkStatus();
}

absl::Status SessionMemory::ReadTables(Left* left) {
  struct Line {
    Listing::Slot* slot;
    uint32_t kind;
    uint64_t offset, size;
  };
  std::vector<Line> lines;
  uint64_t batches_through = 0;
  {
    MutexLock lock(&mu_);
    Table* table = reinterpret_cast<Table*>(header_piece_.get() + MappedMemory::kPage);
    while (true) {
      last_table_ = table;
      for (Listing::Slot& slot : table->lines()) {
        const uint32_t kind = slot.kind.load(std::memory_order_acquire);
        if (kind == 0) {
          free_.push_back(&slot);
          continue;
        }
        if (kind > static_cast<uint32_t>(PieceKind::kPayload)) return Damaged(path(), "its table");
        lines.push_back({.slot = &slot, .kind = kind, .offset = slot.offset, .size = slot.size});
        if (kind == static_cast<uint32_t>(PieceKind::kBatch)) batches_through = std::max(batches_through, slot.number);
        ++listed_;
      }
      const uint64_t next = table->next.load(std::memory_order_acquire);
      if (next == 0) break;
      MappedMemory piece = next % MappedMemory::kPage == 0 ? Claim(next, kTableBytes) : MappedMemory();
      if (piece.empty()) return Damaged(path(), "its table");
      table = reinterpret_cast<Table*>(piece.get());
      tables_.push_back(std::move(piece));
    }
  }
  for (const Line& line : lines) {
    Listing listing(shared_from_this(), line.slot);
    const auto kind = static_cast<PieceKind>(line.kind);
    // Announced by a batch that was never cut. The entry in the queue has the payload.
    if (kind == PieceKind::kPayload && line.slot->number > std::max(batches_through, left->cut_through)) continue;
    Left::Piece piece;
    piece.kind = kind;
    piece.used = line.slot->used.load(std::memory_order_acquire);
    piece.hash.assign(line.slot->hash, sizeof(line.slot->hash));
    piece.facts = {.number = line.slot->number,
                   .last_entry = line.slot->last_entry,
                   .fragments = line.slot->fragments,
                   .first_step = line.slot->first_step,
                   .hash = {}};
    piece.listing = std::move(listing);
    piece.memory = Claim(line.offset, line.size);
    if (piece.memory.empty() || piece.used > piece.memory.size()) {
      // Keep the file as it is, whatever is destroyed here.
      Leave();
      return Damaged(path(), "a piece lies outside of it or in another one");
    }
    left->pieces.push_back(std::move(piece));
  }
  return absl::OkStatus();
}

}  // namespace msprobe::core
