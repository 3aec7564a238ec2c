#include "agent/mindspore/mindspore_source.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <cmath>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "agent/core/config/config.h"
#include "agent/core/session_fixture.h"

namespace msprobe::capture {
namespace {

using stats::DType;

class MindsporeSourceTest : public core::SessionTest {
 protected:
  void SetUp() override {
    fake_.Start();
    Open();
  }

  template <typename Element>
  TensorReading Read(const std::vector<Element>& elements, DType dtype, std::vector<int64_t> sizes, bool save = false) {
    std::vector<int64_t> strides(sizes.size(), 1);
    for (size_t i = strides.size(); i > 1; --i) strides[i - 2] = strides[i - 1] * sizes[i - 1];
    const MemoryReader memory(config_, session_.get());
    return source_.Read(RefTo(HostTensor{.data = elements.data(),
                                         .dtype = dtype,
                                         .dtype_name = MindsporeDTypeName(dtype),
                                         .sizes = sizes,
                                         .strides = strides}),
                        save, memory);
  }

  template <typename Element>
  GradientReading ReadGradient(const std::vector<Element>& elements, DType dtype, const core::GradProbeConfig& probe) {
    const int64_t size[] = {static_cast<int64_t>(elements.size())};
    const int64_t stride[] = {1};
    const MemoryReader memory(config_, session_.get());
    return source_.ReadGradient(RefTo(HostTensor{.data = elements.data(),
                                                 .dtype = dtype,
                                                 .dtype_name = MindsporeDTypeName(dtype),
                                                 .sizes = size,
                                                 .strides = stride}),
                                probe, memory);
  }

  core::Config config_;
  MindsporeSource source_{core::Reuse::kParameters};
};

TEST_F(MindsporeSourceTest, ReadsNumbersUnderMindsporesOwnNames) {
  const TensorReading reading = Read<float>({1, -2, 3, 2}, DType::kFloat32, {2, 2}, true);
  EXPECT_EQ(reading.type, "mindspore.Tensor");
  EXPECT_EQ(reading.dtype_name, "Float32");
  EXPECT_EQ(reading.leaf.max, 3);
  EXPECT_EQ(reading.leaf.min, -2);
  EXPECT_DOUBLE_EQ(reading.leaf.norm, std::sqrt(18.0));
  ASSERT_NE(reading.leaf.payload, nullptr);
  EXPECT_EQ(reading.leaf.payload->bytes().size(), 16U);
}

TEST_F(MindsporeSourceTest, KeepsThe64BitsOfWideTypes) {
  const int64_t big = (int64_t{1} << 60) + 1;
  const TensorReading reading = Read<int64_t>({big, 0}, DType::kInt64, {2});
  EXPECT_EQ(reading.dtype_name, "Int64");
  EXPECT_TRUE(reading.leaf.is_wide);
  EXPECT_EQ(reading.leaf.integer_max, big);
}

TEST_F(MindsporeSourceTest, ChecksumsOfBfloat16AreThoseOfFloat32) {
  config_.summary_mode = core::SummaryMode::kMd5;
  const TensorReading reading = Read<uint16_t>({0x3f80, 0xc000, 0x4040}, DType::kBFloat16, {3});  // 1, -2, 3
  const float widened[] = {1, -2, 3};
  EXPECT_EQ(reading.leaf.max, 3);
  EXPECT_EQ(reading.leaf.crc32, crc32(0, reinterpret_cast<const Bytef*>(widened), sizeof(widened)));
}

TEST_F(MindsporeSourceTest, ReadsSignsAndNumbersOfGradients) {
  const std::vector<uint16_t> gradient = {0x3f80, 0xc000, 0x0000, 0x4040};  // 1, -2, 0, 3
  core::GradProbeConfig probe;
  probe.level = core::GradProbeConfig::GradLevel::kL2;
  probe.bounds = {0, 1};
  const GradientReading reading = ReadGradient(gradient, DType::kBFloat16, probe);
  EXPECT_EQ(reading.gradient.dtype_name, "BFloat16");
  EXPECT_EQ(reading.gradient.leaf.max, 3);
  EXPECT_EQ(reading.gradient.leaf.payload, nullptr);
  ASSERT_TRUE(reading.signs.has_value() && reading.signs->leaf.payload != nullptr);
  EXPECT_EQ(static_cast<uint8_t>(reading.signs->leaf.payload->bytes()[0]), 0b1001);
  ASSERT_TRUE(reading.counts.has_value());
  EXPECT_EQ(reading.counts->shape[0], 4) << "three intervals, and zeros";
}

TEST_F(MindsporeSourceTest, ChecksumsOfGradientsAreThoseOfFloat32) {
  const std::vector<uint16_t> gradient = {0x3f80, 0xc000, 0x4040};  // 1, -2, 3
  const float widened[] = {1, -2, 3};
  core::GradProbeConfig probe;
  probe.level = core::GradProbeConfig::GradLevel::kL0;
  const GradientReading reading = ReadGradient(gradient, DType::kBFloat16, probe);
  EXPECT_EQ(reading.gradient.leaf.crc32, crc32(0, reinterpret_cast<const Bytef*>(widened), sizeof(widened)));
  EXPECT_FALSE(reading.signs.has_value());
}

TEST_F(MindsporeSourceTest, SamplesWhatLiesSideBySide) {
  const std::vector<float> elements = {1, 2, 3, 4, 5, 6};
  const int64_t sizes[] = {2, 3};
  const int64_t dense[] = {3, 1}, transposed[] = {1, 2};
  HostTensor tensor;
  tensor.data = elements.data();
  tensor.dtype = DType::kFloat32;
  tensor.sizes = sizes;
  tensor.strides = dense;
  EXPECT_EQ(source_.Sample(RefTo(tensor), 100), std::vector<double>({1, 2, 3, 4, 5, 6}));
  tensor.strides = transposed;
  EXPECT_EQ(source_.Sample(RefTo(tensor), 100), std::vector<double>());
}

TEST_F(MindsporeSourceTest, AReadingWithoutMemoryHasItsShapeAlone) {
  const int64_t sizes[] = {7};
  HostTensor tensor;
  tensor.dtype_name = "Int4";
  tensor.sizes = sizes;
  const MemoryReader memory(config_, session_.get());
  const TensorReading reading = source_.Read(RefTo(tensor), true, memory);
  EXPECT_EQ(reading.dtype_name, "Int4");
  EXPECT_EQ(reading.shape.size(), 1U);
  EXPECT_FALSE(reading.leaf.has_statistics);
  EXPECT_EQ(reading.leaf.payload, nullptr);
}

// Of one parameter in memory that is large enough to be watched.
class ParameterTest : public MindsporeSourceTest {
 protected:
  void SetUp() override {
    MindsporeSourceTest::SetUp();
    const auto watch = stats::WriteWatch::Create();
    if (watch == nullptr || !watch->IsPrivate(std::as_bytes(std::span(elements_)))) {
      GTEST_SKIP() << "this kernel does not tell of writes (Linux 6.7) or of mappings (6.11), or must not";
    }
  }
  TensorReading ReadParameter(DType dtype = DType::kFloat32) {
    const int64_t sizes[] = {static_cast<int64_t>(elements_.size() * sizeof(float) / stats::ElementSize(dtype))};
    const int64_t strides[] = {1};
    const MemoryReader memory(config_, session_.get());
    return source_.Read(RefTo(HostTensor{.data = elements_.data(),
                                         .dtype = dtype,
                                         .dtype_name = MindsporeDTypeName(dtype),
                                         .sizes = sizes,
                                         .strides = strides,
                                         .is_parameter = true}),
                        false, memory);
  }

