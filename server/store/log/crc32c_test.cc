#include "server/store/log/crc32c.h"

#include <rocksdb/file_checksum.h>

#include <string>

#include "gtest/gtest.h"

namespace msprobe::server {
namespace {

TEST(Crc32c, IsThatOfTheStandard) {
  EXPECT_EQ(Crc32c(0, "", 0), 0u);
  EXPECT_EQ(Crc32c(0, "123456789", 9), 0xe3069283u);                    // the check value of CRC-32/ISCSI
  EXPECT_EQ(Crc32c(0, std::string(32, '\0').data(), 32), 0x8a9136aau);  // RFC 3720, B.4
}

TEST(Crc32c, GoesOnAnywhere) {
  std::string bytes;
  for (int i = 0; i < 5000; ++i) bytes += static_cast<char>(i * 31 + i / 7);
  const uint32_t whole = Crc32c(0, bytes.data(), bytes.size());
  for (size_t cut : {1u, 7u, 8u, 63u, 1000u, 4999u}) {
    EXPECT_EQ(Crc32c(Crc32c(0, bytes.data(), cut), bytes.data() + cut, bytes.size() - cut), whole) << cut;
  }
}

// A file's checksum by RocksDB's own generator is computed with its crc32c::Extend.
TEST(Crc32c, IsWhatRocksUses) {
  EXPECT_TRUE(RocksUsesCrc32c());
  auto generator = rocksdb::GetFileChecksumGenCrc32cFactory()->CreateFileChecksumGenerator({});
  generator->Update("123456789", 9);
  generator->Finalize();
  EXPECT_EQ(generator->GetChecksum(), std::string("\xe3\x06\x92\x83", 4));
}

}  // namespace
}  // namespace msprobe::server
