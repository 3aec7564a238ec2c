#include "server/access/roles.h"

#include <array>

namespace msprobe::server {
namespace {

constexpr std::array<std::string_view, 5> kNames = {"write", "read", "control", "work", "admin"};

constexpr std::array kRoles = std::to_array<MethodRole>({
    {"/msprobe.v1.Ingest/Stream", Role::kWrite},
    {"/msprobe.v1.Query/ListRuns", Role::kRead},
    {"/msprobe.v1.Query/ListSteps", Role::kRead},
    {"/msprobe.v1.Query/ReadRecords", Role::kRead},
    {"/msprobe.v1.Query/ReadTensor", Role::kRead},
    {"/msprobe.v1.Query/Export", Role::kRead},
    {"/msprobe.v1.Query/Import", Role::kWrite},
    {"/msprobe.v1.Query/DeleteRun", Role::kAdmin},
    {"/msprobe.v1.Analysis/Compare", Role::kRead},
    {"/msprobe.v1.Analysis/CompareTable", Role::kRead},
    {"/msprobe.v1.Analysis/Graph", Role::kRead},
    {"/msprobe.v1.Analysis/TrendDatabase", Role::kRead},
    {"/msprobe.v1.Analysis/FirstDivergence", Role::kRead},
    {"/msprobe.v1.Analysis/Overflow", Role::kRead},
    {"/msprobe.v1.Analysis/Replicas", Role::kRead},
    {"/msprobe.v1.Analysis/Trend", Role::kRead},
    {"/msprobe.v1.Analysis/Find", Role::kRead},
    {"/msprobe.v1.Analysis/PreviewTensor", Role::kRead},
    {"/msprobe.v1.Report/MakeReport", Role::kRead},
    {"/msprobe.v1.Gradients/CompareSigns", Role::kRead},
    {"/msprobe.v1.Communications/FindMismatches", Role::kRead},
    {"/msprobe.v1.Communications/FindHang", Role::kRead},
    {"/msprobe.v1.Checkpoints/DiffCheckpoints", Role::kRead},
    {"/msprobe.v1.Checkpoints/CompareWeights", Role::kRead},
    {"/msprobe.v1.Environments/ReadEnvironment", Role::kRead},
    {"/msprobe.v1.Tensors/ListTensors", Role::kRead},
    {"/msprobe.v1.Tensors/SummarizeTensor", Role::kRead},
    {"/msprobe.v1.Tensors/DiffTensors", Role::kRead},
    {"/msprobe.v1.Tensors/ConvertTensors", Role::kRead},
    {"/msprobe.v1.Analysis/Measure", Role::kRead},
    {"/msprobe.v1.Analysis/Judge", Role::kRead},
    {"/msprobe.v1.Control/GetServerInfo", Role::kRead},
    {"/msprobe.v1.Control/Drain", Role::kAdmin},
    {"/msprobe.v1.Control/PinRun", Role::kControl},
    {"/msprobe.v1.Control/Backup", Role::kAdmin},
    {"/msprobe.v1.Control/ControlRun", Role::kControl},
    {"/msprobe.v1.Monitor/ReadSeries", Role::kRead},
    {"/msprobe.v1.Monitor/ListAlarms", Role::kRead},
    {"/msprobe.v1.Monitor/GetRules", Role::kRead},
    {"/msprobe.v1.Monitor/SetRules", Role::kControl},
    {"/msprobe.v1.Jobs/CreateJob", Role::kWrite},
    {"/msprobe.v1.Jobs/AddItems", Role::kWrite},
    {"/msprobe.v1.Jobs/ListJobs", Role::kRead},
    {"/msprobe.v1.Jobs/ReadResults", Role::kRead},
    {"/msprobe.v1.Jobs/CancelJob", Role::kWrite},
    {"/msprobe.v1.Jobs/DeleteJob", Role::kWrite},
    {"/msprobe.v1.Jobs/Lease", Role::kWork},
    {"/msprobe.v1.Jobs/Heartbeat", Role::kWork},
    {"/msprobe.v1.Jobs/Finish", Role::kWork},
    {"/msprobe.v1.Jobs/Return", Role::kWork},
    {"/msprobe.v1.Jobs/ReadPayload", Role::kWork},
    // The servers of a cluster show each other a token with the role admin; the role read is enough to read.
    {"/msprobe.shards.Shards/FindRun", Role::kRead},
    {"/msprobe.shards.Shards/PlaceRun", Role::kAdmin},
    {"/msprobe.shards.Shards/ListRuns", Role::kRead},
    {"/msprobe.shards.Shards/ReadRun", Role::kRead},
    {"/msprobe.shards.Shards/ReadStep", Role::kRead},
    {"/msprobe.shards.Shards/ReadPayload", Role::kRead},
    {"/msprobe.shards.Shards/ReadSeries", Role::kRead},
    {"/msprobe.shards.Shards/ListAlarms", Role::kRead},
    {"/msprobe.shards.Shards/SetRules", Role::kControl},
    {"/msprobe.shards.Shards/PinRun", Role::kControl},
    // The request names the user who asked, so a client's token must not be enough.
    {"/msprobe.shards.Shards/ControlRun", Role::kAdmin},
    {"/msprobe.shards.Shards/DeleteRun", Role::kAdmin},
    // A health check of Kubernetes has no token, and learns only whether the server is serving.
    {"/grpc.health.v1.Health/*", std::nullopt},
    {"/grpc.reflection.v1alpha.ServerReflection/*", Role::kRead},
});

bool Matches(std::string_view pattern, std::string_view method) {
  return pattern.ends_with('*') ? method.starts_with(pattern.substr(0, pattern.size() - 1)) : method == pattern;
}

}  // namespace

std::string_view RoleName(Role role) { return kNames[static_cast<size_t>(role)]; }

std::optional<Role> RoleOfName(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<Role>(i);
  }
  return std::nullopt;
}

std::span<const MethodRole> MethodRoles() { return kRoles; }

const MethodRole* FindMethodRole(std::string_view method) {
  for (const MethodRole& row : kRoles) {
    if (Matches(row.method, method)) return &row;
  }
  return nullptr;
}

}  // namespace msprobe::server
