// The store and its sessions over a disk that loses what was not synced.

#include "server/store/disk/crash_disk.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "server/ingest/scripted/scripted_load.h"
#include "server/ingest/session/sessions.h"
#include "server/metrics/log.h"
#include "server/store/disk/scratch_directory.h"
#include "server/store/tiles/tiler.h"

namespace msprobe::server {
namespace {

using testing::IsEmpty;

constexpr uint32_t kRanks = 3;

class CrashTest : public testing::Test {
 protected:
  // What it prints is what went wrong.
  static void SetUpTestSuite() { SetLogLevel("warning"); }

  void Start(v1::Durability durability = v1::DURABILITY_SYNC, absl::Duration interval = absl::Seconds(1)) {
    disk_ = std::make_unique<CrashDisk>(directory_ / "data", ++seed_);
    Open(disk_->env(), durability, interval);
    sessions_ = std::make_unique<Sessions>(store_.get(), &metrics_, nullptr, SessionsOptions());
    ASSERT_TRUE(sessions_->Recover().ok());
    tiler_ = std::make_unique<Tiler>(store_.get(), TilerOptions{.period = absl::Milliseconds(5), .fewest_passes = 2});
    tiler_->Start();
  }
  void Open(rocksdb::Env* env, v1::Durability durability, absl::Duration interval) {
    StoreOptions options;
    options.directory = directory_ / "data";
    options.durability = durability;
    options.sync_interval = interval;
    options.memtable_bytes = 64 << 10;   // flushes and compactions happen, too
    options.segment_chunk_bytes = 4000;  // of the chunks of a payload all but a short tail
    options.segment_bytes = 256 << 10;
    options.env = env;
    auto store = Store::Open(options);
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
  }
  void Stop() {
    for (Rank& rank : ranks_) rank.session.reset();
    tiler_.reset();
    sessions_.reset();
    store_.reset();
    disk_.reset();
  }

