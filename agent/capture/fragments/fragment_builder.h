#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "agent/capture/reading/tensor_reading.h"
#include "agent/core/record.h"

namespace msprobe::capture {

// Builds one fragment: its structure as a signature (the bytes below), its leaves and scalars as columns. A fragment's
// fields are the entries of a dict, so the first call is Key. Reusable: Start clears and keeps the capacity, so in a
// steady state nothing is allocated but what the readings own.
//
// The signature is the identity of a structure: equal signatures mean equal structures, so a cache from signature to
// StructureId saves building core::Structure on every call but the first.
//
// Not thread-safe; one builder is used by one thread at a time.
class FragmentBuilder {
 public:
  void Start(std::string_view name, core::RecordKind kind, core::Direction direction, uint32_t pass = 0);

  // Names the next node, which then stands in the enclosing dict.
  void Key(std::string_view key);
  void BeginList();
  void BeginDict();
  void End();  // of the innermost list or dict

  void None();
  void Boolean(bool value);
  void Integer(int64_t value);
  void Float(double value);
  void String(std::string_view value);
  void Json(std::string_view text);
  void Tensor(const TensorReading& reading);

  bool empty() const { return signature_.size() == header_size_; }
  std::string_view signature() const { return signature_; }
  core::Structure BuildStructure() const;
  std::span<const core::Leaf> leaves() const { return leaves_; }
  void DropPayloads();

  // The tensors that the record gives out: those under "output", and gradients of parameters. Forgotten by the next
  // Start.
  struct Output {
    TensorIdentity identity;
    uint64_t time = 0;  // Producers::Sight
    uint32_t leaf = 0;  // its number among the fragment's
  };
  std::span<const Output> outputs() const { return outputs_; }
  void ForgetOutputs() { outputs_.clear(); }

  // Sets the columns of `fragment`, which borrows them until the next Start. Its ordinal is set.
  void Fill(core::Fragment& fragment);

 private:
  void Number(uint32_t number);
  void Text(std::string_view text);

  // What the fields under one key of the record are to it.
  enum class Role : uint8_t { kInput, kOutput, kOther };
  Role RoleOf(std::string_view key) const;

  std::string signature_;
  size_t header_size_ = 0;
  core::RecordKind kind_ = core::RecordKind::kApi;
  int depth_ = 0;  // lists and dicts that are open
  Role role_ = Role::kOther;
  std::vector<core::Leaf> leaves_;
  std::vector<int64_t> dims_;
  std::vector<uint32_t> ranks_;      // of leaves_
  std::vector<Producer> producers_;  // of leaves_
  std::vector<Output> outputs_;
  std::vector<int64_t> integers_;
  std::vector<double> floats_;
  std::vector<char> booleans_;
  std::deque<std::string> texts_;
  std::vector<std::string_view> strings_;
};

}  // namespace msprobe::capture
