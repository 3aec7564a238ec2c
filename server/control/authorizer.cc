#include "server/control/authorizer.h"

#include <string>

#include "server/format/cat.h"
#include "server/ingest/caller_name.h"

namespace msprobe::server {
namespace {

constexpr std::string_view kScheme = "Bearer ";
constexpr std::string_view kAsksWho = "/msprobe.v1.Control/ControlRun";

std::string_view View(grpc::string_ref text) { return {text.data(), text.size()}; }

grpc::Status Refusal(grpc::StatusCode code, const std::string& why) { return grpc::Status(code, why); }

}  // namespace

grpc::Status Authorizer::Process(const InputMetadata& given, grpc::AuthContext* context, OutputMetadata* consumed,
                                 OutputMetadata*) {
  std::string name;
  grpc::Status status = Check(given, name);
  if (!name.empty()) context->AddProperty(kTokenName, name);
  if (!status.ok()) {
    const bool unknown = status.error_code() == grpc::StatusCode::UNAUTHENTICATED;
    metrics_->Add(Metric::kCallsDenied, 1, {unknown ? "unauthenticated" : "permission_denied"});
  }
  // A handler has no business with the token, but for the one that keeps who asked.
  const auto path = given.find(":path");
  const bool asks_who = path != given.end() && View(path->second) == kAsksWho;
  if (const auto found = given.find("authorization"); found != given.end() && !asks_who) {
    consumed->insert({std::string(View(found->first)), std::string(View(found->second))});
  }
  return status;
}

grpc::Status Authorizer::Check(const InputMetadata& given, std::string& name) const {
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
  name = bearer->name;
  if (row == nullptr || !bearer->Has(*row->role)) {
    return Refusal(grpc::StatusCode::PERMISSION_DENIED,
                   Cat("the token of \"", bearer->name, "\" does not have the role ",
                       row == nullptr ? "for " : RoleName(*row->role), row == nullptr ? method : "", ""));
  }
  return grpc::Status::OK;
}

std::string Authorizer::NameOf(std::string_view header) const {
  if (!header.starts_with(kScheme)) return {};
  const auto bearer = tokens_->Find(header.substr(kScheme.size()));
  return bearer.ok() ? bearer->name : std::string();
}

}  // namespace msprobe::server