  std::vector<float> elements_ = std::vector<float>(size_t{1} << 18, 0.5F);
};

TEST_F(ParameterTest, IsReadOnceWhileNobodyWritesIt) {
  EXPECT_FALSE(ReadParameter().leaf.reused);
  source_.EndStep();
  const TensorReading again = ReadParameter();
  EXPECT_TRUE(again.leaf.reused);
  EXPECT_EQ(again.leaf.max, 0.5);
  EXPECT_EQ(source_.counts().recalled, 1U);
  elements_[1000] = 7;
  const TensorReading written = ReadParameter();
  EXPECT_FALSE(written.leaf.reused);
  EXPECT_EQ(written.leaf.max, 7);
}

TEST_F(ParameterTest, AChecksumOfBfloat16IsRememberedAsThatOfFloat32) {
  config_.summary_mode = core::SummaryMode::kMd5;
  const std::optional<uint32_t> first = ReadParameter(DType::kBFloat16).leaf.crc32;
  const TensorReading again = ReadParameter(DType::kBFloat16);
  EXPECT_TRUE(again.leaf.reused);
  EXPECT_EQ(again.leaf.crc32, first);
}

TEST_F(MindsporeSourceTest, KnowsEachNameThatItGives) {
  for (int number = 1; number < 26; ++number) {
    const std::string_view name = MindsporeDTypeName(static_cast<DType>(number));
    if (name.empty()) continue;
    EXPECT_EQ(static_cast<int>(MindsporeDTypeOf(name)), number);
  }
  EXPECT_EQ(MindsporeDTypeOf("HiFloat8"), DType::kOther);
}

}  // namespace
}  // namespace msprobe::capture
