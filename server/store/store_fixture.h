#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "server/store/disk/scratch_directory.h"
#include "server/store/store.h"

namespace msprobe::server {

// For tests of the store's parts: an open store, and the rows that a session would leave in it.

inline v1::Hello HelloOf(char id, const std::string& run) {
  v1::Hello hello;
  hello.set_protocol(1);
  hello.set_session(std::string(16, id));
  hello.set_run(run);
  return hello;
}

class StoreTest : public testing::Test {
 protected:
  void SetUp() override { Reopen(); }
  void Reopen() {
    store_.reset();
    StoreOptions options;
    options.directory = directory_ / "data";
    options.segment_bytes = segment_bytes_;
    options.segment_chunk_bytes = segment_chunk_bytes_;
    auto opened = Store::Open(options);
    ASSERT_TRUE(opened.ok()) << opened.status();
    store_ = *std::move(opened);
  }
  void PutStep(const StepKey& key, v1::StepSummary::State state, uint64_t row_bytes = 0) {
    storage::StepRow row;
    row.set_state(state);
    row.set_row_bytes(row_bytes);
    ChangeSet changes;
    changes.PutMeta(key.Encode(), row);
    v1::Block block;
    block.set_step(key.step);
    changes.Put(Family::kRows, RowKey{key.run, key.rank, key.step, 0, key.epoch, 0}.Encode(), EncodeValue(block));
    ASSERT_TRUE(store_->database().Write(changes).ok());
  }
  // The run's number; its only session has ended.
  uint32_t AddEndedRun(char session_id, const std::string& run) {
    auto session = store_->catalogue().RegisterSession(HelloOf(session_id, run));
    session->set_state(storage::SessionRow::ENDED);
    ChangeSet changes;
    changes.PutMeta(SessionKey(session->session()), *session);
    EXPECT_TRUE(store_->database().Write(changes).ok());
    return session->run();
  }
  size_t Count(Family family, std::string_view prefix = "") {
    size_t count = 0;
    EXPECT_TRUE(store_->database()
                    .ForEach(family, prefix,
                             [&](std::string_view, std::string_view) {
                               ++count;
                               return absl::OkStatus();
                             })
                    .ok());
    return count;
  }

  ScratchDirectory directory_;
  uint64_t segment_bytes_ = 64 << 20;
  size_t segment_chunk_bytes_ = 64 << 10;
  std::unique_ptr<Store> store_;
};

}  // namespace msprobe::server
