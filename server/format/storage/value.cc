#include "server/format/storage/value.h"

#include <google/protobuf/text_format.h>

#include "server/format/cat.h"

namespace msprobe::server {

std::string EncodeValue(const google::protobuf::Message& message) {
  std::string bytes(1, kValueVersion);
  static_cast<void>(message.AppendToString(&bytes));
  return bytes;
}

absl::Status DecodeValue(std::string_view bytes, google::protobuf::Message& message) {
  const std::string name(message.GetDescriptor()->full_name());
  if (bytes.empty()) return absl::DataLossError(Cat("empty value where a ", name, " should be"));
  if (bytes[0] != kValueVersion) {
    return absl::DataLossError(Cat("a ", name, " of version ", static_cast<int>(bytes[0]),
                                   "; this server reads version ", static_cast<int>(kValueVersion)));
  }
  if (!message.ParseFromArray(bytes.data() + 1, static_cast<int>(bytes.size() - 1))) {
    return absl::DataLossError(Cat("a ", name, " of ", bytes.size(), " bytes does not parse"));
  }
  return absl::OkStatus();
}

std::string ValueToString(std::string_view bytes, google::protobuf::Message& scratch) {
  if (absl::Status status = DecodeValue(bytes, scratch); !status.ok()) return std::string(status.message());
  std::string text;  // a blank ends each field
  google::protobuf::TextFormat::Printer printer;
  printer.SetSingleLineMode(true);
  static_cast<void>(printer.PrintToString(scratch, &text));
  return Cat("v", static_cast<int>(bytes[0]), " ", scratch.GetDescriptor()->full_name(), " { ", text, "}");
}

std::string EncodeDefinition(DefinitionKind kind, std::string_view bytes) {
  return Cat(std::string(1, kValueVersion), std::string(1, static_cast<char>(kind)), bytes);
}

absl::StatusOr<StoredDefinition> DecodeDefinition(std::string_view value) {
  if (value.size() < 2 || value[0] != kValueVersion || (value[1] != 'T' && value[1] != 'K')) {
    return absl::DataLossError("a definition with an unknown version or kind");
  }
  return StoredDefinition{static_cast<DefinitionKind>(value[1]), std::string(value.substr(2))};
}

}  // namespace msprobe::server
