#include "agent/core/pool.h"

#include <sys/mman.h>

#include <new>

namespace msprobe::core {
namespace {

class Pages final : public std::pmr::memory_resource {
  void* do_allocate(size_t bytes, size_t) override {
    void* const pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) throw std::bad_alloc();
    return pages;
  }
  void do_deallocate(void* pages, size_t bytes, size_t) override { munmap(pages, bytes); }
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }
};

constexpr size_t kLargestPooled = 4096;

}  // namespace

std::pmr::memory_resource* Pool() {
  // Never destroyed: a hook may outlive every static object.
  static auto* const pages = new Pages;
  static auto* const pool = new std::pmr::synchronized_pool_resource(
      {.max_blocks_per_chunk = 0, .largest_required_pool_block = kLargestPooled}, pages);
  return pool;
}

}  // namespace msprobe::core
