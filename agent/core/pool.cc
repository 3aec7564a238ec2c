#include "agent/core/pool.h"

#include <pthread.h>
#include <sys/mman.h>

#include <new>

#include "agent/core/mutex.h"

namespace msprobe::core {
namespace {

constexpr size_t kLargestPooled = 4096;

class Pages final : public std::pmr::memory_resource {
  void* do_allocate(size_t bytes, size_t) override {
    void* const pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) throw std::bad_alloc();
    return pages;
  }
  void do_deallocate(void* pages, size_t bytes, size_t) override { munmap(pages, bytes); }
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }
};

// The forking thread holds the lock during the fork, as in malloc. So a child may use the pool, because no other thread
// of its parent was in the middle of a change.
class LockedPool final : public std::pmr::memory_resource {
 public:
  void LockForFork() ABSL_NO_THREAD_SAFETY_ANALYSIS { mu_.Lock(); }
  void UnlockAfterFork() ABSL_NO_THREAD_SAFETY_ANALYSIS { mu_.Unlock(); }

 private:
  void* do_allocate(size_t bytes, size_t alignment) override {
    MutexLock lock(&mu_);
    return pool_.allocate(bytes, alignment);
  }
  void do_deallocate(void* at, size_t bytes, size_t alignment) override {
    MutexLock lock(&mu_);
    pool_.deallocate(at, bytes, alignment);
  }
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }

  Mutex mu_;
  Pages pages_;
  std::pmr::unsynchronized_pool_resource pool_ ABSL_GUARDED_BY(mu_){
      {.max_blocks_per_chunk = 0, .largest_required_pool_block = kLargestPooled}, &pages_};
};

LockedPool& TheOne() {
  static auto* const pool = new LockedPool;  // never destroyed, because a hook may outlive every static object
  return *pool;
}

LockedPool* MakeForFork() {
  pthread_atfork([] { TheOne().LockForFork(); }, [] { TheOne().UnlockAfterFork(); },
                 [] { TheOne().UnlockAfterFork(); });
  return &TheOne();
}

}  // namespace

std::pmr::memory_resource* Pool() {
  static LockedPool* const pool = MakeForFork();
  return pool;
}

}  // namespace msprobe::core
