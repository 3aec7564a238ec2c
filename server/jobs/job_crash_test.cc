// The queue over a disk that loses what was not synced.

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <thread>

#include "server/format/cat.h"
#include "server/jobs/job_queue.h"
#include "server/store/disk/crash_disk.h"
#include "server/store/disk/scratch_directory.h"

namespace msprobe::server {
namespace {

constexpr uint64_t kItems = 400;

class JobCrashTest : public testing::Test {
 protected:
  void Start(uint64_t seed) {
    disk_ = std::make_unique<CrashDisk>(directory_ / "data", seed);
    StoreOptions options;
    options.directory = directory_ / "data";
    options.memtable_bytes = 64 << 10;
    options.env = disk_->env();
    auto store = Store::Open(options);
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    queue_ = std::make_unique<JobQueue>(store_.get(), &metrics_, JobQueueOptions{.clock = [this] { return now_; }});
    ASSERT_TRUE(queue_->Load().ok());
  }
  void Stop() {
    queue_.reset();
    store_.reset();
    disk_.reset();
  }

  // Leases and gives results until something is refused. What it was told is durable goes to `told`.
  void Work(uint64_t seed, std::map<uint64_t, std::string>& told, const std::atomic<bool>& crashed) {
    std::mt19937_64 random(seed);
    v1::LeaseRequest request;
    request.set_worker(Cat("w", seed));
    request.add_kinds("test");
    while (!crashed) {
      request.set_max_items(1 + random() % 8);
      auto lease = queue_->TakeLease(request, {}, [] { return false; });
      if (!lease.ok() || lease->lease() == 0) return;
      v1::FinishRequest finish;
      finish.set_lease(lease->lease());
      finish.set_job(lease->job());
      finish.set_worker(request.worker());
      std::map<uint64_t, std::string> given;
      for (const auto& item : lease->items()) {
        if (random() % 10 == 0) continue;  // left to the deadline
        v1::FinishRequest::Result& result = *finish.add_results();
        result.set_item(item.item());
        result.set_outcome(v1::OUTCOME_DONE);
        result.set_result(Cat(seed, ":", random()));
        given[item.item()] = result.result();
      }
      auto finished = queue_->Finish(finish);
      if (!finished.ok() || crashed) return;
      for (const auto& refused : finished->refused()) given.erase(refused.item());
      told.insert(given.begin(), given.end());
    }
  }

  ScratchDirectory directory_;
  absl::Time now_ = absl::FromUnixSeconds(1000);
  Metrics metrics_;
  std::unique_ptr<CrashDisk> disk_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<JobQueue> queue_;
};

TEST_F(JobCrashTest, WhateverThePowerTakesEveryItemGetsOneResult) {
  Start(1);
  ASSERT_TRUE(store_->catalogue().PlaceRun("r", {}).ok());
  v1::CreateJobRequest create;
  create.set_run("r");
  create.set_kind("test");
  create.set_token(std::string(16, 't'));
  create.mutable_limits()->set_attempts(100);
  const uint32_t job = queue_->Create(create, {})->job();
  v1::AddItemsRequest items;
  items.set_job(job);
  items.set_seal(true);
  for (uint64_t i = 0; i < kItems; ++i) items.add_items()->set_payload(Cat(i));
  ASSERT_TRUE(queue_->AddItems(items, {}).ok());

  std::map<uint64_t, std::string> told;  // results that a worker was told are there
  v1::Job progress;
  for (uint64_t round = 2; round < 60; ++round) {
    std::map<uint64_t, std::string> of_thread[2];
    std::atomic<bool> crashed = false;
    std::atomic<int> ended = 0;
    std::thread workers[2];
    for (uint64_t i = 0; i < 2; ++i) {
      workers[i] = std::thread([&, i] {
        Work(2 * round + i, of_thread[i], crashed);
        ++ended;
      });
    }
    // Late rounds let the workers end: of the last items most are leased when the power goes, and none would be done.
    while (round < 40 ? queue_->List({})->jobs(0).done() < round * 8 && queue_->List({})->jobs(0).waiting() > 0
                      : ended < 2) {
      std::this_thread::yield();
    }
    // From here on an answer means nothing.
    crashed = true;
    disk_->Crash();
    for (std::thread& worker : workers) worker.join();
    for (const auto& results : of_thread) {
      for (const auto& [item, result] : results) {
        ASSERT_TRUE(told.emplace(item, result).second) << "item " << item << " was taken twice";
      }
    }
    Stop();
    Start(round);
    now_ += absl::Minutes(1);
    queue_->Tick();
    progress = queue_->List({})->jobs(0);
    ASSERT_EQ(progress.waiting() + progress.leased() + progress.done(), kItems) << "none is lost or doubled";
    if (progress.state() == v1::Job::FINISHED) break;
  }
  EXPECT_EQ(progress.state(), v1::Job::FINISHED);
  std::set<uint64_t> seen;
  v1::ReadResultsRequest read;
  read.set_job(job);
  ASSERT_TRUE(queue_
                  ->ReadResults(
                      read, [] { return false; },
                      [&](const v1::ItemResult& result) {
                        EXPECT_TRUE(seen.insert(result.item()).second) << result.item();
                        if (const auto known = told.find(result.item()); known != told.end()) {
                          EXPECT_EQ(result.result(), known->second) << "as the worker was told";
                        }
                        return true;
                      })
                  .ok());
  EXPECT_EQ(seen.size(), kItems);
  EXPECT_GT(told.size(), kItems / 2);
}

}  // namespace
}  // namespace msprobe::server
