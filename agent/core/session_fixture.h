// Shared by the tests of Session: a session in a directory of its own, and a server that records what it gets.
#pragma once

#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "agent/core/session.h"
#include "agent/core/str_cat.h"
#include "agent/core/transport/stream/fake_ingest.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace msprobe::core {

struct Emitted {
  uint32_t step, count;
  bool operator==(const Emitted&) const = default;
};

// The step and count of every fragment, in order. Also checks that ordinals and columns match.
inline std::vector<Emitted> Fragments(const std::vector<v1::Batch>& batches) {
  std::vector<Emitted> found;
  for (const v1::Batch& batch : batches) {
    for (const v1::Item& item : batch.items()) {
      const v1::Block& block = item.block();
      uint64_t ordinal = 0;
      for (int i = 0; i < block.count_size(); ++i) {
        ordinal += static_cast<uint64_t>(block.ordinal_delta(i));
        EXPECT_EQ(ordinal, block.count(i));
        found.push_back({block.step(), block.count(i)});
      }
    }
  }
  return found;
}

inline std::vector<v1::Marker> Markers(const std::vector<v1::Batch>& batches) {
  std::vector<v1::Marker> found;
  for (const v1::Batch& batch : batches) {
    for (const v1::Item& item : batch.items()) {
      if (item.has_marker()) found.push_back(item.marker());
    }
  }
  return found;
}

struct Lost {
  uint64_t fragments = 0, payloads = 0;
};
inline Lost LostIn(const std::vector<v1::Batch>& batches) {
  Lost lost;
  for (const v1::Marker& marker : Markers(batches)) {
    lost.fragments += marker.gap().fragments();
    lost.payloads += marker.gap().payloads();
  }
  return lost;
}

inline bool Eventually(const std::function<bool()>& condition, absl::Duration patience = absl::Seconds(20)) {
  const absl::Time deadline = absl::Now() + patience;
  while (absl::Now() < deadline) {
    if (condition()) return true;
    absl::SleepFor(absl::Milliseconds(2));  // between two looks at what other threads do
  }
  return false;
}

class SessionTest : public ::testing::Test {
 protected:
  SessionTest()
      : directory_(
            std::filesystem::temp_directory_path() /
            Cat("core-session-", getpid(), "-", ::testing::UnitTest::GetInstance()->current_test_info()->name())),
        fake_((std::filesystem::create_directories(directory_), (directory_ / "s").string())) {
    options_.run = "run";
    options_.server = fake_.address();
    options_.spool_directory = (directory_ / "spool").string();
  }
  ~SessionTest() override {
    session_.reset();
    fake_.Stop();
    EXPECT_THAT(fake_.violations(), ::testing::IsEmpty());
    for (const std::filesystem::path& memory : Memories()) std::filesystem::remove(memory);
    std::filesystem::remove_all(directory_);
  }

  // The session memories that links in the spool's directory point to.
  std::vector<std::filesystem::path> Memories() {
    std::vector<std::filesystem::path> found;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(options_.spool_directory, error)) {
      if (entry.is_symlink()) found.push_back(std::filesystem::read_symlink(entry.path()));
    }
    return found;
  }

  void Open() {
    absl::StatusOr<std::unique_ptr<Session>> opened = Session::Open(options_);
    ASSERT_TRUE(opened.ok()) << opened.status();
    session_ = *std::move(opened);
    structure_ = session_->DefineStructure(Named("Torch.add"));
  }

  // What the sender says that no server has yet. A busy sender is asked again: what is emitted meanwhile only piles up.
  std::string Missing() {
    std::string said;
    EXPECT_TRUE(Eventually([&] {
      said = std::string(session_->Wait(absl::Milliseconds(20)).message());
      return said != "the sender is busy";
    }));
    return said;
  }

  static Structure Named(const std::string& name) {
    Structure structure;
    structure.name = name;
    structure.fields.kind = NodeKind::kDict;
    Node tensor;
    tensor.kind = NodeKind::kTensor;
    tensor.key = "output";
    tensor.type = "torch.Tensor";
    tensor.dtype = 2;
    structure.fields.children.push_back(tensor);
    return structure;
  }

  void EmitPending(uint32_t step, uint32_t count, std::shared_ptr<PendingReading> pending,
                   std::shared_ptr<Payload> payload = nullptr) {
    Leaf leaf;
    leaf.pending = std::move(pending);
    leaf.payload = std::move(payload);
    EmitLeaf(step, count, std::move(leaf), structure_);
  }

  void Emit(uint32_t step, uint32_t count, std::shared_ptr<Payload> payload = nullptr, StructureId structure = 0) {
    Leaf leaf;
    leaf.has_statistics = true;
    leaf.max = count;
    leaf.payload = std::move(payload);
    EmitLeaf(step, count, std::move(leaf), structure == 0 ? structure_ : structure);
  }

  void EmitLeaf(uint32_t step, uint32_t count, Leaf leaf, StructureId structure) {
    static constexpr std::array<int64_t, 2> kShape = {3, 4};
    leaf.shape = kShape;
    Fragment fragment;
    fragment.step = step;
    fragment.structure = structure;
    fragment.count = count;
    fragment.ordinal = count;
    fragment.flags = kEnter | kExit;
    fragment.leaves = std::span(&leaf, 1);
    session_->Emit(fragment);
  }

  std::shared_ptr<Payload> MakePayload(size_t size, uint8_t fill) {
    std::shared_ptr<Payload> payload = session_->AllocatePayload(size);
    if (payload != nullptr) std::memset(payload->bytes().data(), fill, size);
    return payload;
  }

  // Counts first to last - 1, in order, each once.
  void ExpectCounts(uint32_t first, uint32_t last) {
    const std::vector<Emitted> found = Fragments(fake_.batches());
    ASSERT_EQ(found.size(), last - first);
    for (uint32_t i = 0; i < found.size(); ++i) ASSERT_EQ(found[i].count, first + i);
  }

  const std::filesystem::path directory_;
  FakeIngest fake_;
  SessionOptions options_;
  std::unique_ptr<Session> session_;
  StructureId structure_ = 0;
};

}  // namespace msprobe::core
