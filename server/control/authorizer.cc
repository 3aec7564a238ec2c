#include "server/control/authorizer.h"

#include <string>

#include "server/format/cat.h"

namespace msprobe::server {
namespace {

constexpr std::string_view kScheme = "Bearer ";

std::string_view View(grpc::string_ref text) { return {text.data(), text.size()}; }

grpc::Status Refusal(grpc::StatusCode code, const std::string& why) { return grpc::Status(code, why); }

}  // namespace

grpc::Status Authorizer::Process(const InputMetadata& given, grpc::AuthContext*, OutputMetadata* consumed,
                                 OutputMetadata*) {
  grpc::Status status = Check(given);
  if (!status.ok()) {
    const bool unknown = status.error_code() == grpc::StatusCode::UNAUTHENTICATED;
    metrics_->Add(Metric::kCallsDenied, 1, {unknown ? "unauthenticated" : "permission_denied"});
  }
  // A handler has no business with the token.
  if (const auto found = given.find("authorization"); found != given.end()) {
    consumed->insert({std::string(View(found->first)), std::string(View(found->second))});
  }
  return status;
}

grpc::Status Authorizer::Check(const InputMetadata& given) const {
  const auto path = given.find(":path");
  const std::string_view method = path == given.end() ? std::string_view() : View(path->second);
  const MethodRole* const row = FindMethodRole(method);
  if (row != nullptr && !row->role.has_value()) return grpc::Status::OK;
  const auto header = given.find("authorization");
  if (header == given.end() || !View(header->second).starts_with(kScheme)) {
    return Refusal(grpc::StatusCode::UNAUTHENTICATED,
                   "this server wants a token; give --token_file, or set MSPROBE_SERVER_TOKEN_FILE");
  }
  const auto bearer = tokens_->Find(View(header->second).substr(kScheme.size()));
  if (!bearer.ok()) return Refusal(grpc::StatusCode::UNAUTHENTICATED, "this server does not know the token");
  if (row == nullptr || !bearer->Has(*row->role)) {
    return Refusal(grpc::StatusCode::PERMISSION_DENIED,
                   Cat("the token of \"", bearer->name, "\" does not have the role ",
                       row == nullptr ? "for " : RoleName(*row->role), row == nullptr ? method : "", ""));
  }
  return grpc::Status::OK;
}

}  // namespace msprobe::server
