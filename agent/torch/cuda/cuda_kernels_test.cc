#include "agent/torch/cuda/cuda_kernels.h"

#include <algorithm>
#include <barrier>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "agent/stats/statistics.h"
#include "agent/torch/cuda/cuda_reduction.h"
#include "agent/torch/cuda/cuda_trial.h"
#include "agent/torch/device/device_pieces.h"
#include "gtest/gtest.h"

namespace msprobe::capture {
namespace {

using stats::DType;

// A block whose threads are threads of this process.
struct HostBlock {
  int thread_number;
  int64_t chunk_number;
  cuda::Partial* memory;
  std::barrier<>* barrier;

  int thread() const { return thread_number; }
  int64_t chunk() const { return chunk_number; }
  cuda::Partial* shared() const { return memory; }
  void Synchronize() const { barrier->arrive_and_wait(); }
};

template <typename T, DeviceRowKind kKind>
void Run(const void* data, int64_t elements, int64_t chunk, void* rows, unsigned blocks) {
  std::vector<cuda::Partial> shared(cuda::kThreads);
  std::barrier<> barrier(cuda::kThreads);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < cuda::kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (unsigned block = 0; block < blocks; ++block) {
        cuda::ReduceChunk<T, kKind>(HostBlock{thread, block, shared.data(), &barrier}, static_cast<const T*>(data),
                                    elements, chunk, static_cast<unsigned char*>(rows));
        barrier.arrive_and_wait();  // blocks have no memory in common
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

using Kernel = void (*)(const void*, int64_t, int64_t, void*, unsigned);

const std::map<std::string, Kernel>& Kernels() {
  static const std::map<std::string, Kernel> all{
      {"msprobe_float32", Run<float, DeviceRowKind::kFloating>},
      {"msprobe_float16", Run<cuda::Half, DeviceRowKind::kFloating>},
      {"msprobe_bfloat16", Run<cuda::BFloat16, DeviceRowKind::kFloating>},
      {"msprobe_bool", Run<cuda::Bool, DeviceRowKind::kNarrowInteger>},
      {"msprobe_uint8", Run<uint8_t, DeviceRowKind::kNarrowInteger>},
      {"msprobe_int8", Run<int8_t, DeviceRowKind::kNarrowInteger>},
      {"msprobe_int16", Run<int16_t, DeviceRowKind::kNarrowInteger>},
      {"msprobe_int32", Run<int32_t, DeviceRowKind::kWideInteger>},
      {"msprobe_int64", Run<int64_t, DeviceRowKind::kWideInteger>},
  };
  return all;
}

// A driver whose device is the host. One at a time: the driver's functions know no object.
class FakeDriver {
 public:
  FakeDriver() {
    the_driver = this;
    driver_.init = [](unsigned) { return the_driver->Called("cuInit"); };
    driver_.device_get = [](int* device, int ordinal) {
      *device = ordinal + 10;
      return the_driver->Called("cuDeviceGet");
    };
    driver_.primary_context_retain = [](void** context, int device) {
      the_driver->device = device;
      *context = &the_driver->contexts;
      return the_driver->Called("cuDevicePrimaryCtxRetain");
    };
    driver_.context_push = [](void* context) {
      EXPECT_EQ(context, &the_driver->contexts);
      const int result = the_driver->Called("cuCtxPushCurrent");
      if (result == 0) ++the_driver->contexts;
      return result;
    };
    driver_.context_pop = [](void**) {
      --the_driver->contexts;
      return 0;
    };
    driver_.module_load = [](void** module, const void* image) {
      the_driver->image = static_cast<const char*>(image);
      *module = the_driver;
      return the_driver->Called("cuModuleLoadData");
    };
    driver_.function_get = [](void** function, void* module, const char* name) {
      EXPECT_EQ(module, the_driver);
      const auto found = Kernels().find(name);
      if (found == Kernels().end()) return 500;
      *function = reinterpret_cast<void*>(found->second);
      return the_driver->Called(name);
    };
    driver_.launch = [](void* function, unsigned blocks, unsigned, unsigned, unsigned threads, unsigned, unsigned,
                        unsigned, void* stream, void** parameters, void**) {
      EXPECT_EQ(the_driver->contexts, 1);
      EXPECT_EQ(threads, static_cast<unsigned>(cuda::kThreads));
      the_driver->stream = stream;
      if (const int result = the_driver->Called("cuLaunchKernel")) return result;
      reinterpret_cast<Kernel>(function)(*static_cast<void**>(parameters[0]), *static_cast<int64_t*>(parameters[1]),
                                         *static_cast<int64_t*>(parameters[2]), *static_cast<void**>(parameters[3]),
                                         blocks);
      return 0;
    };
    driver_.error_name = [](int result, const char** name) {
      *name = result == 719 ? "CUDA_ERROR_LAUNCH_FAILED" : nullptr;
      return result == 719 ? 0 : 1;
    };
  }
  ~FakeDriver() { the_driver = nullptr; }
  FakeDriver(const FakeDriver&) = delete;
  FakeDriver& operator=(const FakeDriver&) = delete;

  const CudaDriver& driver() const { return driver_; }

  std::string failing;  // the call that fails
  int device = -1;
  int contexts = 0;  // pushed and not popped
  std::string image;
  void* stream = nullptr;

 private:
  int Called(const std::string& call) const { return call == failing ? 719 : 0; }

  inline static FakeDriver* the_driver = nullptr;
  CudaDriver driver_;
};

// Memory aligned as a device's is.
struct alignas(64) Line {
  std::byte bytes[64];
};
class Memory {
 public:
  explicit Memory(size_t bytes) : lines_(bytes / sizeof(Line) + 1), bytes_(bytes) {}
  std::byte* data() { return lines_.data()->bytes; }
  std::span<std::byte> span() { return {data(), bytes_}; }

 private:
  std::vector<Line> lines_;
  size_t bytes_;
};

class CudaKernelsTest : public testing::Test {
 protected:
  std::unique_ptr<CudaKernels> Load() {
    auto loaded = CudaKernels::Load(fake_.driver(), 3);
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    return loaded.ok() ? *std::move(loaded) : nullptr;
  }

  template <typename T>
  stats::Statistics Reduced(const CudaKernels& kernels, DType dtype, const T* data, int64_t elements) {
    const std::vector<int64_t> pieces = CudaKernels::PiecesOf(elements);
    // Apart from everything else, so that a sanitizer sees what is written beside it.
    std::vector<std::byte> rows(pieces.size() * kRowStride);
    EXPECT_TRUE(kernels.Launch(dtype, data, elements, rows.data(), this).ok());
    EXPECT_EQ(fake_.stream, this);
    return CombineRows(rows.data(), pieces, dtype, 1);
  }

  FakeDriver fake_;
};

stats::Statistics HostsOf(const void* data, DType dtype, int64_t elements) {
  const int64_t stride = 1;
  return stats::ComputeStatistics({.data = data, .dtype = dtype, .sizes = {&elements, 1}, .strides = {&stride, 1}});
}

TEST_F(CudaKernelsTest, LoadsThePtxForTheDeviceThatWasAskedFor) {
  ASSERT_NE(Load(), nullptr);
  EXPECT_EQ(fake_.device, 13);
  EXPECT_EQ(fake_.contexts, 0);
  if (!CudaKernels::Built()) GTEST_SKIP() << "this build was made without a clang that compiles for CUDA";
  for (const auto& [name, kernel] : Kernels()) {
    EXPECT_NE(fake_.image.find(".visible .entry " + name + "("), std::string::npos) << name;
  }
}

TEST_F(CudaKernelsTest, WhatTheDriverRefusesIsSaid) {
  for (const std::string call : {"cuInit", "cuDeviceGet", "cuDevicePrimaryCtxRetain", "cuCtxPushCurrent",
                                 "cuModuleLoadData", "msprobe_bfloat16"}) {
    fake_.failing = call;
    const auto loaded = CudaKernels::Load(fake_.driver(), 0);
    ASSERT_FALSE(loaded.ok()) << call;
    EXPECT_EQ(loaded.status().message(), call + ": CUDA_ERROR_LAUNCH_FAILED (719)");
    EXPECT_EQ(fake_.contexts, 0);
  }
  fake_.failing.clear();
  const auto kernels = Load();
  fake_.failing = "cuLaunchKernel";
  const float value = 1;
  std::byte row[kRowStride];
  EXPECT_EQ(kernels->Launch(DType::kFloat32, &value, 1, row, nullptr).message(),
            "cuLaunchKernel: CUDA_ERROR_LAUNCH_FAILED (719)");
  EXPECT_EQ(fake_.contexts, 0);
}

TEST(CudaPiecesTest, HaveEachElementOnceAndNotMoreThanARowCanCount) {
  for (const int64_t elements : {int64_t{1}, int64_t{16384}, int64_t{16385}, int64_t{512} * 16384,
                                 int64_t{512} * 16384 + 1, int64_t{16} << 20, (int64_t{1} << 32) + 5}) {
    const std::vector<int64_t> pieces = CudaKernels::PiecesOf(elements);
    EXPECT_EQ(std::accumulate(pieces.begin(), pieces.end(), int64_t{0}), elements);
    for (const int64_t piece : pieces) {
      EXPECT_GE(piece, 1);
      EXPECT_LE(piece, int64_t{1} << 20);
    }
    if (elements <= int64_t{1} << 29) {
      EXPECT_LE(pieces.size(), 512U) << elements;
    }
  }
}

TEST_F(CudaKernelsTest, TheTrialPasses) {
  const auto kernels = Load();
  const CudaTrial trial;
  ASSERT_LE(trial.bytes(), size_t{1} << 20) << "a slab is no larger";
  Memory memory(trial.bytes());
  trial.Fill(memory.span());
  ASSERT_TRUE(trial.Launch(*kernels, memory.data(), nullptr).ok());
  EXPECT_EQ(trial.Judge(memory.span()), absl::OkStatus());

  // The elements are as they were.
  Memory again(trial.bytes());
  trial.Fill(again.span());
  ASSERT_TRUE(trial.Launch(*kernels, again.data(), nullptr).ok());
  EXPECT_TRUE(std::ranges::equal(memory.span(), again.span())) << "equal input gave other bits";
}

TEST_F(CudaKernelsTest, ATrialThatWasNotRunOrComputedSomethingElseFails) {
  const auto kernels = Load();
  const CudaTrial trial;
  Memory memory(trial.bytes());
  trial.Fill(memory.span());
  EXPECT_FALSE(trial.Judge(memory.span()).ok());

  // Each field of the first row, which is of finite floats, a little off.
  ASSERT_TRUE(trial.Launch(*kernels, memory.data(), nullptr).ok());
  ASSERT_TRUE(trial.Judge(memory.span()).ok());
  const size_t rows = [&] {
    Memory untouched(trial.bytes());
    trial.Fill(untouched.span());
    return std::ranges::mismatch(memory.span(), untouched.span()).in1 - memory.span().begin();
  }();
  const size_t row = rows / kRowStride * kRowStride;
  for (const auto& [offset, more] : {std::pair{offsetof(DeviceRow, max), 1.0f},
                                     {offsetof(DeviceRow, min), -1.0f},
                                     {offsetof(DeviceRow, scale), 64.0f},
                                     {offsetof(DeviceRow, sum), 1000.0f},
                                     {offsetof(DeviceRow, variance), 0.1f},
                                     {offsetof(DeviceRow, nan_count), 1.0f},
                                     {offsetof(DeviceRow, negative_inf_count), 1.0f},
                                     {offsetof(DeviceRow, zero_count), 1.0f}}) {
    Memory wrong(trial.bytes());
    std::ranges::copy(memory.span(), wrong.data());
    float field = 0;
    std::memcpy(&field, wrong.data() + row + offset, sizeof(field));
    field += more;
    std::memcpy(wrong.data() + row + offset, &field, sizeof(field));
    EXPECT_FALSE(trial.Judge(wrong.span()).ok()) << "a field at " << offset;
  }
}

TEST_F(CudaKernelsTest, AnyAddressAndAnyLength) {
  const auto kernels = Load();
  std::mt19937 random(2);
  std::vector<std::byte> bytes(4096);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  for (const int64_t elements : {1, 2, 7, 15, 16, 17, 31, 33, 255, 256, 257, 1023}) {
    for (size_t begin : {0, 1, 8, 15}) {
      // To the end of its memory.
      const std::vector<std::byte> alone(bytes.begin(), bytes.begin() + static_cast<int64_t>(begin) + elements);
      const stats::Statistics found = Reduced(*kernels, DType::kInt8, alone.data() + begin, elements);
      const stats::Statistics expected = HostsOf(alone.data() + begin, DType::kInt8, elements);
      ASSERT_EQ(found.integer_max, expected.integer_max) << elements << " from " << begin;
      ASSERT_EQ(found.integer_min, expected.integer_min) << elements << " from " << begin;
      ASSERT_EQ(found.zero_count, expected.zero_count) << elements << " from " << begin;
      ASSERT_NEAR(found.norm, expected.norm, 1e-6 * expected.norm) << elements << " from " << begin;
    }
  }
}

TEST_F(CudaKernelsTest, AMeanFarFromZeroCostsTheVarianceNoDigits) {
  const auto kernels = Load();
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 4);
  std::vector<float> values(50'000);
  for (float& value : values) value = 1e7f + normal(random);
  const stats::Statistics found = Reduced(*kernels, DType::kFloat32, values.data(), 50'000);
  const stats::Statistics expected = HostsOf(values.data(), DType::kFloat32, 50'000);
  EXPECT_NEAR(found.variance, expected.variance, 1e-5 * expected.variance);
  EXPECT_NEAR(found.mean, expected.mean, 1e-6 * expected.mean);
}

TEST_F(CudaKernelsTest, NothingFiniteAndNothingButSmall) {
  const auto kernels = Load();
  const std::vector<float> nans(20'000, std::nanf(""));
  const stats::Statistics none = Reduced(*kernels, DType::kFloat32, nans.data(), 20'000);
  EXPECT_EQ(none.nan_count, 20'000U);
  EXPECT_FALSE(none.has_finite);
  EXPECT_TRUE(std::isnan(none.max) && std::isnan(none.mean) && std::isnan(none.norm));

  std::vector<float> small(20'000, 1e-40f);  // subnormal
  small[1] = -3e38f;                         // the squares of the rest vanish beside it
  const stats::Statistics found = Reduced(*kernels, DType::kFloat32, small.data(), 20'000);
  EXPECT_EQ(found.min, -3e38f);
  EXPECT_EQ(found.max, 1e-40f);
  EXPECT_NEAR(found.norm, 3e38, 1e-6 * 3e38);
  EXPECT_EQ(found.zero_count, 0U);
}

}  // namespace
}  // namespace msprobe::capture
