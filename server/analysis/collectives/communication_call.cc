#include "server/analysis/collectives/communication_call.h"

#include <charconv>
#include <optional>

#include "server/analysis/module_tree/module_name.h"
#include "server/format/cat.h"

namespace msprobe::server {
namespace {

constexpr size_t kMostRanks = 65536;

const v1::Value* Find(const v1::Value::Dict& dict, std::string_view key) {
  for (const v1::Value::Entry& entry : dict.entries()) {
    if (entry.key() == key) return &entry.value();
  }
  return nullptr;
}

std::string TextIn(const v1::Value::Dict& dict, std::string_view key) {
  const v1::Value* const value = Find(dict, key);
  return value == nullptr ? std::string() : value->text();
}

int64_t IntegerIn(const v1::Value::Dict& dict, std::string_view key, int64_t absent = 0) {
  const v1::Value* const value = Find(dict, key);
  return value == nullptr || !value->has_integer() ? absent : value->integer();
}

bool BooleanIn(const v1::Value::Dict& dict, std::string_view key) {
  const v1::Value* const value = Find(dict, key);
  return value != nullptr && value->boolean();
}

void AddContent(const v1::Value::Dict& dict, CommunicationCall& call) {
  call.sequence = static_cast<uint32_t>(IntegerIn(dict, "sequence"));
  call.bytes = static_cast<uint64_t>(IntegerIn(dict, "bytes"));
  call.dtype = TextIn(dict, "dtype");
  if (const v1::Value* const shape = Find(dict, "shape"); shape != nullptr) {
    call.shape = "[";
    for (const v1::Value& size : shape->list().items()) {
      call.shape += Cat(call.shape.size() == 1 ? "" : ", ", size.integer());
    }
    call.shape += "]";
  }
}

// Takes a number off the front of `text`.
std::optional<uint32_t> Number(std::string_view& text) {
  uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return number;
}

bool Take(char wanted, std::string_view& text) {
  if (!text.starts_with(wanted)) return false;
  text.remove_prefix(1);
  return true;
}

}  // namespace

std::vector<uint32_t> RanksIn(std::string_view text) {
  std::vector<uint32_t> ranks;
  while (!text.empty()) {
    const std::optional<uint32_t> first = Number(text);
    std::optional<uint32_t> last = first;
    std::optional<uint32_t> apart = 1;
    if (Take('-', text)) last = Number(text);
    if (Take(':', text)) apart = Number(text);
    if (!first || !last || !apart || *apart == 0 || *last < *first) return {};
    for (uint64_t rank = *first; rank <= *last; rank += *apart) {
      if (ranks.size() == kMostRanks) return {};
      ranks.push_back(static_cast<uint32_t>(rank));
    }
    if (!Take(',', text) && !text.empty()) return {};
  }
  return ranks;
}

std::vector<CommunicationCall> CallsOf(const v1::Record& record, uint64_t stack) {
  const v1::Value* const field = Find(record.fields().dict(), "communication");
  if (field == nullptr || !field->has_dict()) return {};
  const v1::Value::Dict& words = field->dict();
  CommunicationCall call;
  call.op = record.full_name();
  call.operation = std::string(OperationOf(call.op));
  call.step = record.step();
  call.rank = record.rank().number();
  call.ordinal = record.ordinal();
  call.group = TextIn(words, "group");
  call.members = RanksIn(TextIn(words, "ranks"));
  call.is_async = BooleanIn(words, "async");
  call.ended = (record.flags() & v1::FRAGMENT_EXIT) != 0;
  call.began_unix_us = IntegerIn(words, "began");
  call.stack = stack;
  const v1::Value* const messages = Find(words, "messages");
  if (messages == nullptr) {
    AddContent(words, call);
    call.reduce_op = TextIn(words, "reduce_op");
    call.root = IntegerIn(words, "root", CommunicationCall::kNoRoot);
    return {call};
  }
  std::vector<CommunicationCall> calls;
  for (const v1::Value& message : messages->list().items()) {
    CommunicationCall& of = calls.emplace_back(call);
    const bool sends = BooleanIn(message.dict(), "sends");
    of.kind = sends ? CommunicationCall::Kind::kSend : CommunicationCall::Kind::kReceive;
    if (messages->list().items_size() > 1) of.operation = sends ? "isend" : "irecv";
    of.peer = IntegerIn(message.dict(), "peer", CommunicationCall::kAnyPeer);
    of.tag = IntegerIn(message.dict(), "tag");
    AddContent(message.dict(), of);
  }
  return calls;
}

}  // namespace msprobe::server
