// Every number of a pair of 16M elements, beside a plain read of both.

#include <benchmark/benchmark.h>

#include <cstring>
#include <random>
#include <vector>

#include "server/analysis/check/accuracy.h"

namespace msprobe::server {
namespace {

absl::StatusOr<AccuracyComparison> Compare(v1::DType target, v1::DType golden) {
  TensorDescription a;
  TensorDescription b;
  a.dtype = target;
  b.dtype = golden;
  return AccuracyComparison::Start(a, b);
}

constexpr size_t kElements = size_t{16} << 20;

struct Pair {
  Pair() {
    std::mt19937 draw(1);
    std::normal_distribution<float> normal;
    std::vector<float> drawn(1 << 16);
    for (float& each : drawn) each = normal(draw);
    for (size_t i = 0; i < kElements; ++i) {
      golden[i] = drawn[i % drawn.size()];
      output[i] = static_cast<float>(golden[i] * (1 + 1e-7 * drawn[(i * 31) % drawn.size()]));
      rounded[i] = static_cast<float>(golden[i]);
      uint32_t bits;
      std::memcpy(&bits, &rounded[i], sizeof(bits));
      halves[i] = static_cast<uint16_t>((bits + 0x8000) >> 16);
    }
  }
  std::vector<double> golden = std::vector<double>(kElements);
  std::vector<float> output = std::vector<float>(kElements);
  std::vector<float> rounded = std::vector<float>(kElements);
  std::vector<uint16_t> halves = std::vector<uint16_t>(kElements);  // golden as bfloat16
};

const Pair& ThePair() {
  static const Pair pair;
  return pair;
}

typedef int64_t Words __attribute__((vector_size(64)));

template <typename T>
int64_t PlainRead(const std::vector<T>& values) {
  Words s0{}, s1{}, s2{}, s3{};
  const char* const from = reinterpret_cast<const char*>(values.data());
  for (size_t at = 0; at + 256 <= values.size() * sizeof(T); at += 256) {
    Words w[4];
    std::memcpy(w, from + at, 256);
    s0 += w[0];
    s1 += w[1];
    s2 += w[2];
    s3 += w[3];
  }
  s0 += s1 + s2 + s3;
  return s0[0] + s0[1] + s0[2] + s0[3] + s0[4] + s0[5] + s0[6] + s0[7];
}

void PlainReadOfFloat32AndFloat64(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(PlainRead(ThePair().output) + PlainRead(ThePair().golden));
}
void PlainReadOfFloat32Twice(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(PlainRead(ThePair().output) + PlainRead(ThePair().rounded));
}
void PlainReadOfBfloat16AndFloat64(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(PlainRead(ThePair().halves) + PlainRead(ThePair().golden));
}
template <typename A, typename B>
void Measure(benchmark::State& state, v1::DType target, const std::vector<A>& output, v1::DType dtype,
             const std::vector<B>& golden) {
  for (auto _ : state) {
    auto comparison = Compare(target, dtype);
    comparison->Add(reinterpret_cast<const char*>(output.data()), reinterpret_cast<const char*>(golden.data()),
                    kElements);
    benchmark::DoNotOptimize(comparison->Finish());
  }
}
void Float32AgainstFloat64(benchmark::State& state) {
  Measure(state, v1::DTYPE_FLOAT32, ThePair().output, v1::DTYPE_FLOAT64, ThePair().golden);
}
void Float32AgainstFloat32(benchmark::State& state) {
  Measure(state, v1::DTYPE_FLOAT32, ThePair().output, v1::DTYPE_FLOAT32, ThePair().rounded);
}
void Float32AgainstItself(benchmark::State& state) {
  Measure(state, v1::DTYPE_FLOAT32, ThePair().output, v1::DTYPE_FLOAT32, ThePair().output);
}
void Bfloat16AgainstFloat64(benchmark::State& state) {
  Measure(state, v1::DTYPE_BFLOAT16, ThePair().halves, v1::DTYPE_FLOAT64, ThePair().golden);
}

BENCHMARK(PlainReadOfFloat32AndFloat64)->Unit(benchmark::kMillisecond);
BENCHMARK(Float32AgainstFloat64)->Unit(benchmark::kMillisecond);
BENCHMARK(PlainReadOfFloat32Twice)->Unit(benchmark::kMillisecond);
BENCHMARK(Float32AgainstFloat32)->Unit(benchmark::kMillisecond);
BENCHMARK(Float32AgainstItself)->Unit(benchmark::kMillisecond);
BENCHMARK(PlainReadOfBfloat16AndFloat64)->Unit(benchmark::kMillisecond);
BENCHMARK(Bfloat16AgainstFloat64)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace msprobe::server
