// Shared by the tests of a sender's classes: a session's parts without its threads.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "agent/core/str_cat.h"
#include "agent/core/transport/outbox/outbox.h"
#include "agent/core/transport/packing/packer.h"
#include "agent/core/transport/sender_parts.h"
#include "grpcpp/support/byte_buffer.h"
#include "gtest/gtest.h"

namespace msprobe::core {

inline v1::AgentMessage Parsed(const grpc::ByteBuffer& message) {
  std::vector<grpc::Slice> slices;
  EXPECT_TRUE(message.Dump(&slices).ok());
  std::string bytes;
  for (const grpc::Slice& slice : slices) bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  v1::AgentMessage parsed;
  EXPECT_TRUE(parsed.ParseFromString(bytes));
  return parsed;
}

class TextPayload : public Payload {
 public:
  explicit TextPayload(std::string content) : content_(std::move(content)) {}
  std::span<std::byte> bytes() override { return std::as_writable_bytes(std::span(content_)); }
  std::optional<uint64_t> shared_offset() const override { return shared_offset_; }
  bool intact() override { return intact_; }

  std::optional<uint64_t> shared_offset_;
  bool intact_ = true;

 private:
  std::string content_;
};

class SenderPartsTest : public ::testing::Test {
 protected:
  SenderPartsTest()
      : directory_(std::filesystem::temp_directory_path() /
                   Cat("core-parts-", getpid(), "-", ::testing::UnitTest::GetInstance()->current_test_info()->name())) {
    Structure structure;
    structure.name = "Torch.add";
    structure.fields.kind = NodeKind::kDict;
    structure_ = dictionary_.DefineStructure(structure);
    structure.name = "Torch.relu";
    Node tensor;
    tensor.kind = NodeKind::kTensor;
    tensor.key = "0";
    structure.fields.children.push_back(tensor);
    with_tensor_ = dictionary_.DefineStructure(structure);
  }
  ~SenderPartsTest() override { std::filesystem::remove_all(directory_); }

  // A batch of one record, straight into the outbox.
  void AppendBatch(uint32_t count, uint32_t step = 0) {
    Fragment fragment;
    fragment.step = step;
    fragment.structure = structure_;
    fragment.count = count;
    std::vector<Leaf> none;
    ASSERT_TRUE(packer_.Add(fragment, none));
    outbox_.Append(packer_.Cut(count));
  }

  const std::filesystem::path directory_;
  const std::shared_ptr<Doorbell> bell_ = std::make_shared<Doorbell>();
  const std::shared_ptr<MemoryBudget> budget_ =
      std::make_shared<MemoryBudget>(size_t{1} << 20, LossPolicy::kDrop, absl::ZeroDuration(), nullptr);
  std::vector<std::string> lines_;
  const Log log_{[this](Log::Severity, std::string_view text) { lines_.emplace_back(text); }};
  Dictionary dictionary_{SessionMemory::Private()};
  FragmentQueue queue_{bell_.get()};
  AtomicCounters counters_;
  const SenderParts parts_{.queue = &queue_,
                           .dictionary = &dictionary_,
                           .memory = SessionMemory::Private(),
                           .budget = budget_,
                           .bell = bell_,
                           .log = &log_,
                           .counters = &counters_,
                           .control = nullptr,
                           .shares_memory = false};
  Spool spool_{directory_.string(), "s", uint64_t{1} << 20};
  Packer packer_{"0123456789abcdef", &dictionary_};
  Outbox outbox_{budget_.get(), &spool_};
  StructureId structure_ = 0, with_tensor_ = 0;
};

}  // namespace msprobe::core
