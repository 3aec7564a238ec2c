#include "agent/stats/statistics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <random>
#include <tuple>
#include <vector>

#include "agent/stats/naive_oracle_for_test.h"
#include "agent/stats/statistics_internal.h"

namespace msprobe::stats {
namespace {

using naive::Tensor;
using naive::Vector;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

void ExpectSame(double actual, long double expected, long double tolerance, const char* what) {
  if (std::isnan(expected)) {
    EXPECT_TRUE(std::isnan(actual)) << what << " is " << actual << ", not NaN";
  } else if (std::isinf(static_cast<double>(expected))) {
    EXPECT_EQ(actual, static_cast<double>(expected)) << what;
  } else {
    const long double representable = std::numeric_limits<double>::denorm_min();
    EXPECT_LE(std::fabs(actual - expected), tolerance + (expected == 0 ? 0 : representable))
        << what << ": " << actual << " expected " << expected;
  }
}

// The promised precision of mean and norm, and of the variance.
struct Precision {
  long double sums, variance;
};

// Accumulators are doubles, except that groups of elements of 16 bits are first added up in floats.
Precision PrecisionOf(DType dtype) {
  const bool is_short = dtype == DType::kFloat16 || dtype == DType::kBFloat16;
  return is_short ? Precision{0x1p-21L, 0x1p-16L} : Precision{1e-13L, 1e-7L};
}

void ExpectMatchesOracle(const Tensor& tensor, const Kernels& kernels) {
  SCOPED_TRACE(kernels.name);
  const TensorView view = tensor.view();
  const naive::Expected e = naive::Compute(view);
  const Statistics s = ComputeStatisticsWith(view, kernels);
  ASSERT_EQ(s.computed, e.count != 0);
  if (e.count == 0) return;
  EXPECT_EQ(s.nan_count, e.nans);
  EXPECT_EQ(s.positive_inf_count, e.ups);
  EXPECT_EQ(s.negative_inf_count, e.downs);
  EXPECT_EQ(s.zero_count, e.zeros);
  EXPECT_EQ(s.has_finite, e.finite != 0);
  const bool rounded = tensor.dtype >= DType::kComplex32;  // absolute and dequantised values are rounded to double
  const auto one_ulp = [&](long double x) { return rounded ? std::fabs(x) * 4e-16L : 0.0L; };
  ExpectSame(s.max, s.is_integer ? static_cast<double>(e.max) : e.max, one_ulp(e.max), "max");
  ExpectSame(s.min, s.is_integer ? static_cast<double>(e.min) : e.min, one_ulp(e.min), "min");
  const Precision precision = PrecisionOf(tensor.dtype);
  const long double rms = e.finite ? e.finite_norm / std::sqrt(static_cast<long double>(e.finite)) : 0;
  ExpectSame(s.mean, e.mean, precision.sums * rms, "mean");
  ExpectSame(s.norm, e.norm, precision.sums * e.finite_norm, "norm");
  ExpectSame(s.variance, e.variance, precision.variance * e.variance, "variance");
  if (e.finite != 0) {
    ExpectSame(s.finite_max, s.is_integer ? static_cast<double>(e.finite_max) : e.finite_max, one_ulp(e.finite_max),
               "finite_max");
    ExpectSame(s.finite_min, s.is_integer ? static_cast<double>(e.finite_min) : e.finite_min, one_ulp(e.finite_min),
               "finite_min");
    ExpectSame(s.finite_mean, e.finite_mean, precision.sums * rms, "finite_mean");
    ExpectSame(s.finite_norm, e.finite_norm, precision.sums * e.finite_norm, "finite_norm");
  } else {
    EXPECT_EQ(s.finite_max, 0);
    EXPECT_EQ(s.finite_norm, 0);
  }
}

void ExpectMatchesOracle(const Tensor& tensor) {
  for (const Kernels* kernels : SupportedKernels()) ExpectMatchesOracle(tensor, *kernels);
}

constexpr DType kAllDTypes[] = {
    DType::kFloat64,    DType::kFloat32,        DType::kFloat16,        DType::kBFloat16,      DType::kFloat8E4M3FN,
    DType::kFloat8E5M2, DType::kFloat8E4M3FNUZ, DType::kFloat8E5M2FNUZ, DType::kFloat8E8M0FNU, DType::kFloat4E2M1FNX2,
    DType::kInt8,       DType::kInt16,          DType::kInt32,          DType::kInt64,         DType::kUInt8,
    DType::kUInt16,     DType::kUInt32,         DType::kUInt64,         DType::kBool,          DType::kComplex32,
    DType::kComplex64,  DType::kComplex128,     DType::kQInt8,          DType::kQUInt8,        DType::kQInt32};

enum class Values { kNormal, kAnyBits };

// Normal: ordinary numbers for wide floats, and random bits without NaN and infinity for other dtypes.
Tensor Random(DType dtype, int64_t elements, Values values, uint32_t seed) {
  std::mt19937_64 random(seed);
  Tensor tensor;
  tensor.dtype = dtype;
  tensor.sizes = {elements};
  tensor.strides = {1};
  tensor.scale = 0.0725;
  tensor.zero_point = 3;
  tensor.bytes.resize(static_cast<size_t>(elements) * ElementSize(dtype));
  for (char& byte : tensor.bytes) byte = static_cast<char>(random());
  if (dtype == DType::kBool) {
    for (char& byte : tensor.bytes) byte = static_cast<char>(byte & 1);
  }
  if (values == Values::kAnyBits) return tensor;
  std::normal_distribution<double> normal(0.1, 1);
  const auto fill = [&](auto zero) {
    for (size_t i = 0; i + sizeof(zero) <= tensor.bytes.size(); i += sizeof(zero)) {
      const auto value = static_cast<decltype(zero)>(normal(random));
      std::memcpy(tensor.bytes.data() + i, &value, sizeof(value));
    }
  };
  const auto clear_high_exponent_bit = [&](size_t width, int bit) {
    for (size_t i = width - 1; i < tensor.bytes.size(); i += width) {
      tensor.bytes[i] = static_cast<char>(tensor.bytes[i] & ~bit);
    }
  };
  switch (dtype) {
    case DType::kFloat64:
    case DType::kComplex128:
      fill(double{});
      break;
    case DType::kFloat32:
    case DType::kComplex64:
      fill(float{});
      break;
    case DType::kFloat16:
    case DType::kBFloat16:
    case DType::kComplex32:
      clear_high_exponent_bit(2, 0x40);
      break;
    case DType::kFloat8E4M3FN:
    case DType::kFloat8E5M2:
    case DType::kFloat8E4M3FNUZ:
    case DType::kFloat8E5M2FNUZ:
      for (char& byte : tensor.bytes) byte = static_cast<char>((byte & ~0x40) | 1);
      break;
    case DType::kFloat8E8M0FNU:
      for (char& byte : tensor.bytes) byte = static_cast<char>(120 + (byte & 15));
      break;
    default:
      break;
  }
  return tensor;
}

class EveryDType : public testing::TestWithParam<DType> {};

TEST_P(EveryDType, ContiguousLengthsAroundVectorBorders) {
  for (int64_t n : {0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 48, 63, 64, 65, 127, 129, 1000, 4097}) {
    SCOPED_TRACE(n);
    ExpectMatchesOracle(Random(GetParam(), n, Values::kNormal, static_cast<uint32_t>(n) + 1));
  }
}

TEST_P(EveryDType, LongerThanABlock) { ExpectMatchesOracle(Random(GetParam(), 70001, Values::kNormal, 5)); }

TEST_P(EveryDType, ScalarOfNoDimensions) {
  Tensor tensor = Random(GetParam(), 1, Values::kNormal, 3);
  tensor.sizes.clear();
  tensor.strides.clear();
  ExpectMatchesOracle(tensor);
}

TEST_P(EveryDType, Layouts) {
  struct Case {
    const char* name;
    std::vector<int64_t> sizes, strides;
    int64_t offset;
  };
  const Case cases[] = {
      {"transposed", {60, 50}, {1, 60}, 0},
      {"transposed long", {3, 5000}, {1, 3}, 0},
      {"every second column", {50, 30}, {60, 2}, 1},
      {"rows with gaps", {7, 33}, {64, 1}, 5},
      {"long rows with gaps", {3, 4000}, {5000, 1}, 2},
      {"expanded rows", {40, 17}, {0, 1}, 3},
      {"expanded columns", {17, 40}, {1, 0}, 0},
      {"expanded scalar", {1000}, {0}, 9},
      {"reversed", {500}, {-1}, 499},
      {"reversed rows", {20, 30}, {-30, 1}, 570},
      {"channels last", {2, 3, 8, 9}, {216, 1, 27, 3}, 0},
      {"overlapping windows", {100, 16}, {1, 1}, 0},
      {"sizes of one", {1, 50, 1, 3, 1}, {7, 4, 9, 1, 0}, 0},
      {"empty", {5, 0, 3}, {3, 3, 1}, 0},
      {"nine dimensions", {2, 2, 2, 2, 2, 2, 2, 2, 3}, {5000, 2500, 1200, 600, 300, 150, 70, 30, 5}, 0},
  };
  Tensor tensor = Random(GetParam(), 16000, Values::kNormal, 17);
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    tensor.sizes = c.sizes;
    tensor.strides = c.strides;
    tensor.offset = c.offset;
    ExpectMatchesOracle(tensor);
  }
}

INSTANTIATE_TEST_SUITE_P(Statistics, EveryDType, testing::ValuesIn(kAllDTypes));

// Squares of random doubles overflow, also in the oracle, so doubles have tests of their own.
class EveryDTypeButDoubles : public testing::TestWithParam<DType> {};

std::vector<DType> ButDoubles() {
  std::vector<DType> dtypes(std::begin(kAllDTypes), std::end(kAllDTypes));
  std::erase_if(dtypes, [](DType each) { return each == DType::kFloat64 || each == DType::kComplex128; });
  return dtypes;
}

TEST_P(EveryDTypeButDoubles, AnyBitsWhatever) {
  for (uint32_t seed = 0; seed < 20; ++seed) ExpectMatchesOracle(Random(GetParam(), 300, Values::kAnyBits, seed));
}

INSTANTIATE_TEST_SUITE_P(Statistics, EveryDTypeButDoubles, testing::ValuesIn(ButDoubles()));

class EveryFloat : public testing::TestWithParam<DType> {
 protected:
  static Tensor With(int64_t n, int64_t at, double special) {
    Tensor tensor = Random(GetParam(), n, Values::kNormal, static_cast<uint32_t>(n));
    Set(&tensor, at, special);
    return tensor;
  }
  static void Set(Tensor* tensor, int64_t at, double value) {
    const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
    const uint16_t bfloat = std::isnan(value) ? 0x7fc0 : static_cast<uint16_t>(sign | (std::isinf(value) ? 0x7f80 : 0));
    const uint16_t half = std::isnan(value) ? 0x7e00 : static_cast<uint16_t>(sign | (std::isinf(value) ? 0x7c00 : 0));
    const auto single = static_cast<float>(value);
    const size_t size = ElementSize(tensor->dtype);
    const void* from = &value;
    if (tensor->dtype == DType::kFloat32) from = &single;
    if (tensor->dtype == DType::kFloat16) from = &half;
    if (tensor->dtype == DType::kBFloat16) from = &bfloat;
    std::memcpy(tensor->bytes.data() + static_cast<size_t>(at) * size, from, size);
  }
};

TEST_P(EveryFloat, OneSpecialElementAnywhere) {
  for (int64_t n : {1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 65, 100, 40000}) {
    for (int64_t at : {int64_t{0}, n / 2, n - 1}) {
      for (double special : {kNaN, kInf, -kInf, 0.0, -0.0}) {
        SCOPED_TRACE(testing::Message() << special << " at " << at << " of " << n);
        ExpectMatchesOracle(With(n, at, special));
      }
    }
  }
}

TEST_P(EveryFloat, InfinitiesOfBothSigns) {
  Tensor tensor = With(100, 3, kInf);
  Set(&tensor, 77, -kInf);
  for (const Kernels* kernels : SupportedKernels()) {
    const Statistics s = ComputeStatisticsWith(tensor.view(), *kernels);
    EXPECT_EQ(s.max, kInf);
    EXPECT_EQ(s.min, -kInf);
    EXPECT_TRUE(std::isnan(s.mean));
    EXPECT_EQ(s.norm, kInf);
    EXPECT_TRUE(std::isnan(s.variance));
  }
  ExpectMatchesOracle(tensor);
}

TEST_P(EveryFloat, NothingFinite) {
  for (double special : {kNaN, kInf, -kInf}) {
    Tensor tensor = Random(GetParam(), 50, Values::kNormal, 1);
    for (int64_t i = 0; i < 50; ++i) Set(&tensor, i, special);
    const Statistics s = ComputeStatistics(tensor.view());
    EXPECT_TRUE(s.computed);
    EXPECT_FALSE(s.has_finite);
    ExpectMatchesOracle(tensor);
  }
}

TEST_P(EveryFloat, SignsOfZerosAreKept) {
  for (const Kernels* kernels : SupportedKernels()) {
    SCOPED_TRACE(kernels->name);
    for (int64_t n : {1, 5, 8, 16, 33, 300, 20000}) {
      Tensor tensor = Random(GetParam(), n, Values::kNormal, 1);
      for (int64_t i = 0; i < n; ++i) Set(&tensor, i, -0.0);
      Statistics s = ComputeStatisticsWith(tensor.view(), *kernels);
      EXPECT_TRUE(s.max == 0 && std::signbit(s.max));
      EXPECT_TRUE(s.min == 0 && std::signbit(s.min));
      EXPECT_FALSE(std::signbit(s.mean));
      EXPECT_FALSE(std::signbit(s.norm));
      EXPECT_EQ(s.zero_count, static_cast<uint64_t>(n));

      Set(&tensor, n - 1, 0.0);
      s = ComputeStatisticsWith(tensor.view(), *kernels);
      EXPECT_FALSE(std::signbit(s.max)) << "max prefers +0";
      EXPECT_EQ(std::signbit(s.min), n > 1) << "min prefers -0";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Statistics, EveryFloat,
                         testing::Values(DType::kFloat64, DType::kFloat32, DType::kFloat16, DType::kBFloat16));

Statistics Of(const Tensor& tensor) { return ComputeStatistics(tensor.view()); }

TEST(StatisticsTest, KnownNumbersOfOneToFive) {
  const Statistics s = Of(Vector<float>(DType::kFloat32, {1, 2, 3, 4, 5}));
  EXPECT_EQ(s.max, 5);
  EXPECT_EQ(s.min, 1);
  EXPECT_EQ(s.mean, 3);
  EXPECT_DOUBLE_EQ(s.norm, std::sqrt(55.0));
  EXPECT_DOUBLE_EQ(s.variance, 2);
  EXPECT_FALSE(s.is_integer);
}

TEST(StatisticsTest, FloatSumsAndNormsDoNotOverflow) {
  const Statistics s = Of(Vector<float>(DType::kFloat32, std::vector<float>(4, 3e38f)));
  EXPECT_EQ(s.mean, 3e38f);
  EXPECT_DOUBLE_EQ(s.norm, 2 * static_cast<double>(3e38f));
  EXPECT_EQ(s.variance, 0);

  const Statistics half = Of(Vector<uint16_t>(DType::kFloat16, std::vector<uint16_t>(4096, 0x69dc)));  // 3000
  EXPECT_EQ(half.norm, 192000);
}

TEST(StatisticsTest, FloatDenormalsAreKeptEvenWhereTheThreadFlushesThem) {
  const Tensor tensor = Vector<float>(DType::kFloat32, std::vector<float>(40, 1e-42f));
#if defined(__SSE2__)
  const unsigned saved = __builtin_ia32_stmxcsr();
  __builtin_ia32_ldmxcsr(saved | 0x8040);
#endif
  const Statistics s = Of(tensor);
#if defined(__SSE2__)
  EXPECT_EQ(__builtin_ia32_stmxcsr(), saved | 0x8040) << "the thread's mode is restored";
  __builtin_ia32_ldmxcsr(saved);
#endif
  EXPECT_EQ(s.max, static_cast<double>(1e-42f));
  EXPECT_EQ(s.min, static_cast<double>(1e-42f));
  EXPECT_EQ(s.mean, static_cast<double>(1e-42f));
  EXPECT_EQ(s.zero_count, 0u);
  EXPECT_NEAR(s.norm / 1e-42f, std::sqrt(40.0), 1e-6);
}

TEST(StatisticsTest, VarianceOfANarrowBandFarFromZero) {
  std::vector<float> values(100000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = i % 2 ? 16777215.0f : 16777214.0f;
  EXPECT_NEAR(Of(Vector(DType::kFloat32, values)).variance, 0.25, 1e-9);

  std::vector<double> doubles(1000);
  for (size_t i = 0; i < doubles.size(); ++i) doubles[i] = 1e15 + static_cast<double>(i % 2);
  EXPECT_NEAR(Of(Vector(DType::kFloat64, doubles)).variance, 0.25, 1e-9);
}

// The bits of numbers that are exact in bf16.
std::vector<uint16_t> BFloat16s(const std::vector<float>& values) {
  std::vector<uint16_t> bits(values.size());
  for (size_t i = 0; i < values.size(); ++i) bits[i] = static_cast<uint16_t>(std::bit_cast<uint32_t>(values[i]) >> 16);
  return bits;
}

TEST(StatisticsTest, BFloat16WhoseSquaresNoFloatHolds) {
  for (float unit : {0x1p127f, 0x1p100f, 0x1p-70f, 0x1p-126f, 0x1p-133f}) {
    SCOPED_TRACE(unit);
    std::vector<float> values(1000, unit);
    values[5] = -unit;
    values[20] = 0;
    const Tensor tensor = Vector(DType::kBFloat16, BFloat16s(values));
    ExpectMatchesOracle(tensor);
    const double norm = std::sqrt(999.0) * static_cast<double>(unit);
    for (const Kernels* kernels : SupportedKernels()) {
      EXPECT_NEAR(ComputeStatisticsWith(tensor.view(), *kernels).norm / norm, 1, 1e-13) << "in doubles then";
    }
  }
}

TEST(StatisticsTest, VarianceOfShortFloatsFarFromZero) {
  std::vector<float> values(100000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = i % 2 ? 1.0f : 1.0078125f;
  EXPECT_NEAR(Of(Vector(DType::kBFloat16, BFloat16s(values))).variance, 0x1p-16, 1e-15);
}

TEST(StatisticsTest, ShortFloatsGiveTheSameSumsAtEveryLevel) {
  for (DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    const Tensor tensor = Random(dtype, 100000, Values::kNormal, 5);
    const Statistics expected = ComputeStatisticsWith(tensor.view(), kPortableKernels);
    for (const Kernels* kernels : SupportedKernels()) {
      SCOPED_TRACE(kernels->name);
      const Statistics s = ComputeStatisticsWith(tensor.view(), *kernels);
      EXPECT_NEAR(s.norm / expected.norm, 1, 1e-14);
      EXPECT_NEAR(s.mean, expected.mean, 1e-14);
    }
  }
}

TEST(StatisticsTest, Float64OfAnyMagnitude) {
  for (double unit : {1.7e308, 1e200, 1e160, 1e-155, 1e-200, 1e-300, 5e-324}) {
    SCOPED_TRACE(unit);
    std::vector<double> values(37, unit);
    values[5] = -unit;
    values[20] = 0;
    ExpectMatchesOracle(Vector(DType::kFloat64, values));
  }
  const Statistics s = Of(Vector<double>(DType::kFloat64, {1e300, kNaN, -1e300, 1e300}));
  EXPECT_TRUE(std::isnan(s.norm));
  EXPECT_DOUBLE_EQ(s.finite_norm, std::sqrt(3.0) * 1e300);
  EXPECT_DOUBLE_EQ(s.finite_mean, 1e300 / 3);
  EXPECT_EQ(s.nan_count, 1u);
}

TEST(StatisticsTest, Complex128OfAnyMagnitude) {
  for (double unit : {1e300, 1e160, 1e-160, 1e-300}) {
    ExpectMatchesOracle(Vector<double>(DType::kComplex128, {3 * unit, 4 * unit, unit, 0, 0, -unit, 0, 0}));
  }
  const Statistics s = Of(Vector<double>(DType::kComplex128, {kInf, kNaN, 1, 2}));
  EXPECT_EQ(s.positive_inf_count, 1u) << "an infinite part makes the absolute value infinite";
  EXPECT_EQ(s.nan_count, 0u);
}

TEST(StatisticsTest, Int64Extremes) {
  const Statistics s = Of(Vector<int64_t>(DType::kInt64, {INT64_MAX, INT64_MIN, 0}));
  EXPECT_TRUE(s.is_integer);
  EXPECT_EQ(s.integer_max, INT64_MAX);
  EXPECT_EQ(s.integer_min, INT64_MIN);
  EXPECT_DOUBLE_EQ(s.mean, -1.0 / 3) << "the sum is exact";
  EXPECT_EQ(s.zero_count, 1u);

  const int64_t far = int64_t{1} << 62;
  const Statistics near = Of(Vector<int64_t>(DType::kInt64, {far, far + 1, far, far + 1}));
  EXPECT_EQ(near.integer_max, far + 1);
  EXPECT_DOUBLE_EQ(near.variance, 0.25);
}

TEST(StatisticsTest, UInt64AboveTheSignedRange) {
  const uint64_t big = (uint64_t{1} << 63) + 12345;
  for (size_t n : {2u, 9u, 100u, 10000u}) {
    std::vector<uint64_t> values(n, big);
    values[n / 2] = 7;
    const Statistics s = Of(Vector(DType::kUInt64, values));
    EXPECT_EQ(static_cast<uint64_t>(s.integer_max), big);
    EXPECT_EQ(s.integer_min, 7);
    EXPECT_EQ(s.max, static_cast<double>(big));
  }
  ExpectMatchesOracle(Vector<uint64_t>(DType::kUInt64, std::vector<uint64_t>(5000, UINT64_MAX)));
}

TEST(StatisticsTest, IntegerExtremesOfEveryWidthFillWholeBlocks) {
  ExpectMatchesOracle(Vector(DType::kInt8, std::vector<int8_t>(100000, INT8_MIN)));
  ExpectMatchesOracle(Vector(DType::kUInt8, std::vector<uint8_t>(100000, UINT8_MAX)));
  ExpectMatchesOracle(Vector(DType::kInt16, std::vector<int16_t>(100000, INT16_MIN)));
  ExpectMatchesOracle(Vector(DType::kUInt16, std::vector<uint16_t>(100000, UINT16_MAX)));
  ExpectMatchesOracle(Vector(DType::kInt32, std::vector<int32_t>(100000, INT32_MIN)));
  ExpectMatchesOracle(Vector(DType::kUInt32, std::vector<uint32_t>(100000, UINT32_MAX)));
  ExpectMatchesOracle(Vector(DType::kInt64, std::vector<int64_t>(100000, INT64_MIN)));
}

TEST(StatisticsTest, BoolIsAnyAndAll) {
  Statistics s = Of(Vector<uint8_t>(DType::kBool, {1, 1, 1, 1, 1}));
  EXPECT_TRUE(s.is_integer);
  EXPECT_EQ(s.integer_max, 1);
  EXPECT_EQ(s.integer_min, 1);
  s = Of(Vector<uint8_t>(DType::kBool, {0, 0}));
  EXPECT_EQ(s.integer_max, 0);
  std::vector<uint8_t> nearly(3000000, 1);
  nearly[1234567] = 0;
  s = Of(Vector(DType::kBool, nearly));
  EXPECT_EQ(s.integer_max, 1);
  EXPECT_EQ(s.integer_min, 0);
  EXPECT_EQ(s.zero_count, 1u);
  EXPECT_NEAR(s.variance, 1 / 3e6, 1e-12);
}

TEST(StatisticsTest, Float4HoldsTwoValuesAByte) {
  const Statistics s = Of(Vector<uint8_t>(DType::kFloat4E2M1FNX2, {0x72, 0xf0}));  // 1, 6, 0, -6
  EXPECT_EQ(s.max, 6);
  EXPECT_EQ(s.min, -6);
  EXPECT_EQ(s.mean, 0.25);
  EXPECT_EQ(s.zero_count, 1u);
}

TEST(StatisticsTest, HugeExpandedTensorCountsEveryElement) {
  const float value = 0.5f;
  const int64_t sizes[] = {int64_t{1} << 40}, strides[] = {0};
  TensorView view;
  view.data = &value;
  view.dtype = DType::kFloat32;
  view.sizes = sizes;
  view.strides = strides;
  Statistics s = ComputeStatistics(view);
  EXPECT_EQ(s.mean, 0.5);
  EXPECT_EQ(s.norm, 0.5 * (1 << 20));
  const float nan = std::nanf("");
  view.data = &nan;
  EXPECT_EQ(ComputeStatistics(view).nan_count, uint64_t{1} << 40);
}

TEST(StatisticsTest, LongTensorKeepsItsPrecision) {
  std::vector<float> values(6000000);
  std::mt19937 random(1);
  std::normal_distribution<float> normal(1e-4f, 1);
  for (float& value : values) value = normal(random);
  ExpectMatchesOracle(Vector(DType::kFloat32, values), BestKernels());
}

TEST(StatisticsTest, LazyNegationAndConjugation) {
  for (DType dtype : {DType::kFloat32, DType::kFloat16, DType::kFloat64, DType::kInt8, DType::kUInt8, DType::kInt32,
                      DType::kFloat8E5M2, DType::kFloat4E2M1FNX2, DType::kComplex64}) {
    Tensor tensor = Random(dtype, 5000, Values::kNormal, 4);
    tensor.negative = true;
    tensor.conjugate = dtype == DType::kComplex64;
    ExpectMatchesOracle(tensor);
  }
}

TEST(StatisticsTest, UnalignedMemory) {
  Tensor tensor = Random(DType::kFloat32, 3001, Values::kNormal, 4);
  std::vector<char> shifted(tensor.bytes.size() + 1);
  std::copy(tensor.bytes.begin(), tensor.bytes.end(), shifted.begin() + 1);
  TensorView view = tensor.view();
  const Statistics aligned = ComputeStatistics(view);
  view.data = shifted.data() + 1;
  const Statistics unaligned = ComputeStatistics(view);
  EXPECT_EQ(unaligned.max, aligned.max);
  EXPECT_NEAR(unaligned.norm, aligned.norm, 1e-10);
}

TEST(StatisticsTest, NothingToCompute) {
  EXPECT_FALSE(Of(Vector<float>(DType::kFloat32, {})).computed);
  TensorView other;
  other.dtype = DType::kOther;
  EXPECT_FALSE(ComputeStatistics(other).computed);
  TensorView null_and_empty;
  null_and_empty.dtype = DType::kInt32;
  const int64_t sizes[] = {0, 4}, strides[] = {4, 1};
  null_and_empty.sizes = sizes;
  null_and_empty.strides = strides;
  EXPECT_FALSE(ComputeStatistics(null_and_empty).computed);
}

}  // namespace
}  // namespace msprobe::stats
