// Damages the files of a store: the damage is refused, or read around and reported exactly.

#include "server/maintenance/store_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include "server/ingest/scripted/scripted_load.h"
#include "server/ingest/session/sessions.h"
#include "server/store/disk/scratch_directory.h"
#include "server/store/log/log_check.h"

namespace msprobe::server {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
using testing::IsEmpty;

class DamageTest : public testing::Test {
 protected:
  absl::Status Open() {
    store_.reset();
    StoreOptions options;
    options.directory = directory_ / "data";
    options.segment_chunk_bytes = 7000;  // some payloads go to segments
    auto store = Store::Open(options);
    if (!store.ok()) return store.status();
    store_ = *std::move(store);
    return absl::OkStatus();
  }
  // Writes rank 0 of a run. The content lies in the log and in segments, with `files` in tables and blob files, too.
  void Write(ScriptedLoad& load, uint64_t batches, bool files) {
    Metrics metrics;
    Sessions sessions(store_.get(), &metrics, nullptr, SessionsOptions());
    auto session = sessions.OpenSession(load.hello());
    ASSERT_TRUE(session.ok()) << session.status();
    for (uint64_t sequence = 1; sequence <= batches; ++sequence) {
      auto verdict = (*session)->Apply(load.Batch(sequence));
      ASSERT_TRUE(verdict.ok()) << verdict.status();
      for (const std::string& hash : verdict->wanted()) {
        ASSERT_TRUE((*session)->AddPayload(ScriptedAgent::Chunk(hash, 0, load.Content(hash), true)).ok());
      }
    }
    ASSERT_TRUE((*session)->AwaitDurable(absl::Seconds(20)).ok());
    const absl::Status compacted = files ? store_->database().Compact() : absl::OkStatus();
    ASSERT_TRUE(compacted.ok()) << compacted;
  }
  std::set<fs::path> Files(const std::string& extension) {
    std::set<fs::path> found;
    for (const char* part : {"data/store", "data/segments"}) {
      for (const auto& entry : fs::directory_iterator(directory_ / part)) {
        if (entry.path().extension() == extension) found.insert(entry.path());
      }
    }
    return found;
  }
  static std::string Content(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  // Changes one byte of this text in the file that holds it.
  bool Damage(const std::string& extension, const std::string& text) {
    for (const fs::path& path : Files(extension)) {
      std::string content = Content(path);
      const size_t at = content.find(text);
      if (at == std::string::npos) continue;
      content[at + text.size() / 2] = static_cast<char>(content[at + text.size() / 2] ^ 0x20);
      std::ofstream(path, std::ios::binary) << content;
      return true;
    }
    return false;
  }

  ScratchDirectory directory_;
  std::unique_ptr<Store> store_;
};

TEST_F(DamageTest, ASoundStoreHasNone) {
  ASSERT_TRUE(Open().ok());
  ScriptedLoad load("job", 0, 1);
  Write(load, 40, true);
  auto report = CheckStore(*store_);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(report->damages, IsEmpty());
  EXPECT_EQ(report->runs, 1u);
  EXPECT_EQ(report->steps, 8u);
  EXPECT_EQ(report->payloads, load.hashes().size());
}

TEST_F(DamageTest, AWrongByteOfAPayloadIsNamedAndTheRestIsRead) {
  for (const char* extension : {".blob", ".segment"}) {
    fs::remove_all(directory_ / "data");
    ASSERT_TRUE(Open().ok());
    ScriptedLoad load("job", 0, 1);
    Write(load, 40, true);
    store_.reset();
    const std::set<std::string> hashes = load.hashes();
    const auto damaged = std::find_if(hashes.begin(), hashes.end(), [&](const std::string& hash) {
      return Damage(extension, load.Content(hash).substr(100, 50));
    });
    ASSERT_NE(damaged, hashes.end()) << "no payload is in a file " << extension;
    ASSERT_TRUE(Open().ok()) << "damage of content does not keep the server from starting";
    auto report = CheckStore(*store_);
    ASSERT_TRUE(report.ok()) << report.status();
    ASSERT_EQ(report->damages.size(), 1u);
    EXPECT_EQ(report->damages[0].where, "run job, payload " + Hex(*damaged));
    EXPECT_EQ(store_->payloads().Read(*damaged, [](std::string_view) { return absl::OkStatus(); }).code(),
              absl::StatusCode::kDataLoss)
        << "wrong bytes are never handed out";
    store_.reset();
  }
}

TEST_F(DamageTest, ADamagedTableOfRowsIsNamedStepByStep) {
  ASSERT_TRUE(Open().ok());
  ScriptedLoad first("first", 0, 1), second("second", 0, 2);
  Write(first, 40, true);
  const std::set<fs::path> before = Files(".sst");
  Write(second, 40, false);
  store_.reset();
  uint32_t named = 0;
  for (const fs::path& path : before) {
    const std::string sound = Content(path);
    std::string content = sound;
    content[content.size() / 3] = static_cast<char>(content[content.size() / 3] ^ 1);
    std::ofstream(path, std::ios::binary) << content;
    absl::Status opened = Open();
    auto report = opened.ok() ? CheckStore(*store_) : absl::StatusOr<CheckReport>(opened);
    if (!report.ok()) {
      // The list of runs itself is damaged.
      EXPECT_THAT(std::string(report.status().message()), HasSubstr(path.filename().string()));
    } else {
      uint32_t steps = 0;
      for (const struct Damage& damage : report->damages) {
        EXPECT_THAT(damage.where, AnyOf(HasSubstr("run first, rank0, step "), HasSubstr(", payload "))) << damage.what;
        steps += damage.where.find(", step ") != std::string::npos;
      }
      named += steps > 0;
    }
    store_.reset();
    std::ofstream(path, std::ios::binary) << sound;
  }
  EXPECT_GE(named, 1u) << "no table held rows: this test tests nothing";
}

TEST_F(DamageTest, ACutLogLeavesAPrefixAndTheAgentFillsTheGap) {
  for (const double part : {0.9, 0.5, 0.1}) {
    fs::remove_all(directory_ / "data");
    ASSERT_TRUE(Open().ok());
    ScriptedLoad load("job", 0, 7);
    Write(load, 40, false);
    store_.reset();
    uint64_t largest = 0;
    fs::path log;
    for (const fs::path& path : Files(".log")) {
      if (fs::file_size(path) >= largest) largest = fs::file_size(path), log = path;
    }
    fs::resize_file(log, static_cast<uint64_t>(static_cast<double>(largest) * part));
    ASSERT_TRUE(Open().ok());
    EXPECT_THAT(load.Check(*store_, 0, {}), IsEmpty()) << "a prefix, no hole";
    EXPECT_LT(load.watermark(*store_), 40u);
    auto report = CheckStore(*store_);
    ASSERT_TRUE(report.ok());
    EXPECT_THAT(report->damages, IsEmpty()) << "what is left is sound";
    store_.reset();
  }
}

TEST_F(DamageTest, ADamagedLogIsToldOfWithWhatIsMissingAndLeftAsItIs) {
  ASSERT_TRUE(Open().ok());
  ScriptedLoad first("first", 0, 1), second("second", 3, 2);
  Write(first, 10, false);
  Write(second, 400, false);
  store_.reset();
  auto sound = CheckLogs(directory_ / "data");
  ASSERT_TRUE(sound.ok()) << sound.status();
  EXPECT_THAT(*sound, IsEmpty());
  const std::set<fs::path> logs = Files(".log");
  const fs::path log = *std::max_element(logs.begin(), logs.end(), [](const fs::path& a, const fs::path& b) {
    return fs::file_size(a) < fs::file_size(b);
  });
  std::string content = Content(log);
  ASSERT_GT(content.size(), 100'000u) << "several blocks";
  content[content.size() / 2] = static_cast<char>(content[content.size() / 2] ^ 1);
  std::ofstream(log, std::ios::binary) << content;
  for (int look = 0; look < 2; ++look) {
    auto lines = CheckLogs(directory_ / "data");
    ASSERT_TRUE(lines.ok()) << lines.status();
    ASSERT_EQ(lines->size(), 2u) << "the second look finds the same";
    EXPECT_THAT(lines->front(), AllOf(HasSubstr(log.filename().string() + ": damaged at byte "),
                                      HasSubstr("are left out at the next start")));
    EXPECT_THAT(lines->back(), AllOf(HasSubstr("run second, rank3: missing are batches up to 400, with rows of steps "),
                                     HasSubstr(" to 79")));
  }
  ASSERT_TRUE(Open().ok());
  EXPECT_LT(second.watermark(*store_), 400u) << "as was said";
  EXPECT_TRUE(absl::IsAlreadyExists(CheckLogs(directory_ / "data").status())) << "while somebody has it open";
}

TEST_F(DamageTest, AMissingTableIsRefusedByName) {
  ASSERT_TRUE(Open().ok());
  ScriptedLoad load("job", 0, 1);
  Write(load, 40, true);
  store_.reset();
  const fs::path gone = *Files(".sst").begin();
  fs::remove(gone);
  absl::Status status = Open();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr("cannot open data directory " + directory_ / "data"));
  EXPECT_THAT(std::string(status.message()), HasSubstr(gone.stem().string().substr(3)));
}

}  // namespace
}  // namespace msprobe::server
