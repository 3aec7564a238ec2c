#include <errno.h>

#include <cstddef>
#include <cstdint>

// glibc's own, below whatever stands in front of them.
extern "C" {
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* block, size_t size);
void* __libc_memalign(size_t alignment, size_t size);
}

namespace {
// Without a call into the dynamic linker, which would come back here.
__attribute__((tls_model("initial-exec"))) thread_local uint64_t calls = 0;
}  // namespace

extern "C" {

// Of the calling thread, since it began.
__attribute__((visibility("default"))) uint64_t malloc_calls() { return calls; }

__attribute__((visibility("default"))) void* malloc(size_t size) {
  ++calls;
  return __libc_malloc(size);
}

__attribute__((visibility("default"))) void* calloc(size_t count, size_t size) {
  ++calls;
  return __libc_calloc(count, size);
}

__attribute__((visibility("default"))) void* realloc(void* block, size_t size) {
  ++calls;
  return __libc_realloc(block, size);
}

__attribute__((visibility("default"))) int posix_memalign(void** block, size_t alignment, size_t size) {
  ++calls;
  *block = __libc_memalign(alignment, size);
  return *block == nullptr ? ENOMEM : 0;
}

}  // extern "C"
