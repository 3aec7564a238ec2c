#pragma once

#include <cstdint>
#include <string>

namespace msprobe::core {

// Facts about this process and machine for v1::Hello; empty or 0 if they cannot be read.
std::string HostName();
std::string BootId();              // /proc/sys/kernel/random/boot_id
uint64_t ProcessStartTicks();      // field 22 of /proc/self/stat
uint64_t NetworkNamespace();       // inode of /proc/self/ns/net
std::string RandomSessionId();     // 16 random bytes
std::string TemporaryDirectory();  // TMPDIR or /tmp
std::string ToHex(const std::string& bytes);

}  // namespace msprobe::core
