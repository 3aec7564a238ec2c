#include "agent/core/server_access.h"

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <tuple>
#include <utility>

#include "agent/core/config_field.h"
#include "agent/core/str_cat.h"
#include "rapidjson/document.h"

namespace msprobe::core {
namespace {

constexpr std::string_view kSystem = "system";

absl::StatusOr<std::string> Contents(std::string_view field, const std::string& path) {
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(Cat(field, " is invalid: \"", path, "\" cannot be read"));
  return std::string(std::istreambuf_iterator<char>(file), {});
}

absl::StatusOr<std::string> Pem(std::string_view field, const std::string& path) {
  if (path.empty()) return std::string();
  absl::StatusOr<std::string> content = Contents(field, path);
  if (content.ok() && content->find("-----BEGIN ") == std::string::npos) {
    return absl::InvalidArgumentError(Cat(field, " is invalid: \"", path, "\" is not a PEM file"));
  }
  return content;
}

absl::Status ReadFields(std::string_view json, ServerAccess* access) {
  rapidjson::Document document;
  document.Parse(json.data(), json.size());
  const bool is_object = !document.HasParseError() && document.IsObject();
  for (const auto& [field, variable, out] : {std::tuple("server_ca", "MSPROBE_SERVER_CA", &access->ca),
                                             {"server_cert", "MSPROBE_SERVER_CERT", &access->cert},
                                             {"server_key", "MSPROBE_SERVER_KEY", &access->key},
                                             {"server_token_file", "MSPROBE_SERVER_TOKEN_FILE", &access->token_file}}) {
    const rapidjson::Value* value = nullptr;
    if (is_object && document.HasMember(field)) value = &document[field];
    if (absl::Status status = ReadString(value, field, out); !status.ok()) return status;
    const char* const environment = std::getenv(variable);
    if (out->empty() && environment != nullptr) *out = environment;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ServerAccess::Opened> ServerAccess::Open() const {
  Opened opened;
  if (ca.empty()) {
    opened.credentials = grpc::InsecureChannelCredentials();
  } else {
    grpc::SslCredentialsOptions options;
    for (const auto& [field, path, out] : {std::tuple("server_ca", ca == kSystem ? "" : ca, &options.pem_root_certs),
                                           {"server_cert", cert, &options.pem_cert_chain},
                                           {"server_key", key, &options.pem_private_key}}) {
      absl::StatusOr<std::string> content = Pem(field, path);
      if (!content.ok()) return content.status();
      *out = *std::move(content);
    }
    opened.credentials = grpc::SslCredentials(options);
  }
  if (!token_file.empty()) {
    absl::StatusOr<std::string> content = Contents("server_token_file", token_file);
    if (!content.ok()) return content.status();
    std::istringstream(*content) >> opened.token;
    if (opened.token.empty()) {
      return absl::InvalidArgumentError(Cat("server_token_file is invalid: \"", token_file, "\" is empty"));
    }
  }
  return opened;
}

absl::StatusOr<ServerAccess> ReadServerAccess(std::string_view config_json) {
  ServerAccess access;
  if (absl::Status status = ReadFields(config_json, &access); !status.ok()) return status;
  if (access.cert.empty() != access.key.empty()) {
    return absl::InvalidArgumentError("server_cert and server_key go together: give both or neither");
  }
  if (access.ca.empty() && !access.cert.empty()) {
    return absl::InvalidArgumentError(
        Cat("server_cert is invalid: \"", access.cert, "\" needs server_ca, the file with the server's authority"));
  }
  if (const absl::Status status = access.Open().status(); !status.ok()) {
    return absl::InvalidArgumentError(status.message());
  }
  return access;
}

}  // namespace msprobe::core
