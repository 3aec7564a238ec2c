// A segment of a spool that a process left behind.

#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "agent/core/transport/outbox/spool.h"
#include "tests/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const int descriptor = memfd_create("segment", 0);
  static const std::string path = "/proc/self/fd/" + std::to_string(descriptor);
  if (ftruncate(descriptor, 0) != 0 || pwrite(descriptor, data, size, 0) != static_cast<ssize_t>(size)) return 0;
  (void)msprobe::core::Spool::ReadSegment(path).ok();
  return 0;
}
