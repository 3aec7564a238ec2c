#include "server/store/log/crc32c.h"

#include <dlfcn.h>
#include <isa-l/crc.h>

#include <algorithm>
#include <climits>

namespace rocksdb::crc32c {

// RocksDB's own declaration, which it does not install.
__attribute__((visibility("default"))) uint32_t Extend(uint32_t crc, const char* bytes, size_t size) {
  return msprobe::server::Crc32c(crc, bytes, size);
}

}  // namespace rocksdb::crc32c

namespace msprobe::server {

uint32_t Crc32c(uint32_t crc, const char* bytes, size_t size) {
  // The library reads only, though it does not say so, and neither inverts before nor after.
  auto* at = reinterpret_cast<unsigned char*>(const_cast<char*>(bytes));
  crc = ~crc;
  while (size > 0) {
    const int part = static_cast<int>(std::min<size_t>(size, INT_MAX));
    crc = crc32_iscsi(at, part, crc);
    at += part;
    size -= static_cast<size_t>(part);
  }
  return ~crc;
}

bool RocksUsesCrc32c() {
  // The first definition in order of loading is what every library is bound to.
  const void* const bound = dlsym(RTLD_DEFAULT, "_ZN7rocksdb6crc32c6ExtendEjPKcm");
  return bound == reinterpret_cast<const void*>(&rocksdb::crc32c::Extend);
}

}  // namespace msprobe::server
