#pragma once

#include <cstddef>
#include <cstdint>

namespace msprobe::server {

// CRC-32C (Castagnoli) of `size` bytes after those whose CRC-32C is `crc` (0: none), by the processor's instruction
// where there is one. Any thread.
//
// RocksDB writes one with each record of its log, each blob and each block. The distribution's build, which must run on
// any processor, computes it by table at about 1 GB/s, which was half of what storing tensors cost; so the source of
// this function also defines rocksdb::crc32c::Extend in its place, which RocksDB calls by name, like any function of
// another library (ELF symbol interposition). Files are the same, bit by bit.
uint32_t Crc32c(uint32_t crc, const char* bytes, size_t size);

// Whether RocksDB has come by this function: true in every program that links msprobe_store.
bool RocksUsesCrc32c();

}  // namespace msprobe::server
