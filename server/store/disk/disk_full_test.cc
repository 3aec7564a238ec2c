// The disk full at any write.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <thread>

#include "absl/time/clock.h"
#include "server/ingest/scripted/scripted_load.h"
#include "server/ingest/session/sessions.h"
#include "server/store/disk/crash_disk.h"
#include "server/store/disk/scratch_directory.h"

namespace msprobe::server {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

class DiskFullTest : public testing::TestWithParam<uint64_t> {
 protected:
  void Start(uint64_t reserve) {
    disk_ = std::make_unique<CrashDisk>(directory_ / "data", ++seed_);
    StoreOptions options;
    options.directory = directory_ / "data";
    options.memtable_bytes = 64 << 10;   // the full disk meets flushes, too
    options.segment_chunk_bytes = 7000;  // payloads of 3000 bytes go elsewhere than others
    options.segment_bytes = 64 << 10;
    options.reserve_bytes = reserve;
    options.env = disk_->env();
    auto store = Store::Open(options);
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    sessions_ = std::make_unique<Sessions>(store_.get(), &metrics_, nullptr, SessionsOptions());
    ASSERT_TRUE(sessions_->Recover().ok());
  }
  void TearDown() override { Stop(); }
  void Stop() {
    session_.reset();
    sessions_.reset();
    store_.reset();
    disk_.reset();
  }
  absl::Status Open() {
    load_.hello().set_freed_through(durable_);
    auto session = sessions_->OpenSession(load_.hello());
    if (!session.ok()) return session.status();
    session_ = *session;
    const v1::Welcome welcome = session_->welcome();
    owed_ = {welcome.missing_payloads().begin(), welcome.missing_payloads().end()};
    return absl::OkStatus();
  }
  // What the server still lacks of earlier batches, and so many batches more.
  absl::Status Send(uint64_t batches) {
    if (absl::Status status = Upload(); !status.ok()) return status;
    for (uint64_t n = 0; n < batches; ++n) {
      auto verdict = session_->Apply(load_.Batch(session_->received_through() + 1));
      if (!verdict.ok()) return verdict.status();
      owed_.insert(verdict->wanted().begin(), verdict->wanted().end());
      if (absl::Status status = Upload(); !status.ok()) return status;
    }
    return absl::OkStatus();
  }
  absl::Status Upload() {
    for (; !owed_.empty(); owed_.erase(owed_.begin())) {
      const std::string& hash = *owed_.begin();
      auto verdict = session_->AddPayload(ScriptedAgent::Chunk(hash, 0, load_.Content(hash), true));
      if (!verdict.ok()) return verdict.status();
    }
    return absl::OkStatus();
  }
  absl::Status WriteRow(const char* key) {
    ChangeSet changes;
    changes.Put(Family::kRows, key, std::string(100, 'x'));
    return store_->database().Write(changes);
  }
  void NoteDurable() {
    store_->database().AwaitDurable(absl::Seconds(10)).IgnoreError();
    if (session_ != nullptr) durable_ = std::max(durable_, session_->durable_through());
  }
  // As the server's tick: a few times, as resuming may meet RocksDB's own attempt.
  bool TendUntilWritable() {
    for (const absl::Time end = absl::Now() + absl::Seconds(30); absl::Now() < end;) {
      store_->database().Tend();
      if (store_->database().Writable().ok()) return true;
      absl::SleepFor(absl::Milliseconds(20));  // between two looks; a tick of the server is longer
    }
    return false;
  }

