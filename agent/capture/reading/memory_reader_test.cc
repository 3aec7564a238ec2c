#include "agent/capture/reading/memory_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "agent/core/session_fixture.h"
#include "agent/stats/checksum.h"

namespace msprobe::capture {
namespace {

using ::testing::ElementsAre;

// [[1, 2, 3], [4, 5, 6]]
constexpr std::array<float, 6> kElements = {1, 2, 3, 4, 5, 6};
constexpr std::array<int64_t, 2> kSizes = {2, 3};
constexpr std::array<int64_t, 2> kStrides = {3, 1};

class MemoryReaderTest : public core::SessionTest {
 protected:
  static stats::TensorView View() {
    return {.data = kElements.data(), .dtype = stats::DType::kFloat32, .sizes = kSizes, .strides = kStrides};
  }
  TensorReading Read(const MemoryReader& reader, bool save = false) {
    TensorReading reading;
    reading.dtype = static_cast<uint8_t>(stats::DType::kFloat32);
    reader.Read(View(), save, reading);
    return reading;
  }
};

TEST_F(MemoryReaderTest, ReadsStatisticsAndCountsTheBytes) {
  Open();
  const MemoryReader reader(core::Config(), session_.get());
  const TensorReading reading = Read(reader);
  EXPECT_THAT(reading.shape, ElementsAre(2, 3));
  EXPECT_TRUE(reading.leaf.has_statistics);
  EXPECT_EQ(reading.leaf.max, 6);
  EXPECT_EQ(reading.leaf.min, 1);
  EXPECT_EQ(reading.leaf.mean, 3.5);
  EXPECT_EQ(reading.leaf.payload, nullptr);
  EXPECT_EQ(reader.bytes_read(), 24u);
}

TEST_F(MemoryReaderTest, MakesChecksumsAloneOfAStepThatRunsTwice) {
  Open();
  core::Config config;
  config.summary_mode = core::SummaryMode::kMd5;
  const MemoryReader plain(config, session_.get());
  const MemoryReader reader(config, session_.get(), nullptr, {}, true);
  const TensorReading reading = Read(reader);
  EXPECT_FALSE(reading.leaf.has_statistics);
  EXPECT_EQ(reading.leaf.crc32, Read(plain).leaf.crc32);
  EXPECT_EQ(reading.leaf.crc32, stats::Crc32(View()));
}

TEST_F(MemoryReaderTest, KeepsTheBytesThatAreAskedFor) {
  Open();
  core::Config config;
  config.slice = {{.dim = 1, .size = std::nullopt, .begin = -1, .end = std::nullopt}};
  const MemoryReader reader(config, session_.get());
  const TensorReading reading = Read(reader, true);
  EXPECT_THAT(reading.shape, ElementsAre(2, 1));
  EXPECT_EQ(reading.leaf.min, 3);
  EXPECT_EQ(reading.leaf.max, 6);
  ASSERT_NE(reading.leaf.payload, nullptr);
  std::array<float, 2> kept{};
  ASSERT_EQ(reading.leaf.payload->size(), sizeof(kept));
  std::memcpy(kept.data(), reading.leaf.payload->bytes().data(), sizeof(kept));
  EXPECT_THAT(kept, ElementsAre(3, 6));
}

TEST_F(MemoryReaderTest, ReadsTheRowsOfTheRequestWhereTheFirstDimensionHoldsTheBatch) {
  Open();
  core::Config config;
  config.request_id = "one";
  MemoryReader reader(config, session_.get());
  reader.rows().Select(2, 1, 2);
  EXPECT_THAT(Read(reader).shape, ElementsAre(1, 3));
  EXPECT_EQ(Read(reader).leaf.min, 4);
  reader.rows().Select(7, 1, 2);  // a batch of another size
  EXPECT_THAT(Read(reader).shape, ElementsAre(2, 3));
  reader.rows().Clear();
  EXPECT_THAT(Read(reader).shape, ElementsAre(2, 3));
}

TEST_F(MemoryReaderTest, GivesAnEmptyTensorItsChecksumAndNoNumbers) {
  Open();
  core::Config config;
  config.summary_mode = core::SummaryMode::kMd5;
  config.slice = {{.dim = 0, .size = std::nullopt, .begin = 2, .end = std::nullopt}};
  const TensorReading reading = Read(MemoryReader(config, session_.get()), true);
  EXPECT_THAT(reading.shape, ElementsAre(0, 3));
  EXPECT_FALSE(reading.leaf.has_statistics);
  EXPECT_EQ(reading.leaf.crc32, 0u);
  ASSERT_NE(reading.leaf.payload, nullptr);
  EXPECT_EQ(reading.leaf.payload->size(), 0u);
}

TEST_F(MemoryReaderTest, KeepsDoublesOf64BitTypesAndOfAllAtHighPrecision) {
  Open();
  core::Config config;
  EXPECT_FALSE(MemoryReader(config, session_.get()).KeepsDoubles(static_cast<uint8_t>(stats::DType::kFloat32)));
  EXPECT_TRUE(MemoryReader(config, session_.get()).KeepsDoubles(static_cast<uint8_t>(stats::DType::kInt64)));
  config.precision_high = true;
  EXPECT_TRUE(MemoryReader(config, session_.get()).KeepsDoubles(static_cast<uint8_t>(stats::DType::kFloat32)));
}

}  // namespace
}  // namespace msprobe::capture
