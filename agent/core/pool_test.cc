#include "agent/core/pool.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <thread>

namespace msprobe::core {
namespace {

// Whether the address is between the end of the program's data and its break. Sanitizers have other heaps.
bool OnTheHeap(const void* at) {
  const auto end = reinterpret_cast<uintptr_t>(sbrk(0));
  const auto place = reinterpret_cast<uintptr_t>(at);
  return place < end && end - place <= uintptr_t{1} << 30;
}

struct Hook {
  virtual ~Hook() = default;
};
struct PooledHook : Hook, Pooled {
  char bytes[100] = {};
};

TEST(PoolTest, WhatIsKeptLiesApartFromTheHeap) {
  PooledTextMap<int> map;
  for (int i = 0; i < 1000; ++i) map.emplace("Module.layers." + std::to_string(i) + ".self_attn.forward", i);
  for (const auto& [name, number] : map) {
    EXPECT_FALSE(OnTheHeap(&name));
    EXPECT_FALSE(OnTheHeap(name.data()));
  }
  EXPECT_EQ(map.find(absl::string_view("Module.layers.7.self_attn.forward"))->second, 7);
  EXPECT_FALSE(OnTheHeap(MakePooled<int>(3).get()));
}

TEST(PoolTest, ABlockIsUsedAgain) {
  const void* first;
  {
    const std::unique_ptr<Hook> hook = std::make_unique<PooledHook>();  // deleted as a Hook
    first = hook.get();
    EXPECT_FALSE(OnTheHeap(first));
  }
  EXPECT_EQ(std::make_unique<PooledHook>().get(), first);
}

TEST(PoolTest, WhatOneThreadMadeAnotherMayGiveBack) {
  PooledVector<std::shared_ptr<PooledString>> made;
  std::thread([&] {
    for (int i = 0; i < 1000; ++i) made.push_back(MakePooled<PooledString>(i, 'x'));
  }).join();
  for (size_t i = 0; i < made.size(); ++i) EXPECT_EQ(*made[i], PooledString(i, 'x'));
  made.clear();
}

TEST(PoolTest, AForkedChildMayUseIt) {
  std::atomic<bool> stop = false;
  std::thread other([&] {
    while (!stop) MakePooled<int>(1);
  });
  for (int i = 0; i < 200; ++i) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      alarm(20);  // ends a child that hangs
      _exit(*MakePooled<int>(i % 100) == i % 100 ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  stop = true;
  other.join();
}

}  // namespace
}  // namespace msprobe::core
