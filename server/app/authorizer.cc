#include "server/app/authorizer.h"

#include <unistd.h>

#include <string>

#include "server/format/cat.h"

namespace msprobe::server {
namespace {

constexpr std::string_view kScheme = "Bearer ";
constexpr std::string_view kAsksWho = "/msprobe.v1.Control/ControlRun";

std::string_view View(const grpc::string_ref& text) { return {text.data(), text.size()}; }

// A name for the log. gRPC does not tell the caller's address here.
std::string WhoOf(const grpc::AuthContext& context) {
  const Caller caller = CallerOf(context);
  return caller.identity.empty() ? "somebody without a name" : caller.identity;
}

grpc::Status Refusal(grpc::StatusCode code, const std::string& why) { return grpc::Status(code, why); }

}  // namespace

grpc::Status Authorizer::Process(const InputMetadata& given, grpc::AuthContext* context, OutputMetadata* consumed,
                                 OutputMetadata*) {
  const int64_t user = user_ == nullptr ? -1 : user_->load();
  if (user >= 0) context->AddProperty(kSocketUser, std::to_string(user));
  if (tokens_ == nullptr) {
    if (user == 0 || user == geteuid()) context->AddProperty(kIsAdmin, "1");
    return grpc::Status::OK;
  }
  std::optional<Tokens::Bearer> bearer;
  grpc::Status status = Check(given, bearer);
  if (bearer.has_value()) context->AddProperty(kTokenName, bearer->name);
  if (bearer.has_value() && bearer->Has(Role::kAdmin)) context->AddProperty(kIsAdmin, "1");
  const auto path = given.find(":path");
  const std::string_view method = path == given.end() ? std::string_view() : View(path->second);
  if (!status.ok()) {
    const bool unknown = status.error_code() == grpc::StatusCode::UNAUTHENTICATED;
    metrics_->Add(Metric::kCallsDenied, 1, {unknown ? "unauthenticated" : "permission_denied"});
    refusals_->Note(method, WhoOf(*context), status.error_message());
  }
  // Handlers do not get to see the token, except for the one that records who asked.
  if (const auto found = given.find("authorization"); found != given.end() && method != kAsksWho) {
    consumed->insert({std::string(View(found->first)), std::string(View(found->second))});
  }
  return status;
}

grpc::Status Authorizer::Check(const InputMetadata& given, std::optional<Tokens::Bearer>& bearer) const {
  const auto path = given.find(":path");
  const std::string_view method = path == given.end() ? std::string_view() : View(path->second);
  const MethodRole* const row = FindMethodRole(method);
  if (row != nullptr && !row->role.has_value()) return grpc::Status::OK;
  const auto header = given.find("authorization");
  if (header == given.end() || !View(header->second).starts_with(kScheme)) {
    return Refusal(grpc::StatusCode::UNAUTHENTICATED,
                   "this server wants a token; give --token_file, or set MSPROBE_SERVER_TOKEN_FILE");
  }
  auto found = tokens_->Find(View(header->second).substr(kScheme.size()));
  if (!found.ok()) return Refusal(grpc::StatusCode::UNAUTHENTICATED, "this server does not know the token");
  bearer = *std::move(found);
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