  ScratchDirectory directory_;
  Metrics metrics_;
  uint64_t seed_ = 0;
  ScriptedLoad load_{"job", 0, 5, 5, {.different = 100'000}};
  uint64_t durable_ = 0;
  std::unique_ptr<CrashDisk> disk_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<Sessions> sessions_;
  std::shared_ptr<Session> session_;
  std::set<std::string> owed_;  // hashes of payloads that it wants
};

// The parameter: bytes that still fit. Different ones end in the log, in a table, in a segment, in the manifest.
TEST_P(DiskFullTest, RefusesThenReadsThenGoesOnAndLosesNothing) {
  Start(0);
  ASSERT_TRUE(Open().ok());
  ASSERT_TRUE(Send(20).ok());
  NoteDurable();
  ASSERT_EQ(durable_, 20u);

  disk_->SetRoom(GetParam());
  absl::Status status = Send(400);
  for (int again = 0; again < 20 && status.ok(); ++again) {  // a flush that fails is noticed by a later write
    NoteDurable();
    status = Send(50);
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  NoteDurable();
  EXPECT_THAT(load_.Check(*store_, durable_, {}), IsEmpty()) << "reading goes on";
  EXPECT_EQ(Open().code(), absl::StatusCode::kResourceExhausted) << "an agent is told before it sends";

  disk_->SetRoom(std::nullopt);
  ASSERT_TRUE(TendUntilWritable()) << store_->database().Writable();
  ASSERT_TRUE(store_->database().broken().ok());
  ASSERT_TRUE(Open().ok());
  EXPECT_TRUE((status = Send(40)).ok()) << status;
  NoteDurable();
  EXPECT_EQ(durable_, session_->received_through()) << "everything received is acknowledged in the end";
  EXPECT_THAT(load_.Check(*store_, durable_, {}), IsEmpty());

  disk_->Crash();
  Stop();
  Start(0);
  EXPECT_THAT(load_.Check(*store_, durable_, {}), IsEmpty()) << "after a crash";
}

INSTANTIATE_TEST_SUITE_P(AnyWrite, DiskFullTest, testing::Values(0, 3000, 100'000, 400'000));

TEST_F(DiskFullTest, KeepsItsReserveFree) {
  Start(1 << 20);
  ASSERT_TRUE(Open().ok());
  ASSERT_TRUE(Send(5).ok());
  NoteDurable();
  disk_->SetRoom((1 << 20) - 1);
  store_->database().Tend();
  EXPECT_THAT(std::string(Send(1).message()), HasSubstr("the disk of the data directory is full: 0 MiB are free, 1"));
  EXPECT_THAT(load_.Check(*store_, 5, {}), IsEmpty());
  disk_->SetRoom(std::nullopt);
  store_->database().Tend();
  EXPECT_TRUE(Send(5).ok()) << "no connection was needed for it to go on";
}

// An append that fails waits for the sync under way, and only then does RocksDB hear of it. To resume before that would
// be to resume from nothing, and the next sync would be one of a log that has failed.
TEST_F(DiskFullTest, ResumesNothingWhileTheAppendThatFailedWaitsForASync) {
  Start(0);
  ASSERT_TRUE(WriteRow("before").ok());
  disk_->HoldLogSyncs(true);
  store_->database().WhenDurable([](const absl::Status&) {});
  while (disk_->waiting() == 0) std::this_thread::yield();
  disk_->SetRoom(0);
  std::thread writer([&] { EXPECT_EQ(WriteRow("meanwhile").code(), absl::StatusCode::kResourceExhausted); });
  while (store_->database().Writable().ok()) std::this_thread::yield();
  disk_->SetRoom(std::nullopt);
  std::thread tending([&] { store_->database().Tend(); });
  // One that does not wait has ended by then.
  for (const absl::Time end = absl::Now() + absl::Milliseconds(300);
       absl::Now() < end && !store_->database().Writable().ok();) {
    std::this_thread::yield();
  }
  disk_->HoldLogSyncs(false);
  writer.join();
  tending.join();
  ASSERT_TRUE(store_->database().AwaitDurable(absl::Seconds(10)).code() != absl::StatusCode::kDeadlineExceeded);
  ASSERT_TRUE(TendUntilWritable()) << store_->database().Writable();
  EXPECT_TRUE(WriteRow("after").ok());
  EXPECT_TRUE(store_->database().AwaitDurable(absl::Seconds(10)).ok());
  EXPECT_TRUE(store_->database().Get(Family::kRows, "before")->has_value());
  EXPECT_TRUE(store_->database().Get(Family::kRows, "after")->has_value());
}

// With room again RocksDB writes its memtables out and begins a new log, and keeps the failed one if they are empty.
// They are when the disk is full again at once.
TEST_F(DiskFullTest, ResumesAgainWhereNothingWasWrittenSinceTheLastTime) {
  Start(0);
  ASSERT_TRUE(WriteRow("before").ok());
  for (int again = 0; again < 3; ++again) {
    disk_->SetRoom(0);
    EXPECT_EQ(WriteRow("meanwhile").code(), absl::StatusCode::kResourceExhausted);
    disk_->SetRoom(std::nullopt);
    ASSERT_TRUE(TendUntilWritable()) << store_->database().Writable();
  }
  EXPECT_TRUE(WriteRow("after").ok());
  EXPECT_TRUE(store_->database().AwaitDurable(absl::Seconds(10)).ok());
  EXPECT_TRUE(store_->database().Get(Family::kRows, "after")->has_value());
  EXPECT_FALSE(store_->database().Get(Family::kRows, "meanwhile")->has_value());
}

// Where all is in tables, the log that failed is one that RocksDB cannot replace: a new server begins another.
TEST_F(DiskFullTest, AsksForARestartWhereThereIsNothingToWriteOut) {
  Start(0);
  ASSERT_TRUE(Open().ok());
  ASSERT_TRUE(Send(20).ok());
  NoteDurable();
  ASSERT_EQ(durable_, 20u);
  ASSERT_TRUE(store_->database().Compact().ok());

  disk_->SetRoom(0);
  EXPECT_EQ(WriteRow("meanwhile").code(), absl::StatusCode::kResourceExhausted);
  disk_->SetRoom(std::nullopt);
  store_->database().Tend();
  EXPECT_THAT(std::string(store_->database().broken().message()),
              HasSubstr("cannot be replaced while the server runs; start it"));
  EXPECT_EQ(store_->database().Writable(), store_->database().broken()) << "what a sender is told";
  EXPECT_THAT(load_.Check(*store_, durable_, {}), IsEmpty()) << "reading goes on";

  Stop();
  Start(0);
  EXPECT_FALSE(store_->database().Get(Family::kRows, "meanwhile")->has_value());
  ASSERT_TRUE(Open().ok());
  ASSERT_TRUE(Send(20).ok());
  NoteDurable();
  EXPECT_EQ(durable_, 40u);
  EXPECT_THAT(load_.Check(*store_, durable_, {}), IsEmpty());
}

}  // namespace
}  // namespace msprobe::server
