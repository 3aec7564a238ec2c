#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/protobuf/message.h"
#include "server/format/storage/storage.pb.h"

namespace msprobe::server {

// Every stored value is a version byte and a serialized message.
inline constexpr char kValueVersion = 1;

std::string EncodeValue(const google::protobuf::Message& message);
// DataLoss: the version is unknown, or the bytes do not parse.
absl::Status DecodeValue(std::string_view bytes, google::protobuf::Message& message);

template <typename Message>
absl::StatusOr<Message> DecodeAs(std::string_view bytes) {
  Message message;
  if (absl::Status status = DecodeValue(bytes, message); !status.ok()) return status;
  return message;
}

// "v1 msprobe.v1.Block { step: 3 ... }", on one line.
std::string ValueToString(std::string_view bytes, google::protobuf::Message& scratch);

// A definition keeps the bytes that were sent, because its id is the hash of those bytes.
enum class DefinitionKind : char { kStructure = 'T', kStack = 'K' };
struct StoredDefinition {
  DefinitionKind kind = DefinitionKind::kStructure;
  std::string bytes;
};
std::string EncodeDefinition(DefinitionKind kind, std::string_view bytes);
absl::StatusOr<StoredDefinition> DecodeDefinition(std::string_view value);

}  // namespace msprobe::server
