#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "msprobe/v1/record.pb.h"

namespace msprobe::server {

// A call between ranks as one of them made it: a collective, or a message, of which a batch has several. It is the
// field "communication" of a record (proto/msprobe/v1/record.proto, Structure.fields).
struct CommunicationCall {
  enum class Kind : uint8_t { kCollective, kSend, kReceive };
  static constexpr int64_t kAnyPeer = -1;
  static constexpr int64_t kNoRoot = -1;

  Kind kind = Kind::kCollective;
  std::string op;         // full name of the record
  std::string operation;  // "all_reduce"
  uint32_t step = 0;
  uint32_t rank = 0;
  uint64_t ordinal = 0;
  std::string group;
  std::vector<uint32_t> members;
  uint32_t sequence = 0;    // among the collectives of the group, or the messages of the channel, in the step
  int64_t peer = kAnyPeer;  // of a message
  int64_t tag = 0;          // of a message
  int64_t root = kNoRoot;
  uint64_t bytes = 0;
  std::string dtype;  // empty: no tensor
  std::string shape;  // "[2, 16]"
  std::string reduce_op;
  bool is_async = false;
  bool ended = false;
  int64_t began_unix_us = 0;
  uint64_t stack = 0;  // id; 0: not captured
};

// Empty: the record has no such field, or it was left unfinished by a fault.
std::vector<CommunicationCall> CallsOf(const v1::Record& record, uint64_t stack);

// The ranks of "0-3,8-14:2", at most 65,536 of them. What is no such text gives none.
std::vector<uint32_t> RanksIn(std::string_view text);

}  // namespace msprobe::server
