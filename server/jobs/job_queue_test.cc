#include "server/jobs/job_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <thread>

#include "server/jobs/queue_fixture.h"

namespace msprobe::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using JobQueueTest = QueueTest;

TEST_F(JobQueueTest, AnItemGoesFromAJobToAWorkerAndComesBackAsAResult) {
  const uint32_t job = MakeJob(3);
  v1::LeaseResponse lease = TakeLease(2);
  EXPECT_EQ(lease.run(), "r");
  EXPECT_EQ(lease.kind(), "test");
  EXPECT_EQ(lease.options(), "the options");
  EXPECT_THAT(ItemsOf(lease), ElementsAre(0, 1));
  EXPECT_EQ(lease.items(1).payload(), "payload 1");
  EXPECT_EQ(lease.items(1).attempt(), 1u);
  v1::Job progress = Progress(job);
  EXPECT_EQ(progress.waiting(), 1u);
  EXPECT_EQ(progress.leased(), 2u);

  EXPECT_THAT(Finish(lease, {1}).refused(), IsEmpty());
  EXPECT_THAT(Finish(lease, {0}, v1::OUTCOME_FAILED).refused(), IsEmpty());
  EXPECT_THAT(Finish(TakeLease(5), {2}).refused(), IsEmpty());
  progress = Progress(job);
  EXPECT_EQ(progress.state(), v1::Job::FINISHED);
  EXPECT_EQ(progress.done(), 2u);
  EXPECT_EQ(progress.failed(), 1u);
  EXPECT_GT(progress.ended_unix_us(), 0);

  const std::vector<v1::ItemResult> results = ResultsOf(job);
  ASSERT_EQ(results.size(), 3u);
  EXPECT_EQ(results[0].item(), 1u) << "in the order in which they came";
  EXPECT_EQ(results[0].name(), "item 1");
  EXPECT_EQ(results[0].result(), "result of 1");
  EXPECT_EQ(results[0].worker(), "w");
  EXPECT_EQ(results[1].outcome(), v1::OUTCOME_FAILED);
  EXPECT_EQ(ResultsOf(job, 2).size(), 1u);
  EXPECT_EQ(TakeLease(1).lease(), 0u);
}

TEST_F(JobQueueTest, ARestartedServerKnowsAll) {
  const uint32_t job = MakeJob(6);
  const v1::LeaseResponse one = TakeLease(2), other = TakeLease(2);
  Finish(one, {0});
  Return(other, {{2, "killed"}});
  Restart();
  const v1::Job progress = Progress(job);
  EXPECT_EQ(progress.items(), 6u);
  EXPECT_EQ(progress.waiting(), 4u);
  EXPECT_EQ(progress.leased(), 1u);
  EXPECT_EQ(progress.done(), 1u);
  EXPECT_EQ(progress.attempts_lost(), 1u);
  EXPECT_THAT(Finish(one, {1}).refused(), IsEmpty()) << "the lease outlives the server";
  const v1::LeaseResponse again = TakeLease(9);
  EXPECT_THAT(ItemsOf(again), ElementsAre(2)) << "it ended a worker: alone";
  EXPECT_EQ(again.items(0).attempt(), 2u);
  EXPECT_THAT(ItemsOf(TakeLease(9)), ElementsAre(3, 4, 5));
}

TEST_F(JobQueueTest, AFinishThatIsRepeatedCountsOnce) {
  const uint32_t job = MakeJob(2);
  const v1::LeaseResponse lease = TakeLease(2);
  Finish(lease, {0});
  EXPECT_THAT(Finish(lease, {0}, v1::OUTCOME_FAILED).refused(), IsEmpty());
  EXPECT_THAT(Finish(lease, {0, 1}).refused(), IsEmpty()) << "one is new";
  EXPECT_THAT(Finish(lease, {0, 1}).refused(), IsEmpty()) << "the lease has ended with its last item";
  Restart();
  EXPECT_THAT(Finish(lease, {0, 1}).refused(), IsEmpty());
  EXPECT_EQ(ResultsOf(job).size(), 2u);
  EXPECT_EQ(Progress(job).done(), 2u);
}

