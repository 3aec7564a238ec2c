#include <benchmark/benchmark.h>
#include <zlib.h>

#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "agent/stats/checksum.h"
#include "agent/stats/signs.h"
#include "agent/stats/statistics_internal.h"

namespace msprobe::stats {
namespace {

constexpr int64_t kLarge = 16 << 20;
constexpr int64_t kUncachedBytes = 64 << 20;  // twice the third-level cache of a common server's core complex

// Ordinary activations: normally distributed, without special values.
const std::vector<char>& Memory(DType dtype) {
  static const std::vector<char> floats = [] {
    std::vector<char> bytes(kLarge * sizeof(float));
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < kLarge; ++i) {
      const float value = normal(random);
      std::memcpy(bytes.data() + i * 4, &value, 4);
    }
    return bytes;
  }();
  static const std::vector<char> halves = [] {  // exponents that are ordinary both for fp16 and for bf16
    std::vector<char> bytes(kUncachedBytes);
    for (int64_t i = 0; i < kUncachedBytes / 2; ++i) {
      std::memcpy(bytes.data() + 2 * i, floats.data() + 4 * (i % kLarge) + 2, 2);
    }
    return bytes;
  }();
  return ElementSize(dtype) == 2 ? halves : floats;
}

typedef float Float16 __attribute__((vector_size(64)));

// The yardstick: a sum with eight vector accumulators over the same bytes.
#if defined(__x86_64__) && !defined(__clang__)
__attribute__((target_clones("default", "avx2", "avx512f"), noinline))
#else
__attribute__((noinline))
#endif
float PlainSum(const char* bytes, size_t size) {
  Float16 s0{}, s1{}, s2{}, s3{}, s4{}, s5{}, s6{}, s7{};  // an array would stay in memory
  const auto add = [bytes](Float16 & sum, size_t at) __attribute__((always_inline)) {
    Float16 x;
    std::memcpy(&x, bytes + at, sizeof(x));
    sum += x;
  };
  for (size_t at = 0; at + 512 <= size; at += 512) {
    add(s0, at);
    add(s1, at + 64);
    add(s2, at + 128);
    add(s3, at + 192);
    add(s4, at + 256);
    add(s5, at + 320);
    add(s6, at + 384);
    add(s7, at + 448);
  }
  const Float16 sum = ((s0 + s1) + (s2 + s3)) + ((s4 + s5) + (s6 + s7));
  float total = 0;
  for (int i = 0; i < 16; ++i) total += sum[i];
  return total;
}

struct Subject {
  TensorView view;
  std::vector<int64_t> sizes, strides;
};

Subject Make(DType dtype, std::vector<int64_t> sizes, std::vector<int64_t> strides) {
  Subject subject;
  subject.sizes = std::move(sizes);
  subject.strides = std::move(strides);
  subject.view.data = Memory(dtype).data();
  subject.view.dtype = dtype;
  subject.view.sizes = subject.sizes;
  subject.view.strides = subject.strides;
  return subject;
}

void CountBytes(benchmark::State& state, const TensorView& view) {
  state.SetBytesProcessed(state.iterations() * view.element_count() * static_cast<int64_t>(ElementSize(view.dtype)));
}

void BM_PlainSum(benchmark::State& state, DType dtype, int64_t elements) {
  const Subject subject = Make(dtype, {elements}, {1});
  const size_t size = static_cast<size_t>(elements) * ElementSize(dtype);
  for (auto _ : state) benchmark::DoNotOptimize(PlainSum(static_cast<const char*>(subject.view.data), size));
  CountBytes(state, subject.view);
}

void BM_Statistics(benchmark::State& state, const Kernels* kernels, DType dtype, std::vector<int64_t> sizes,
                   std::vector<int64_t> strides) {
  const Subject subject = Make(dtype, std::move(sizes), std::move(strides));
  for (auto _ : state) benchmark::DoNotOptimize(ComputeStatisticsWith(subject.view, *kernels));
  CountBytes(state, subject.view);
}

// Signs alone, and in the pass of the statistics.
void BM_Signs(benchmark::State& state, DType dtype, int64_t elements, bool with_statistics) {
  const Subject subject = Make(dtype, {elements}, {1});
  std::vector<uint8_t> bits(SignBytes(static_cast<size_t>(elements)));
  for (auto _ : state) {
    if (with_statistics) {
      benchmark::DoNotOptimize(ComputeStatistics(subject.view, nullptr, {.signs = bits.data()}));
    } else {
      WriteSigns(subject.view, bits.data());
    }
    benchmark::ClobberMemory();
  }
  CountBytes(state, subject.view);
}

// What is gathered beside the statistics, in their pass.
void BM_Gathered(benchmark::State& state, DType dtype, int64_t elements, bool distribution,
                 Quantisation::Formats formats) {
  const Subject subject = Make(dtype, {elements}, {1});
  Distribution spread;
  Quantisation quantisation;
  for (auto _ : state) {
    benchmark::DoNotOptimize(ComputeStatistics(subject.view, nullptr,
                                               {.distribution = distribution ? &spread : nullptr,
                                                .quantisation = formats == 0 ? nullptr : &quantisation,
                                                .formats = formats}));
    benchmark::ClobberMemory();
  }
  CountBytes(state, subject.view);
}

template <auto kFunction>
void BM_Checksum(benchmark::State& state, std::vector<int64_t> sizes, std::vector<int64_t> strides) {
  const Subject subject = Make(DType::kFloat32, std::move(sizes), std::move(strides));
  for (auto _ : state) benchmark::DoNotOptimize(kFunction(subject.view));
  CountBytes(state, subject.view);
}

// The yardstick for checksums.
void BM_ZlibCrc32(benchmark::State& state) {
  const std::vector<char>& memory = Memory(DType::kFloat32);
  for (auto _ : state) {
    benchmark::DoNotOptimize(crc32(0, reinterpret_cast<const Bytef*>(memory.data()), static_cast<uInt>(memory.size())));
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(memory.size()));
}

const bool kRegistered = [] {
  const struct {
    const char* name;
    DType dtype;
  } dtypes[] = {{"fp32", DType::kFloat32},        {"bf16", DType::kBFloat16},
                {"fp16", DType::kFloat16},        {"fp64", DType::kFloat64},
                {"int8", DType::kInt8},           {"int32", DType::kInt32},
                {"int64", DType::kInt64},         {"fp8_e4m3", DType::kFloat8E4M3FN},
                {"complex64", DType::kComplex64}, {"bool", DType::kBool}};
  for (const auto& [name, dtype] : dtypes) {
    const int64_t size = static_cast<int64_t>(ElementSize(dtype));
    const int64_t n = size == 2 ? kLarge : kUncachedBytes / size;
    benchmark::RegisterBenchmark((std::string("plain_sum/") + name).c_str(), BM_PlainSum, dtype, n);
    for (const Kernels* kernels : SupportedKernels()) {
      benchmark::RegisterBenchmark((std::string("statistics/") + name + "/" + kernels->name).c_str(), BM_Statistics,
                                   kernels, dtype, std::vector<int64_t>{n}, std::vector<int64_t>{1});
    }
  }
  for (const auto& [name, dtype] : {std::pair("fp32", DType::kFloat32), std::pair("bf16", DType::kBFloat16)}) {
    const int64_t uncached = kUncachedBytes / static_cast<int64_t>(ElementSize(dtype));
    benchmark::RegisterBenchmark((std::string("signs/") + name).c_str(), BM_Signs, dtype, uncached, false);
    benchmark::RegisterBenchmark((std::string("signs_and_statistics/") + name).c_str(), BM_Signs, dtype, uncached,
                                 true);
    benchmark::RegisterBenchmark((std::string("uncached_sum/") + name).c_str(), BM_PlainSum, dtype, uncached);
    const auto gathered = [name = name, dtype = dtype](std::string_view what, bool spread,
                                                       Quantisation::Formats formats) {
      benchmark::RegisterBenchmark(("gathered/" + std::string(name) + "/" + std::string(what)).c_str(), BM_Gathered,
                                   dtype, kLarge, spread, formats);
    };
    gathered("kurtosis", true, 0);
    for (size_t i = 0; i < kQuantisedFormats; ++i) gathered(Quantisation::kFormats[i], false, 1U << i);
    gathered("all", true, (1U << kQuantisedFormats) - 1);
  }
  const Kernels* best = &BestKernels();
  for (int64_t n : {1, 16, 256, 4096}) {
    benchmark::RegisterBenchmark(("small/fp32/" + std::to_string(n)).c_str(), BM_Statistics, best, DType::kFloat32,
                                 std::vector<int64_t>{n}, std::vector<int64_t>{1});
  }
  const std::vector<int64_t> square = {2048, 2048};
  const std::vector<int64_t> transposed = {1, 2048}, columns = {4096, 2};
  benchmark::RegisterBenchmark("layout/fp32/transposed", BM_Statistics, best, DType::kFloat32, square, transposed);
  benchmark::RegisterBenchmark("layout/fp32/every_second", BM_Statistics, best, DType::kFloat32, square, columns);
  benchmark::RegisterBenchmark("checksum/zlib", BM_ZlibCrc32);
  benchmark::RegisterBenchmark("checksum/crc32", BM_Checksum<&Crc32>, std::vector<int64_t>{kLarge},
                               std::vector<int64_t>{1});
  benchmark::RegisterBenchmark("checksum/crc32/transposed", BM_Checksum<&Crc32>, square, transposed);
  benchmark::RegisterBenchmark("checksum/xor64", BM_Checksum<&Xor64>, std::vector<int64_t>{kLarge},
                               std::vector<int64_t>{1});
  return true;
}();

}  // namespace
}  // namespace msprobe::stats
