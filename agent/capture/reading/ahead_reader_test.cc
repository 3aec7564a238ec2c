#include "agent/capture/reading/ahead_reader.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "agent/capture/reading/leaf_numbers.h"

namespace msprobe::capture {
namespace {

class Owner final : public MemoryOwner {
 public:
  bool expired() const override { return false; }
  std::shared_ptr<const void> Hold() const override { return std::make_shared<int>(0); }
};

// Floats in pages of their own.
class Tensor {
 public:
  explicit Tensor(int64_t count) : count_(count) {
    void* const pages = mmap(nullptr, Bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    data_ = static_cast<float*>(pages);
    for (int64_t i = 0; i < count; ++i) data_[i] = static_cast<float>(i % 1013) - 400.5f;
  }
  ~Tensor() {
    if (!is_free_) Free();
  }
  void Free() {
    munmap(data_, Bytes());
    is_free_ = true;
  }

  float* data() { return data_; }
  RememberedStatistics::Memory memory() const {
    return {
        .id = data_, .bytes = {reinterpret_cast<const std::byte*>(data_), Bytes()}, .is_private = true, .lasts = true};
  }
  stats::TensorView view() const {
    static constexpr int64_t kStride = 1;
    return {.data = data_, .dtype = stats::DType::kFloat32, .sizes = {&count_, 1}, .strides = {&kStride, 1}};
  }

 private:
  size_t Bytes() const { return static_cast<size_t>(count_) * sizeof(float); }

  const int64_t count_;
  float* data_;
  bool is_free_ = false;
};

class AheadReaderTest : public testing::Test {
 protected:
  void SetUp() override {
    watch_ = stats::WriteWatch::Create();
    if (watch_ == nullptr) GTEST_SKIP() << "this kernel has no asynchronous write protection (Linux 6.7), or denies it";
    remembered_ = std::make_unique<RememberedStatistics>(watch_);
    SetRunning(0);
  }
  ~AheadReaderTest() override { std::remove(load_.c_str()); }

  // So many threads of the machine run.
  void SetRunning(int threads) const { std::ofstream(load_) << "0.10 0.20 0.30 " << threads << "/4000 4711\n"; }

  static AheadReader::Tensor Ahead(const Tensor& tensor) {
    return {.ahead = {.memory = tensor.memory(), .owner = std::make_shared<Owner>()},
            .data = tensor.view().data,
            .dtype = tensor.view().dtype,
            .sizes = {tensor.view().sizes.begin(), tensor.view().sizes.end()},
            .strides = {1},
            .mode = core::SummaryMode::kMd5,
            .is_wide = false};
  }

  // What a call is told of the tensor; null: it reads the tensor itself.
  std::unique_ptr<core::Leaf> Recall(const Tensor& tensor) {
    auto leaf = std::make_unique<core::Leaf>();
    const bool known = remembered_->Recall(tensor.memory(), tensor.view(), leaf.get()).known;
    return known ? std::move(leaf) : nullptr;
  }

  static void Await(const AheadReader& reader) {
    while (reader.reads()) std::this_thread::yield();
  }

  const std::string load_ = testing::TempDir() + "ahead_load" + std::to_string(getpid());
  std::shared_ptr<const stats::WriteWatch> watch_;
  std::unique_ptr<RememberedStatistics> remembered_;
};

TEST_F(AheadReaderTest, MakesTheNumbersThatACallWouldMake) {
  const Tensor large(5'000'001), small(20'000);
  AheadReader reader(remembered_.get(), load_.c_str());
  reader.Read({Ahead(large), Ahead(small)});
  Await(reader);
  for (const Tensor* tensor : {&large, &small}) {
    core::Leaf read;
    ReadNumbers(tensor->view(), core::SummaryMode::kMd5, false, read);
    const std::unique_ptr<core::Leaf> known = Recall(*tensor);
    ASSERT_NE(known, nullptr);
    EXPECT_TRUE(SameNumbers(*known, read));
    EXPECT_TRUE(known->crc32.has_value());
  }
}

TEST_F(AheadReaderTest, WhatWasWrittenSinceIsReadByTheCall) {
  Tensor first(100'000), last(100'000), between(100'000);
  AheadReader reader(remembered_.get(), load_.c_str());
  reader.Read({Ahead(first), Ahead(last), Ahead(between)});
  Await(reader);
  first.data()[0] = 7;
  last.data()[99'999] = 7;
  EXPECT_EQ(Recall(first), nullptr);
  EXPECT_EQ(Recall(last), nullptr);
  EXPECT_NE(Recall(between), nullptr);
}

TEST_F(AheadReaderTest, NothingIsReadWhileNoCoreIsIdle) {
  SetRunning(1'000'000);
  const Tensor first(100'000), second(100'000);
  AheadReader reader(remembered_.get(), load_.c_str());
  reader.Read({Ahead(first), Ahead(second)});
  EXPECT_EQ(Recall(first), nullptr);
  EXPECT_EQ(Recall(second), nullptr);
  EXPECT_TRUE(reader.reads()) << "it looks for an idle core";
  SetRunning(0);
  Await(reader);
  EXPECT_EQ(Recall(first), nullptr) << "the calls before read it";
}

TEST_F(AheadReaderTest, WhereItIsOvertakenItReadsTheOthersAllTheSame) {
  std::vector<std::unique_ptr<Tensor>> tensors;
  core::PooledDeque<AheadReader::Tensor> ahead;
  for (int i = 0; i < AheadReader::kOvertaken + 3; ++i) {
    tensors.push_back(std::make_unique<Tensor>(100'000));
    ahead.push_back(Ahead(*tensors.back()));
  }
  for (int i = 0; i <= AheadReader::kOvertaken; ++i) EXPECT_EQ(Recall(*tensors[i]), nullptr);
  AheadReader reader(remembered_.get(), load_.c_str());
  reader.Read(std::move(ahead));
  Await(reader);
  for (int i = 0; i < AheadReader::kOvertaken + 3; ++i) {
    EXPECT_EQ(Recall(*tensors[i]) != nullptr, i > AheadReader::kOvertaken) << i;
  }
}

TEST_F(AheadReaderTest, AtTheStepsEndItEndsHoweverBusyTheMachineIs) {
  SetRunning(1'000'000);
  const Tensor tensor(100'000);
  AheadReader reader(remembered_.get(), load_.c_str());
  reader.Read({Ahead(tensor)});
  reader.Forget();
  Await(reader);
  EXPECT_EQ(Recall(tensor), nullptr);
}

TEST_F(AheadReaderTest, MemoryMayGoWhileItIsRead) {
  for (int turn = 0; turn < 20; ++turn) {
    Tensor tensor(4'000'000);
    AheadReader reader(remembered_.get(), load_.c_str());
    reader.Read({Ahead(tensor)});
    for (int i = 0; i < 100 * turn; ++i) std::this_thread::yield();
    tensor.Free();
  }
}

TEST_F(AheadReaderTest, AForkedChildReadsNothing) {
  const Tensor tensor(1'000'000);
  auto reader = std::make_unique<AheadReader>(remembered_.get(), load_.c_str());
  reader->Read({Ahead(tensor)});
  const pid_t child = fork();
  if (child == 0) {
    reader->Read({Ahead(tensor)});
    reader.reset();
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace msprobe::capture
