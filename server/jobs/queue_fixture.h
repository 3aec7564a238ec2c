#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "server/format/cat.h"
#include "server/jobs/job_queue.h"
#include "server/store/store_fixture.h"

namespace msprobe::server {

// For tests: a queue over a real store with the run "r", and a clock that stands still until it is told.
class QueueTest : public StoreTest {
 protected:
  void SetUp() override {
    StoreTest::SetUp();
    ASSERT_TRUE(store_->catalogue().PlaceRun("r", {}).ok());
    OpenQueue();
  }
  void Restart() {
    queue_.reset();
    Reopen();
    OpenQueue();
  }
  void OpenQueue() {
    options_.clock = [this] { return now_; };
    queue_ = std::make_unique<JobQueue>(store_.get(), &metrics_, options_);
    ASSERT_TRUE(queue_->Load().ok());
  }
  void Pass(absl::Duration time) { now_ += time; }
  static bool Never() { return false; }

  v1::CreateJobRequest CreateOf() {
    v1::CreateJobRequest request;
    request.set_run("r");
    request.set_kind("test");
    request.set_options("the options");
    request.set_token(std::string(16, ++token_));
    return request;
  }
  static v1::AddItemsRequest ItemsFor(uint32_t job, uint64_t first, uint64_t count) {
    v1::AddItemsRequest request;
    request.set_job(job);
    request.set_first(first);
    for (uint64_t i = first; i < first + count; ++i) {
      v1::JobItem& item = *request.add_items();
      item.set_payload(Cat("payload ", i));
      item.set_name(Cat("item ", i));
    }
    return request;
  }
  uint32_t MakeJob(uint64_t items, uint32_t item_timeout_ms = 0) {
    v1::CreateJobRequest request = CreateOf();
    request.mutable_limits()->set_item_timeout_ms(item_timeout_ms);
    auto job = queue_->Create(request, {});
    EXPECT_TRUE(job.ok()) << job.status();
    v1::AddItemsRequest added = ItemsFor(job->job(), 0, items);
    added.set_seal(true);
    EXPECT_TRUE(queue_->AddItems(added, {}).ok());
    return job->job();
  }
  static v1::LeaseRequest LeaseOf(uint32_t items) {
    v1::LeaseRequest request;
    request.set_worker("w");
    request.add_kinds("test");
    request.set_max_items(items);
    return request;
  }
  v1::LeaseResponse TakeLease(uint32_t items) {
    auto lease = queue_->TakeLease(LeaseOf(items), {}, Never);
    EXPECT_TRUE(lease.ok()) << lease.status();
    return lease.ok() ? *lease : v1::LeaseResponse();
  }
  static std::vector<uint64_t> ItemsOf(const v1::LeaseResponse& lease) {
    std::vector<uint64_t> items;
    for (const auto& item : lease.items()) items.push_back(item.item());
    return items;
  }
  static v1::FinishRequest FinishOf(const v1::LeaseResponse& lease, const std::vector<uint64_t>& items,
                                    v1::Outcome outcome = v1::OUTCOME_DONE) {
    v1::FinishRequest request;
    request.set_lease(lease.lease());
    request.set_job(lease.job());
    request.set_worker("w");
    for (uint64_t item : items) {
      v1::FinishRequest::Result& result = *request.add_results();
      result.set_item(item);
      result.set_outcome(outcome);
      result.set_result(Cat("result of ", item));
    }
    return request;
  }
  v1::FinishResponse Finish(v1::LeaseResponse lease, const std::vector<uint64_t>& items,
                            v1::Outcome outcome = v1::OUTCOME_DONE) {
    if (lease.job() == 0) lease.set_job(1);  // of an empty answer
    auto response = queue_->Finish(FinishOf(lease, items, outcome));
    EXPECT_TRUE(response.ok()) << response.status();
    return response.ok() ? *response : v1::FinishResponse();
  }
  v1::ReturnResponse Return(const v1::LeaseResponse& lease, const std::map<uint64_t, std::string>& crashes = {}) {
    v1::ReturnRequest request;
    request.set_lease(lease.lease());
    request.set_job(lease.job());
    request.set_worker("w");
    for (const auto& [item, message] : crashes) {
      v1::ReturnRequest::Crash& crash = *request.add_crashes();
      crash.set_item(item);
      crash.set_message(message);
    }
    auto response = queue_->Return(request);
    EXPECT_TRUE(response.ok()) << response.status();
    return response.ok() ? *response : v1::ReturnResponse();
  }
  // Leases that are gone.
  std::vector<uint64_t> Beat(const v1::LeaseResponse& lease) {
    v1::HeartbeatRequest request;
    request.add_leases(lease.lease());
    auto response = queue_->Heartbeat(request);
    EXPECT_TRUE(response.ok()) << response.status();
    return {response->gone().begin(), response->gone().end()};
  }
  v1::Job Progress(uint32_t job) {
    v1::ListJobsRequest request;
    request.set_job(job);
    auto response = queue_->List(request);
    EXPECT_TRUE(response.ok()) << response.status();
    return response.ok() ? response->jobs(0) : v1::Job();
  }
  std::vector<v1::ItemResult> ResultsOf(uint32_t job, uint64_t after = 0) {
    v1::ReadResultsRequest request;
    request.set_job(job);
    request.set_after(after);
    std::vector<v1::ItemResult> results;
    absl::Status status = queue_->ReadResults(request, Never, [&](const v1::ItemResult& result) {
      results.push_back(result);
      return true;
    });
    EXPECT_TRUE(status.ok()) << status;
    return results;
  }
  size_t JobKeys() {
    size_t keys = 0;
    for (auto space = static_cast<int>(MetaSpace::kJob); space <= static_cast<int>(MetaSpace::kJobResultOf); ++space) {
      keys += Count(Family::kMeta, MetaPrefix(static_cast<MetaSpace>(space)));
    }
    return keys;
  }

  absl::Time now_ = absl::FromUnixSeconds(1000);
  char token_ = 0;
  JobQueueOptions options_;
  Metrics metrics_;
  std::unique_ptr<JobQueue> queue_;
};

}  // namespace msprobe::server
