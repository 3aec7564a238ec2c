#include "server/format/dump/dump_text.h"

#include <sys/mman.h>

#include <cstdint>
#include <utility>

#include "server/format/cat.h"

namespace msprobe::server {
namespace {

constexpr uint64_t kMaxBytes = 4ull << 30;

}  // namespace

absl::StatusOr<DumpText> DumpText::Read(ByteSource& source) {
  if (source.size() > kMaxBytes) {
    return absl::InvalidArgumentError(Cat(source.size(), " bytes; at most 4 GiB"));
  }
  const auto size = static_cast<size_t>(source.size());
  if (size == 0) return DumpText(Pages());
  void* const mapped = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return absl::ResourceExhaustedError(Cat(size, " bytes: there is no memory for them"));
  Pages pages(static_cast<char*>(mapped), Unmap{size});
  if (absl::Status status = source.ReadAt(0, {pages.get(), size}); !status.ok()) return status;
  return DumpText(std::move(pages));
}

void DumpText::Unmap::operator()(char* pages) const { munmap(pages, size); }

}  // namespace msprobe::server