TEST_F(JobQueueTest, AStaleFinishIsRefusedWithTheReason) {
  MakeJob(2);
  const v1::LeaseResponse late = TakeLease(2);
  Pass(absl::Seconds(31));
  v1::FinishResponse refused = Finish(late, {0});
  ASSERT_EQ(refused.refused_size(), 1);
  EXPECT_EQ(refused.refused(0).why(), "the lease has expired or was ended");
  const v1::LeaseResponse next = TakeLease(2);
  EXPECT_THAT(ItemsOf(next), ElementsAre(0)) << "a suspect: alone";
  Finish(next, {0});
  EXPECT_EQ(Finish(late, {0}).refused(0).why(), "another worker has given its result");
  EXPECT_EQ(Finish(TakeLease(1), {0}).refused(0).why(), "another worker has given its result");
  v1::LeaseResponse stranger = late;
  stranger.set_job(77);
  EXPECT_EQ(queue_->Finish(FinishOf(stranger, {0})).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(metrics_.Value(Metric::kJobResultsRefused), 3);
  EXPECT_EQ(metrics_.Value(Metric::kJobLeasesExpired), 1);
}

TEST_F(JobQueueTest, HeartbeatsKeepALeaseButNotForEver) {
  MakeJob(1, /*item_timeout_ms=*/60'000);
  const v1::LeaseResponse lease = TakeLease(1);
  for (int i = 0; i < 4; ++i) {
    Pass(absl::Seconds(20));
    EXPECT_THAT(Beat(lease), IsEmpty()) << i;
  }
  Pass(absl::Seconds(11));
  EXPECT_THAT(Beat(lease), ElementsAre(lease.lease())) << "an item may run for a minute, and a lease has 30 s more";
  EXPECT_EQ(TakeLease(1).items(0).attempt(), 2u);
}

TEST_F(JobQueueTest, AnItemWhoseWorkersDieIsCrashedAfterThree) {
  const uint32_t job = MakeJob(2);
  for (int attempt = 1; attempt <= 3; ++attempt) {
    const v1::LeaseResponse lease = TakeLease(2);
    ASSERT_EQ(lease.items(0).item(), 0u);
    const v1::ReturnResponse returned = Return(lease, {{0, "killed by signal 11"}});
    EXPECT_EQ(returned.crashed(), attempt == 3 ? 1u : 0u);
    Restart();
  }
  ASSERT_EQ(ResultsOf(job).size(), 1u);
  const v1::ItemResult result = ResultsOf(job)[0];
  EXPECT_EQ(result.outcome(), v1::OUTCOME_CRASHED);
  EXPECT_EQ(result.message(), "killed by signal 11");
  EXPECT_EQ(result.attempts(), 3u);
  Finish(TakeLease(2), {1});
  EXPECT_EQ(Progress(job).state(), v1::Job::FINISHED) << "it cost the run nothing else";
  EXPECT_EQ(Progress(job).crashed(), 1u);
}

TEST_F(JobQueueTest, WhoeverIsLeasedBesideAKillerLosesNoAttempt) {
  const uint32_t job = MakeJob(5);
  TakeLease(5);
  Pass(absl::Seconds(31));  // the machine died, and nobody says with which item
  for (int i = 0; i < 20 && Progress(job).state() != v1::Job::FINISHED; ++i) {
    const v1::LeaseResponse lease = TakeLease(5);
    ASSERT_EQ(lease.items_size(), 1) << "suspects are leased alone";
    if (lease.items(0).item() == 3) {
      Pass(absl::Seconds(31));
    } else {
      EXPECT_EQ(lease.items(0).attempt(), 1u);
      Finish(lease, {lease.items(0).item()});
    }
  }
  EXPECT_EQ(Progress(job).done(), 4u);
  EXPECT_EQ(Progress(job).crashed(), 1u);
  EXPECT_EQ(Progress(job).attempts_lost(), 3u);
  for (const v1::ItemResult& result : ResultsOf(job)) {
    EXPECT_EQ(result.message(), result.item() == 3 ? "worker w was not heard of for 30s" : "");
  }
}

TEST_F(JobQueueTest, WhatIsGivenBackUnbegunWaitsAsBefore) {
  const uint32_t job = MakeJob(4);
  const v1::LeaseResponse lease = TakeLease(3);
  EXPECT_EQ(Return(lease).returned(), 3u);
  EXPECT_EQ(Return(lease).returned(), 0u) << "said again";
  EXPECT_EQ(Progress(job).attempts_lost(), 0u);
  const v1::LeaseResponse again = TakeLease(9);
  EXPECT_THAT(ItemsOf(again), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(again.items(0).attempt(), 1u);
}

TEST_F(JobQueueTest, ACancelledJobGivesNothingAndTakesNothing) {
  const uint32_t job = MakeJob(4);
  const v1::LeaseResponse lease = TakeLease(2);
  Finish(lease, {0});
  ASSERT_TRUE(queue_->Cancel(job, {}).ok());
  EXPECT_THAT(Beat(lease), ElementsAre(lease.lease()));
  EXPECT_THAT(Finish(lease, {1}).refused(0).why(), HasSubstr("is cancelled"));
  EXPECT_EQ(TakeLease(1).lease(), 0u);
  Restart();
  EXPECT_EQ(TakeLease(1).lease(), 0u);
  EXPECT_EQ(Progress(job).state(), v1::Job::CANCELLED);
  EXPECT_EQ(ResultsOf(job).size(), 1u) << "results stay";
  EXPECT_EQ(queue_->AddItems(ItemsFor(job, 4, 1), {}).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(JobQueueTest, DeletingAJobOrItsRunLeavesNoKey) {
  const size_t before = JobKeys();
  const uint32_t job = MakeJob(3);
  EXPECT_EQ(queue_->Delete(job, {}).code(), absl::StatusCode::kFailedPrecondition);
  Finish(TakeLease(2), {0});
  ASSERT_TRUE(queue_->Cancel(job, {}).ok());
  ASSERT_TRUE(queue_->Delete(job, {}).ok());
  EXPECT_EQ(JobKeys(), before);
  EXPECT_EQ(queue_->Delete(job, {}).code(), absl::StatusCode::kNotFound);

  const uint32_t second = MakeJob(3);
  EXPECT_GT(second, job) << "numbers are never given again";
  const v1::LeaseResponse lease = TakeLease(2);
  Return(TakeLease(1));
  Finish(lease, {0});
  ASSERT_TRUE(store_->maintenance().DeleteRun("r").ok());
  EXPECT_EQ(JobKeys(), before);
  EXPECT_EQ(queue_->Finish(FinishOf(lease, {1})).status().code(), absl::StatusCode::kNotFound)
      << "a worker that comes late brings nothing of the run back";
  EXPECT_EQ(JobKeys(), before);
  EXPECT_EQ(TakeLease(1).lease(), 0u);
  Pass(absl::Seconds(2));
  queue_->Tick();
  EXPECT_THAT(queue_->List({})->jobs(), IsEmpty());
}

TEST_F(JobQueueTest, CallsThatAreRepeatedMakeNothingTwice) {
  v1::CreateJobRequest request = CreateOf();
  const uint32_t job = queue_->Create(request, {})->job();
  EXPECT_EQ(queue_->Create(request, {})->job(), job);
  EXPECT_EQ(queue_->AddItems(ItemsFor(job, 0, 3), {})->items(), 3u);
  EXPECT_EQ(queue_->AddItems(ItemsFor(job, 0, 3), {})->items(), 3u);
  EXPECT_EQ(queue_->AddItems(ItemsFor(job, 2, 3), {})->items(), 5u) << "one of them is known";
  EXPECT_THAT(std::string(queue_->AddItems(ItemsFor(job, 7, 1), {}).status().message()),
              HasSubstr("first is 7, but job 1 has 5 items"));
  v1::AddItemsRequest seal = ItemsFor(job, 5, 0);
  seal.set_seal(true);
  EXPECT_EQ(queue_->AddItems(seal, {})->state(), v1::Job::SEALED);
  EXPECT_TRUE(queue_->AddItems(seal, {}).ok());
  EXPECT_EQ(queue_->AddItems(ItemsFor(job, 5, 1), {}).status().code(), absl::StatusCode::kFailedPrecondition);
  Restart();
  EXPECT_EQ(queue_->Create(request, {})->job(), job);
}

TEST_F(JobQueueTest, AJobWithoutItemsIsFinishedWhenItIsSealed) {
  EXPECT_EQ(Progress(MakeJob(0)).state(), v1::Job::FINISHED);
}

TEST_F(JobQueueTest, JobsTakeTurnsAndWorkersGetTheirKindsAlone) {
  const uint32_t one = MakeJob(10), other = MakeJob(10);
  EXPECT_EQ(TakeLease(1).job(), one);
  EXPECT_EQ(TakeLease(1).job(), other);
  EXPECT_EQ(TakeLease(1).job(), one) << "a long job does not keep a short one waiting";
  v1::LeaseRequest request = LeaseOf(1);
  request.set_job(other);
  EXPECT_EQ(queue_->TakeLease(request, {}, Never)->job(), other);
  request.set_job(0);
  request.set_kinds(0, "something-else");
  EXPECT_EQ(queue_->TakeLease(request, {}, Never)->lease(), 0u);
}

TEST_F(JobQueueTest, ARunOfSomebodyElseIsLeftAlone) {
  const Caller owner{.identity = "token trainers", .peer = "token trainers", .is_admin = false};
  const Caller other{.identity = "uid 1000", .peer = "uid 1000", .is_admin = false};
  const Caller worker{.identity = "token workers", .peer = "token workers", .is_admin = false};
  v1::CreateJobRequest request = CreateOf();
  request.set_run("owned");
  ASSERT_TRUE(store_->catalogue().PlaceRun("owned", {}, owner.identity).ok());
  EXPECT_EQ(queue_->Create(request, other).status().code(), absl::StatusCode::kPermissionDenied);
  const uint32_t job = queue_->Create(request, owner)->job();
  EXPECT_EQ(queue_->AddItems(ItemsFor(job, 0, 3), other).status().code(), absl::StatusCode::kPermissionDenied);
  ASSERT_TRUE(queue_->AddItems(ItemsFor(job, 0, 3), owner).ok());
  EXPECT_EQ(queue_->Cancel(job, other).status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(queue_->Delete(job, other).code(), absl::StatusCode::kPermissionDenied);
  Restart();
  EXPECT_EQ(queue_->TakeLease(LeaseOf(1), other, Never)->lease(), 0u);
  EXPECT_NE(queue_->TakeLease(LeaseOf(1), worker, Never)->lease(), 0u) << "its role has been checked";
  EXPECT_NE(queue_->TakeLease(LeaseOf(1), owner, Never)->lease(), 0u);
}

TEST_F(JobQueueTest, AGreedyWorkerMeetsALimitAndTheOthersDoNot) {
  options_.max_leased_of_a_peer = 4;
  options_.max_leased = 6;
  Restart();
  MakeJob(100);
  const Caller greedy{.identity = {}, .peer = "ipv4:10.0.0.1"}, other{.identity = {}, .peer = "ipv4:10.0.0.2"};
  EXPECT_EQ(queue_->TakeLease(LeaseOf(100), greedy, Never)->items_size(), 4);
  EXPECT_THAT(std::string(queue_->TakeLease(LeaseOf(1), greedy, Never).status().message()),
              HasSubstr("4 items are leased to ipv4:10.0.0.1, which is the limit"));
  const auto second = queue_->TakeLease(LeaseOf(100), other, Never);
  EXPECT_EQ(second->items_size(), 2) << "memory is bounded over all of them";
  EXPECT_EQ(queue_->TakeLease(LeaseOf(1), other, Never).status().code(), absl::StatusCode::kResourceExhausted);
  Return(*second);
  EXPECT_EQ(queue_->TakeLease(LeaseOf(100), other, Never)->items_size(), 2) << "what was returned may go out again";
}

TEST_F(JobQueueTest, TooManyJobsAreRefused) {
  options_.max_jobs = 1;
  Restart();
  MakeJob(0);
  EXPECT_EQ(queue_->Create(CreateOf(), {}).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(JobQueueTest, ALeaseHasTwoMebibytesOfPayloadsAtMost) {
  v1::CreateJobRequest request = CreateOf();
  const uint32_t job = queue_->Create(request, {})->job();
  v1::AddItemsRequest items = ItemsFor(job, 0, 40);
  for (v1::JobItem& item : *items.mutable_items()) item.set_payload(std::string(64 << 10, 'x'));
  ASSERT_TRUE(queue_->AddItems(items, {}).ok());
  EXPECT_EQ(TakeLease(40).items_size(), 31);
  EXPECT_EQ(TakeLease(40).items_size(), 9);
}

TEST_F(JobQueueTest, WhoWaitsForWorkOrResultsGetsThemAtOnce) {
  const uint32_t job = queue_->Create(CreateOf(), {})->job();
  v1::LeaseRequest request = LeaseOf(1);
  request.set_wait_ms(30'000);
  absl::StatusOr<v1::LeaseResponse> lease;
  std::vector<v1::ItemResult> results;
  std::thread worker([&] { lease = queue_->TakeLease(request, {}, Never); });
  std::thread reader([&] {
    v1::ReadResultsRequest follow;
    follow.set_job(job);
    follow.set_follow(true);
    EXPECT_TRUE(queue_
                    ->ReadResults(follow, Never,
                                  [&](const v1::ItemResult& result) {
                                    results.push_back(result);
                                    return true;
                                  })
                    .ok());
  });
  v1::AddItemsRequest items = ItemsFor(job, 0, 1);
  items.set_seal(true);
  ASSERT_TRUE(queue_->AddItems(items, {}).ok());
  worker.join();
  ASSERT_TRUE(lease.ok());
  Finish(*lease, {0});
  reader.join();
  EXPECT_EQ(results.size(), 1u) << "following ends with the job";
}

TEST_F(JobQueueTest, StoppingEndsWhoWaits) {
  const uint32_t job = queue_->Create(CreateOf(), {})->job();
  v1::LeaseRequest request = LeaseOf(1);
  request.set_wait_ms(30'000);
  std::thread worker([&] { EXPECT_EQ(queue_->TakeLease(request, {}, Never)->lease(), 0u); });
  queue_->Stop();
  worker.join();
  v1::ReadResultsRequest follow;
  follow.set_job(job);
  follow.set_follow(true);
  EXPECT_EQ(queue_->ReadResults(follow, Never, [](const v1::ItemResult&) { return true; }).code(),
            absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace msprobe::server
