#include "agent/stats/write_watch.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>

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

uint64_t HashEdges(std::span<const std::byte> memory) {
  const Pages pages = Inside(memory);
  const size_t head = pages.begin - Address(memory.data());
  const size_t tail = Address(memory.data()) + memory.size() - pages.end;
  const uint64_t seed = XXH3_64bits(memory.data(), head);
  return XXH3_64bits_withSeed(memory.data() + memory.size() - tail, tail, seed);
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

bool WriteWatch::Arm(std::span<const std::byte> memory, Range* range) const {
  if (memory.size() < kSmallest || getpid() != process_) return false;
  const Pages pages = Inside(memory);
  uffdio_register registration{
      .range = {.start = pages.begin, .len = pages.end - pages.begin}, .mode = UFFDIO_REGISTER_MODE_WP, .ioctls = 0};
  if (ioctl(faults_, UFFDIO_REGISTER, &registration) != 0) return false;
  uffdio_writeprotect protection{.range = registration.range, .mode = UFFDIO_WRITEPROTECT_MODE_WP};
  if (ioctl(faults_, UFFDIO_WRITEPROTECT, &protection) != 0) {
    ioctl(faults_, UFFDIO_UNREGISTER, &registration.range);
    return false;
  }
  *range = {.memory = memory, .edges = HashEdges(memory)};
  return true;
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