  // What a rank knows of the server's promises.
  struct Rank {
    explicit Rank(uint32_t number) : load("job", number, 1000 + number, 5, {.different = 100'000}) {}
    ScriptedLoad load;
    uint64_t durable = 0;
    std::set<std::string> stored;
    std::unique_ptr<absl::Mutex> mu = std::make_unique<absl::Mutex>();  // of the pointer
    std::shared_ptr<Session> session;
  };
  // Sends from where the server stands until something is refused.
  void Drive(Rank& rank, uint64_t batches) {
    rank.load.hello().set_freed_through(rank.durable);
    auto session = sessions_->OpenSession(rank.load.hello());
    if (!session.ok()) return;
    {
      absl::MutexLock lock(rank.mu.get());
      rank.session = *session;
    }
    const v1::Welcome welcome = rank.session->welcome();
    for (const std::string& hash : welcome.missing_payloads()) {
      if (!Upload(rank, hash)) return;
    }
    uint64_t sequence = welcome.durable_through();
    for (uint64_t n = 0; n < batches; ++n) {
      auto verdict = rank.session->Apply(rank.load.Batch(++sequence));
      if (!verdict.ok()) return;
      rank.stored.insert(verdict->stored().begin(), verdict->stored().end());
      for (const std::string& hash : verdict->wanted()) {
        if (!Upload(rank, hash)) return;
      }
    }
  }
  bool Upload(Rank& rank, const std::string& hash) {
    const std::string content = rank.load.Content(hash);
    constexpr size_t kChunk = 8000;
    for (size_t at = 0; at < content.size(); at += kChunk) {
      const bool last = at + kChunk >= content.size();
      if (!rank.session->AddPayload(ScriptedAgent::Chunk(hash, at, content.substr(at, kChunk), last)).ok())
        return false;
    }
    return true;
  }
  // What is acknowledged by now. To be called before Crash.
  void NoteDurable(Rank& rank) {
    absl::MutexLock lock(rank.mu.get());
    if (rank.session != nullptr) rank.durable = std::max(rank.durable, rank.session->durable_through());
  }
  std::vector<std::string> CheckAll() {
    std::vector<std::string> wrong;
    for (Rank& rank : ranks_) {
      for (std::string& line : rank.load.Check(*store_, rank.durable, {})) wrong.push_back(std::move(line));
    }
    return wrong;
  }

  ScratchDirectory directory_;
  Metrics metrics_;
  uint64_t seed_ = 0;
  std::unique_ptr<CrashDisk> disk_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<Sessions> sessions_;
  std::unique_ptr<Tiler> tiler_;
  std::vector<Rank> ranks_;
};

TEST_F(CrashTest, SyncKeepsAllThatWasAcknowledgedThroughAnyCrash) {
  for (uint32_t rank = 0; rank < kRanks; ++rank) ranks_.emplace_back(rank);
  std::mt19937_64 random(7);
  uint64_t lost = 0, kept = 0;
  for (int crash = 0; crash < 20; ++crash) {
    Start();
    ASSERT_THAT(CheckAll(), IsEmpty()) << "after crash " << crash;
    const uint64_t wanted = random() % 400;
    std::vector<std::thread> threads;
    std::atomic<uint64_t> done = 0;
    threads.emplace_back([&] {
      while (done < kRanks && store_->maintenance().CollectSegments().ok()) std::this_thread::yield();
    });
    for (Rank& rank : ranks_) {
      threads.emplace_back([&] {
        Drive(rank, 150);
        ++done;
      });
    }
    // Somewhere under load: when so many batches of all are applied, or all are through.
    const double before = metrics_.Value(Metric::kIngestBatches);
    while (done < kRanks && metrics_.Value(Metric::kIngestBatches) - before < static_cast<double>(wanted)) {
      std::this_thread::yield();
    }
    for (Rank& rank : ranks_) NoteDurable(rank);
    disk_->Crash();
    lost += disk_->lost_bytes();
    for (std::thread& thread : threads) thread.join();
    Stop();
  }
  Start();
  EXPECT_THAT(CheckAll(), IsEmpty());
  for (Rank& rank : ranks_) kept += rank.durable;
  EXPECT_GT(lost, 0u) << "no crash came between a write and its sync: this test tests nothing";
  EXPECT_GT(kept, 0u);
  Stop();
}

TEST_F(CrashTest, AStoreThatDoesNotSyncLosesWhatItAcknowledgedButLeavesNoHole) {
  uint64_t acknowledged = 0, found = 0;
  for (int crash = 0; crash < 5; ++crash) {
    ranks_.clear();
    for (uint32_t rank = 0; rank < kRanks; ++rank) ranks_.emplace_back(100 * crash + rank);
    Start(v1::DURABILITY_OS);
    std::vector<std::thread> threads;
    for (Rank& rank : ranks_) threads.emplace_back([&] { Drive(rank, 100); });
    for (std::thread& thread : threads) thread.join();
    ASSERT_TRUE(store_->database().AwaitDurable(absl::Seconds(20)).ok());
    for (Rank& rank : ranks_) {
      NoteDurable(rank);
      acknowledged += std::exchange(rank.durable, 0);
    }
    disk_->Crash();
    Stop();
    Start(v1::DURABILITY_OS);
    EXPECT_THAT(CheckAll(), IsEmpty());
    for (Rank& rank : ranks_) found += rank.load.watermark(*store_);
    Stop();
  }
  EXPECT_LT(found, acknowledged) << "a power failure took nothing: the double does not lose what was not synced";
}

TEST_F(CrashTest, AnIntervalKeepsAllButTheLastOne) {
  ranks_.emplace_back(0);
  Start(v1::DURABILITY_INTERVAL, absl::Milliseconds(20));
  Drive(ranks_[0], 40);
  ASSERT_TRUE(store_->database().AwaitDurable(absl::Seconds(20)).ok());
  NoteDurable(ranks_[0]);
  ASSERT_EQ(ranks_[0].durable, 40u);
  const uint64_t syncs = disk_->syncs();
  while (disk_->syncs() < syncs + 2) absl::SleepFor(absl::Milliseconds(5));  // two intervals of the store's own
  disk_->Crash();
  Stop();
  Start();
  EXPECT_THAT(CheckAll(), IsEmpty());
  Stop();
}

TEST_F(CrashTest, AProcessThatDiesLosesNothingWhateverTheDurability) {
  // kill -9 leaves what was written with the operating system: a disk without a double.
  for (v1::Durability durability : {v1::DURABILITY_OS, v1::DURABILITY_INTERVAL}) {
    ranks_.clear();
    ranks_.emplace_back(static_cast<uint32_t>(durability));
    Start(durability);
    Drive(ranks_[0], 60);
    ASSERT_TRUE(store_->database().AwaitDurable(absl::Seconds(20)).ok());
    NoteDurable(ranks_[0]);
    EXPECT_EQ(ranks_[0].durable, 60u);
    Stop();  // without Crash: everything written reaches the disk, synced or not
    Start(durability);
    EXPECT_THAT(CheckAll(), IsEmpty());
    Stop();
  }
}

TEST_F(CrashTest, TablesAreNeverAheadOfSegments) {
  for (int crash = 0; crash < 5; ++crash) {
    ranks_.clear();
    ranks_.emplace_back(crash);
    Start(v1::DURABILITY_OS);  // nothing else syncs
    Drive(ranks_[0], 60);
    ASSERT_TRUE(store_->database().Compact().ok());
    ranks_[0].durable = 60;  // it is in tables
    disk_->Crash();
    Stop();
    Start(v1::DURABILITY_OS);
    EXPECT_THAT(CheckAll(), IsEmpty());
    Stop();
  }
}

TEST_F(CrashTest, ASegmentIsGoneOnlyWhenItsRowsAreGoneForGood) {
  const auto hash_of = [](int n) { return std::string(kIdBytes - 1, 'h') + static_cast<char>(n); };
  for (int crash = 0; crash < 5; ++crash) {
    Start();
    for (int n = 0; n < 60; ++n) {
      const std::string content(20'000, static_cast<char>(n));
      storage::PayloadRow row;
      row.set_size(content.size());
      row.set_chunks(1);
      row.set_run(1);
      ChangeSet changes;
      changes.DeleteChunks(ChunkKey::Prefix(hash_of(n), 1, 0));
      changes.PutChunk(ChunkKey{hash_of(n), 1, 0, 0}.Encode(), content);
      changes.PutMeta(PayloadKey(hash_of(n)), row);
      ASSERT_TRUE(store_->database().Write(changes).ok());
    }
    ASSERT_TRUE(store_->database().AwaitDurable(absl::Seconds(20)).ok());
    for (int n = 0; n < 60; ++n) {
      if (n % 4 == 0) continue;
      ChangeSet changes;
      changes.DeleteChunks(ChunkKey::Prefix(hash_of(n), 1, 0));
      changes.Delete(Family::kMeta, PayloadKey(hash_of(n)));
      ASSERT_TRUE(store_->database().Write(changes).ok());
    }
    ASSERT_TRUE(store_->maintenance().CollectSegments().ok());
    disk_->Crash();
    Stop();
    Start();
    for (int n = 0; n < 60; ++n) {
      absl::Status status = store_->payloads().Read(hash_of(n), [&](std::string_view chunk) {
        EXPECT_EQ(chunk, std::string(20'000, static_cast<char>(n)));
        return absl::OkStatus();
      });
      EXPECT_TRUE(status.ok() || (n % 4 != 0 && absl::IsNotFound(status))) << n << ": " << status;
    }
    Stop();
  }
}

TEST_F(CrashTest, ASegmentWhoseRowIsStillToComeIsNotCollected) {
  Start();
  const std::string content(300'000, 'x');  // more than a segment takes: it is sealed before the row is written
  const std::string hash(kIdBytes, 'h');
  disk_->HoldLog(true);
  std::thread writer([&] {
    storage::PayloadRow row;
    row.set_size(content.size());
    row.set_chunks(1);
    row.set_run(1);
    ChangeSet changes;
    changes.PutChunk(ChunkKey{hash, 1, 0, 0}.Encode(), content);
    changes.PutMeta(PayloadKey(hash), row);
    EXPECT_TRUE(store_->database().Write(changes).ok());
  });
  while (disk_->waiting() == 0) std::this_thread::yield();
  std::thread collector([&] { EXPECT_TRUE(store_->maintenance().CollectSegments().ok()); });
  // A collection that did not wait would have found it dead by now, and wait for the log, too.
  for (const absl::Time end = absl::Now() + absl::Milliseconds(300); absl::Now() < end && disk_->waiting() < 2;) {
    std::this_thread::yield();
  }
  disk_->HoldLog(false);
  writer.join();
  collector.join();
  EXPECT_TRUE(store_->payloads().Read(hash, [](std::string_view) { return absl::OkStatus(); }).ok());
  Stop();
}

TEST_F(CrashTest, ALogIsNotThereWhereTheEndOfTheOneBeforeIsLost) {
  const auto write = [this](const std::string& key) {
    ChangeSet changes;
    changes.Put(Family::kRows, key, std::string(100, 'x'));
    return store_->database().Write(changes);
  };
  const auto is_there = [this](const std::string& key) {
    return store_->database().Get(Family::kRows, key)->has_value();
  };
  constexpr int kRows = 40;
  for (int crash = 0; crash < 10; ++crash) {
    const std::string name = "crash " + std::to_string(crash) + " ";
    Start();
    ASSERT_TRUE(write(name + "synced").ok());
    ASSERT_TRUE(store_->database().AwaitDurable(absl::Seconds(20)).ok());
    disk_->HoldLogSyncs(true);
    ASSERT_TRUE(write(name + "end of the log").ok());
    std::atomic<int> written = 0;
    std::thread flush([&] { store_->database().Compact().IgnoreError(); });  // begins a new log
    while (disk_->waiting() == 0) std::this_thread::yield();
    std::thread writer([&] {
      while (written < kRows && write(name + std::to_string(written)).ok()) ++written;
    });
    // A new log that did not wait for the old one's sync would have them all by then.
    for (const absl::Time end = absl::Now() + absl::Milliseconds(100); absl::Now() < end && written < kRows;) {
      std::this_thread::yield();
    }
    disk_->Crash();
    disk_->HoldLogSyncs(false);
    flush.join();
    writer.join();
    Stop();
    Start();
    EXPECT_TRUE(is_there(name + "synced"));
    bool before = is_there(name + "end of the log");
    for (int row = 0; row < kRows; ++row) {
      const bool there = is_there(name + std::to_string(row));
      EXPECT_TRUE(before || !there) << name << row << " is there, and what was written before it is not";
      before = there;
    }
    Stop();
  }
}

TEST_F(CrashTest, ASyncThatFailsAcknowledgesNothing) {
  ranks_.emplace_back(0);
  Start();
  Drive(ranks_[0], 10);
  ASSERT_TRUE(store_->database().AwaitDurable(absl::Seconds(20)).ok());
  NoteDurable(ranks_[0]);
  ASSERT_EQ(ranks_[0].durable, 10u);

  disk_->FailSyncs(true);
  Drive(ranks_[0], 10);
  EXPECT_FALSE(store_->database().AwaitDurable(absl::Seconds(20)).ok());
  NoteDurable(ranks_[0]);
  EXPECT_EQ(ranks_[0].durable, 10u);

  // The disk works again; what its failed sync took must not become durable by a later one.
  disk_->FailSyncs(false);
  store_->database().Tend();
  Drive(ranks_[0], 10);
  absl::Status status = store_->database().AwaitDurable(absl::Seconds(20));
  NoteDurable(ranks_[0]);
  disk_->Crash();
  Stop();
  Start();
  EXPECT_THAT(CheckAll(), IsEmpty()) << status;
  Stop();
}

}  // namespace
}  // namespace msprobe::server
