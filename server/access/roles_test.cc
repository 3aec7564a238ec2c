#include "server/access/roles.h"

#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "msprobe/v1/analysis.pb.h"
#include "msprobe/v1/checkpoints.pb.h"
#include "msprobe/v1/communication.pb.h"
#include "msprobe/v1/control.pb.h"
#include "msprobe/v1/environment.pb.h"
#include "msprobe/v1/gradients.pb.h"
#include "msprobe/v1/ingest.pb.h"
#include "msprobe/v1/jobs.pb.h"
#include "msprobe/v1/query.pb.h"
#include "msprobe/v1/report.pb.h"
#include "msprobe/v1/tensors.pb.h"
#include "server/shards/shards.pb.h"

namespace msprobe::server {
namespace {

TEST(RolesTest, EveryMethodOfEveryServiceHasARole) {
  // The descriptor pool knows a file once one of its messages has been used.
  v1::CompareRequest().GetDescriptor();
  v1::CheckpointDifference().GetDescriptor();
  v1::ProcessEnvironment().GetDescriptor();
  v1::ServerInfo().GetDescriptor();
  v1::Hello().GetDescriptor();
  v1::RunSummary().GetDescriptor();
  v1::ReportRequest().GetDescriptor();
  v1::TensorPlace().GetDescriptor();
  v1::Job().GetDescriptor();
  v1::SignSimilarity().GetDescriptor();
  v1::Communication().GetDescriptor();
  shards::FindRunRequest().GetDescriptor();
  int methods = 0;
  std::vector<std::string> names = {"server/shards/shards.proto"};
  for (const auto& file : std::filesystem::directory_iterator(MSPROBE_PROTO_DIRECTORY)) {
    names.push_back("msprobe/v1/" + file.path().filename().string());
  }
  for (const std::string& name : names) {
    const auto* descriptor = google::protobuf::DescriptorPool::generated_pool()->FindFileByName(name);
    ASSERT_NE(descriptor, nullptr) << name;
    for (int i = 0; i < descriptor->service_count(); ++i) {
      for (int k = 0; k < descriptor->service(i)->method_count(); ++k) {
        const auto* method = descriptor->service(i)->method(k);
        const std::string path = "/" + method->service()->full_name() + "/" + method->name();
        const MethodRole* row = FindMethodRole(path);
        ASSERT_NE(row, nullptr) << path << " has no line in server/access/roles.cc";
        EXPECT_TRUE(row->role.has_value()) << path << " is open to everybody";
        ++methods;
      }
    }
  }
  EXPECT_GE(methods, 25);
}

TEST(RolesTest, WhatIsNotInTheTableIsNobodys) {
  EXPECT_EQ(FindMethodRole("/msprobe.v1.Query/ListRunsAndMore"), nullptr);
  EXPECT_EQ(FindMethodRole(""), nullptr);
}

TEST(RolesTest, NamesComeBack) {
  for (const char* name : {"write", "read", "control", "work", "admin"}) EXPECT_EQ(RoleName(*RoleOfName(name)), name);
  EXPECT_FALSE(RoleOfName("root").has_value());
}

}  // namespace
}  // namespace msprobe::server
