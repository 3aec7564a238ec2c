#include "agent/capture/reading/known_contents.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "agent/capture/reading/memory_reader.h"
#include "agent/core/session_fixture.h"
#include "agent/stats/checksum.h"

namespace msprobe::capture {
namespace {

constexpr size_t kElements = 4096;

class KnownContentsTest : public core::SessionTest {
 protected:
  stats::TensorView View(const std::vector<float>& values) {
    return {.data = values.data(), .dtype = stats::DType::kFloat32, .sizes = sizes_, .strides = strides_};
  }
  core::Leaf Read(const MemoryReader& reader, const stats::TensorView& view) {
    TensorReading reading;
    reading.dtype = static_cast<uint8_t>(view.dtype);
    reader.Read(view, false, reading);
    return reading.leaf;
  }
  static core::Config Checksums() {
    core::Config config;
    config.summary_mode = core::SummaryMode::kMd5;
    return config;
  }

  const std::array<int64_t, 1> sizes_ = {kElements};
  const std::array<int64_t, 1> strides_ = {1};
};

TEST_F(KnownContentsTest, GiveTheNumbersThatReadingGives) {
  Open();
  const auto known = std::make_shared<KnownContents>();
  const MemoryReader plain(Checksums(), session_.get());
  const MemoryReader first(Checksums(), session_.get(), nullptr, false, known);
  const MemoryReader second(Checksums(), session_.get(), nullptr, false, known);
  std::vector<float> values(kElements);
  for (size_t i = 0; i < kElements; ++i) values[i] = 0.25F * static_cast<float>(i) - 100;
  // The same, one bit flipped, and two elements exchanged.
  std::vector<std::vector<float>> contents(3, values);
  contents[1][77] = std::bit_cast<float>(std::bit_cast<uint32_t>(values[77]) ^ 4096u);
  std::swap(contents[2][5], contents[2][6]);
  contents[2][7] = 1e9F;
  for (const MemoryReader* reader : {&first, &second}) {
    for (const std::vector<float>& each : contents) {
      const core::Leaf got = Read(*reader, View(each));
      const core::Leaf expected = Read(plain, View(each));
      EXPECT_EQ(got.crc32, stats::Crc32(View(each)));
      EXPECT_TRUE(got.has_statistics);
      EXPECT_EQ(got.max, expected.max);
      EXPECT_EQ(got.mean, expected.mean);
      EXPECT_EQ(got.norm, expected.norm);
      EXPECT_EQ(got.variance, expected.variance);
      EXPECT_EQ(got.zero_count, expected.zero_count);
    }
  }
}

TEST_F(KnownContentsTest, TellContentsApart) {
  std::vector<float> values(kElements, 1);
  const KnownContents::Sight sight = KnownContents::SightOf(View(values));
  KnownContents known;
  core::Leaf leaf;
  leaf.max = 3;
  leaf.crc32 = 7;
  EXPECT_FALSE(known.MayKnow(sight));
  known.Keep(sight, leaf);
  leaf.max = 4;
  leaf.crc32 = 9;
  known.Keep(sight, leaf);
  EXPECT_TRUE(known.MayKnow(sight));
  core::Leaf found;
  EXPECT_TRUE(known.Find(sight, 7, found));
  EXPECT_EQ(found.max, 3);
  EXPECT_TRUE(known.Find(sight, 9, found)) << "of two contents with these words in common";
  EXPECT_EQ(found.max, 4);
  EXPECT_FALSE(known.Find(sight, 8, found));
  stats::TensorView integers = View(values);
  integers.dtype = stats::DType::kInt32;
  EXPECT_FALSE(known.MayKnow(KnownContents::SightOf(integers))) << "the same bytes are other numbers";
  values[0] = 2;  // one of the samples
  EXPECT_FALSE(known.MayKnow(KnownContents::SightOf(View(values))));
}

TEST_F(KnownContentsTest, CoverDenseMemoryAlone) {
  const std::vector<float> values(2 * kElements);
  stats::TensorView view = View(values);
  EXPECT_TRUE(KnownContents::Covers(view));
  const std::array<int64_t, 1> apart = {2};
  view.strides = apart;
  EXPECT_FALSE(KnownContents::Covers(view));
  const std::array<int64_t, 2> sizes = {kElements / 8, 8};
  const std::array<int64_t, 2> transposed = {1, kElements / 8};
  view.sizes = sizes;
  view.strides = transposed;
  EXPECT_TRUE(KnownContents::Covers(view));
  const std::array<int64_t, 2> expanded = {0, 1};
  view.strides = expanded;
  EXPECT_FALSE(KnownContents::Covers(view));
  view = View(values);
  view.negative = true;
  EXPECT_FALSE(KnownContents::Covers(view));
  const std::array<int64_t, 1> few = {8};
  view = View(values);
  view.sizes = few;
  EXPECT_FALSE(KnownContents::Covers(view));
}

}  // namespace
}  // namespace msprobe::capture
