#include "agent/core/config/server_access.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <system_error>
#include <tuple>
#include <utility>

#include "agent/core/config/server_address.h"
#include "agent/core/kept_grpc.h"
#include "agent/core/str_cat.h"
#include "grpcpp/security/credentials.h"

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

}  // namespace

absl::Status ServerAccess::CheckTarget(std::string_view target) const {
  if (token_file.empty() || !ca.empty() || IsOfThisMachine(target)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      Cat("server_token_file is invalid: the token of \"", token_file, "\" would go to \"", target,
          "\" readable by all on the way; give server_ca, the file with the authority of that server's certificate, or "
          "leave out the token"));
}

absl::StatusOr<ServerAccess::Opened> ServerAccess::Open(std::string_view target) const {
  if (absl::Status status = CheckTarget(target); !status.ok()) return status;
  KeepGrpc();
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

ServerAccess ServerAccess::Absolute() const {
  const auto absolute = [](const std::string& path) {
    std::error_code error;
    const std::filesystem::path found = std::filesystem::absolute(path, error);
    return path.empty() || error ? path : found.string();
  };
  return {.ca = ca == kSystem ? ca : absolute(ca),
          .cert = absolute(cert),
          .key = absolute(key),
          .token_file = absolute(token_file)};
}

absl::Status ServerAccess::Check(std::span<const std::string> targets) const {
  if (cert.empty() != key.empty()) {
    return absl::InvalidArgumentError("server_cert and server_key go together: give both or neither");
  }
  if (ca.empty() && !cert.empty()) {
    return absl::InvalidArgumentError(
        Cat("server_cert is invalid: \"", cert, "\" needs server_ca, the file with the server's authority"));
  }
  for (const std::string& target : targets) {
    if (const absl::Status status = Open(target).status(); !status.ok()) {
      return absl::InvalidArgumentError(status.message());
    }
  }
  return absl::OkStatus();
}

}  // namespace msprobe::core
