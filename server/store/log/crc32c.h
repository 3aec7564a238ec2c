#pragma once

#include <cstddef>
#include <cstdint>

namespace msprobe::server {

// Returns the CRC-32C (Castagnoli) of `size` bytes that follow bytes whose CRC-32C is `crc` (0: there are none). Uses
// the processor's instructions where it has them. Threads: any.
//
// RocksDB writes such a checksum with each record of its log, each blob and each block. The distribution's build
// (7.8.3) must run on any processor, so it computes them by table: 1.5 GB/s on a Xeon, in pieces of 4 KiB to 1 MiB,
// where this function makes 87 to 94 GB/s. RocksDB has no option for another function. So the source of this one also
// defines rocksdb::crc32c::Extend, which RocksDB calls by name like any function of another library; the dynamic linker
// then takes this definition (ELF symbol interposition). Files are the same, bit by bit. It can go where RocksDB is
// built for the processor.
uint32_t Crc32c(uint32_t crc, const char* bytes, size_t size);

// Whether RocksDB calls this function. True in every program that links msprobe_store.
bool RocksUsesCrc32c();

}  // namespace msprobe::server
