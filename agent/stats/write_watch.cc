#include "agent/stats/write_watch.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <vector>

#include "agent/stats/fleeting_memory.h"

namespace msprobe::stats {
namespace {

// From Linux 6.7's headers, which Debian 12 does not have yet.
constexpr uint64_t kFeatureWriteProtectUnpopulated = uint64_t{1} << 13;
constexpr uint64_t kFeatureWriteProtectAsync = uint64_t{1} << 15;
constexpr int kUserModeOnly = 1;
constexpr uint64_t kCheckAsync = 2;     // PM_SCAN_CHECK_WPASYNC: fails with EPERM for memory that is not watched
constexpr uint64_t kPageIsWritten = 2;  // PAGE_IS_WRITTEN

struct ScanRequest {
  uint64_t size, flags, start, end, walk_end, regions, regions_size, max_pages;
  uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
};
struct PageRegion {
  uint64_t start, end, categories;
};
const auto kPagemapScan = _IOWR('f', 16, ScanRequest);

// From Linux 6.11's headers.
struct MappingQuery {
  uint64_t size, query_flags, query_address;
  uint64_t begin, end, flags, page_size, offset, inode;
  uint32_t device_major, device_minor, name_size, build_id_size;
  uint64_t name_address, build_id_address;
};
const auto kProcmapQuery = _IOWR('f', 17, MappingQuery);
constexpr uint64_t kIsShared = 8;  // PROCMAP_QUERY_VMA_SHARED

uintptr_t PageSize() {
  static const auto size = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  return size;
}

struct Pages {
  uintptr_t begin, end;
};

uintptr_t Address(const std::byte* at) { return reinterpret_cast<uintptr_t>(at); }

Pages Inside(std::span<const std::byte> memory) {
  const uintptr_t page = PageSize();
  const uintptr_t begin = Address(memory.data());
  return {(begin + page - 1) / page * page, (begin + memory.size()) / page * page};
}

// The bytes before and behind the pages that lie inside.
struct Edges {
  explicit Edges(std::span<const std::byte> memory)
      : head(memory.first(Inside(memory).begin - Address(memory.data()))),
        tail(memory.last(Address(memory.data()) + memory.size() - Inside(memory).end)) {}

  std::span<const std::byte> head, tail;
};

uint64_t Hash(const std::byte* head, size_t head_bytes, const std::byte* tail, size_t tail_bytes) {
  return XXH3_64bits_withSeed(tail, tail_bytes, XXH3_64bits(head, head_bytes));
}

uint64_t HashEdges(std::span<const std::byte> memory) {
  const Edges edges(memory);
  return Hash(edges.head.data(), edges.head.size(), edges.tail.data(), edges.tail.size());
}

}  // namespace

std::unique_ptr<WriteWatch> WriteWatch::Create() {
  const int faults = static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | kUserModeOnly));
  if (faults < 0) return nullptr;
  const int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  const int maps = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  std::unique_ptr<WriteWatch> watch(new WriteWatch(faults, pagemap, maps));
  uffdio_api api{.api = UFFD_API, .features = kFeatureWriteProtectUnpopulated | kFeatureWriteProtectAsync, .ioctls = 0};
  if (pagemap < 0 || ioctl(faults, UFFDIO_API, &api) != 0) return nullptr;
  return watch;
}

WriteWatch::WriteWatch(int faults, int pagemap, int maps)
    : faults_(faults), pagemap_(pagemap), maps_(maps), process_(getpid()) {}

WriteWatch::~WriteWatch() {
  close(faults_);
  if (pagemap_ >= 0) close(pagemap_);
  if (maps_ >= 0) close(maps_);
}

bool WriteWatch::Register(std::span<const std::byte> memory) const {
  if (memory.size() < kSmallest || getpid() != process_) return false;
  const Pages pages = Inside(memory);
  uffdio_register registration{
      .range = {.start = pages.begin, .len = pages.end - pages.begin}, .mode = UFFDIO_REGISTER_MODE_WP, .ioctls = 0};
  return ioctl(faults_, UFFDIO_REGISTER, &registration) == 0;
}

bool WriteWatch::Arm(std::span<const std::byte> memory, Range* range) const {
  if (!Register(memory)) return false;
  *range = {.memory = memory};
  if (!Protect(*range, memory)) {
    Disarm(*range);
    return false;
  }
  range->edges = HashEdges(memory);
  return true;
}

bool WriteWatch::Begin(std::span<const std::byte> memory, Range* range) const {
  if (!Register(memory)) return false;
  *range = {.memory = memory};
  const Edges edges(memory);
  std::vector<std::byte> copy(edges.head.size() + edges.tail.size());
  std::byte* const tail = copy.data() + edges.head.size();
  if (!FleetingMemory::Copy(edges.head, copy.data()) || !FleetingMemory::Copy(edges.tail, tail)) {
    Disarm(*range);
    return false;
  }
  range->edges = Hash(copy.data(), edges.head.size(), tail, edges.tail.size());
  return true;
}

bool WriteWatch::Protect(const Range& range, std::span<const std::byte> part) const {
  const Pages whole = Inside(range.memory);
  const uintptr_t page = PageSize();
  const auto up = [page](uintptr_t address) { return (address + page - 1) / page * page; };
  const uintptr_t begin = std::max(whole.begin, up(Address(part.data())));
  const uintptr_t end = std::min(whole.end, up(Address(part.data()) + part.size()));
  if (begin >= end) return true;
  uffdio_writeprotect protection{.range = {.start = begin, .len = end - begin}, .mode = UFFDIO_WRITEPROTECT_MODE_WP};
  return ioctl(faults_, UFFDIO_WRITEPROTECT, &protection) == 0;
}

bool WriteWatch::Written(const Range& range, std::span<const std::byte> part) const {
  if (getpid() != process_) return true;
  const Pages whole = Inside(range.memory);
  const uintptr_t page = PageSize();
  const uintptr_t begin = std::max(whole.begin, Address(part.data()) / page * page);
  const uintptr_t end = std::min(whole.end, (Address(part.data()) + part.size() + page - 1) / page * page);
  if (begin < end) {
    PageRegion region{};
    ScanRequest request{.size = sizeof(ScanRequest),
                        .flags = kCheckAsync,
                        .start = begin,
                        .end = end,
                        .walk_end = 0,
                        .regions = reinterpret_cast<uint64_t>(&region),
                        .regions_size = 1,
                        .max_pages = 1,
                        .category_inverted = 0,
                        .category_mask = kPageIsWritten,
                        .category_anyof_mask = 0,
                        .return_mask = kPageIsWritten};
    if (ioctl(pagemap_, kPagemapScan, &request) != 0 || request.walk_end != end) return true;
  }
  const bool touches_edge = Address(part.data()) < whole.begin || Address(part.data()) + part.size() > whole.end;
  return touches_edge && HashEdges(range.memory) != range.edges;
}

bool WriteWatch::IsPrivate(std::span<const std::byte> memory) const {
  const uintptr_t end = Address(memory.data()) + memory.size();
  for (uintptr_t at = Address(memory.data()); at < end;) {
    MappingQuery mapping{};
    mapping.size = sizeof(MappingQuery);
    mapping.query_address = at;
    if (maps_ < 0 || getpid() != process_ || ioctl(maps_, kProcmapQuery, &mapping) != 0) return false;
    if ((mapping.flags & kIsShared) != 0 || mapping.inode != 0) return false;
    at = mapping.end;
  }
  return true;
}

void WriteWatch::Disarm(const Range& range) const {
  if (getpid() != process_) return;
  const Pages pages = Inside(range.memory);
  uffdio_range whole{.start = pages.begin, .len = pages.end - pages.begin};
  ioctl(faults_, UFFDIO_UNREGISTER, &whole);
}

}  // namespace msprobe::stats
