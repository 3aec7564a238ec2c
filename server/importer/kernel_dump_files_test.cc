#include "server/importer/kernel_dump_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "server/format/cat.h"
#include "server/format/tensor_file/npy_file.h"
#include "server/importer/dump_importer.h"
#include "server/importer/replayed_sessions.h"

namespace msprobe::server {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

std::string Npy(const std::vector<float>& values) {
  std::string file;
  auto writer =
      NewNpyFileWriter({v1::DTYPE_FLOAT32, {static_cast<int64_t>(values.size())}}, [&](std::string_view bytes) {
        file += bytes;
        return absl::OkStatus();
      });
  const std::string_view bytes(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  EXPECT_TRUE((*writer)->Append(bytes).ok() && (*writer)->Finish().ok());
  return file;
}

struct Imported {
  std::vector<std::string> names;
  std::vector<v1::Record> records;
  v1::ImportResponse response;
};

Imported Import(MemoryFiles& files, uint32_t step = 0) {
  ReplayedSessions sessions;
  DumpImportOptions options;
  options.run = "r";
  absl::StatusOr<v1::ImportResponse> response = ImportDump(files, options, sessions);
  EXPECT_TRUE(response.ok()) << response.status();
  Imported imported;
  imported.response = *response;
  EXPECT_TRUE(sessions.ReadStep(0, step)
                  ->ForEachRecord([&](const v1::Record& record, uint64_t) {
                    imported.names.push_back(record.full_name());
                    imported.records.push_back(record);
                    return absl::OkStatus();
                  })
                  .ok());
  return imported;
}

const v1::TensorLeaf& Leaf(const v1::Record& record, int side, int index) {
  return record.fields().dict().entries(side).value().list().items(index).tensor();
}

// As MindSpore 2.7.2 writes them on a CPU.
void AddKernels(MemoryFiles& files, uint32_t step = 0) {
  const std::string run = Cat("rank_0/Net/0/", step, "/");
  files.Add(run + "ReLU.Default_relu-ReLU_ReLU-op0.0.0.30.input.0.DefaultFormat.Float32.npy", Npy({-1, 2}));
  files.Add(run + "ReLU.Default_relu-ReLU_ReLU-op0.0.0.31.output.0.DefaultFormat.Float32.npy", Npy({0, 2}));
  files.Add(run + "MatMul.Default_fc-Dense_MatMul-op0.0.0.40.output.0.DefaultFormat.Float32.npy", Npy({3, 4}));
  files.Add(run + "Parameter.fc.weight.0.0.50.output.0.DefaultFormat.Float32.npy", Npy({1, 1}));
}

TEST(KernelDumpFiles, ALaunchIsARecordWithItsTensors) {
  MemoryFiles files;
  AddKernels(files);
  const Imported imported = Import(files);
  EXPECT_THAT(imported.names,
              ElementsAre("Kernel.Parameter.fc.weight.0.forward", "Kernel.ReLU.Default_relu-ReLU_ReLU-op0.0.forward",
                          "Kernel.MatMul.Default_fc-Dense_MatMul-op0.0.forward"));
  EXPECT_EQ(imported.response.payloads(), 4u);
  const v1::TensorLeaf& in = Leaf(imported.records[1], 0, 0);
  EXPECT_EQ(in.dtype(), "Float32");
  EXPECT_EQ(in.max().real(), 2);
  EXPECT_EQ(in.min().real(), -1);
  EXPECT_FLOAT_EQ(in.norm(), std::sqrt(5.0F));
  EXPECT_EQ(in.payload().size(), 8u);
}

TEST(KernelDumpFiles, KernelsStandInTheOrderOfTheirGraph) {
  MemoryFiles files;
  AddKernels(files);
  files.Add("rank_0/execution_order/ms_execution_order_graph_0.csv",
            "Default/fc-Dense/MatMul-op0,x\nDefault/relu-ReLU/ReLU-op0,x\n");
  files.Add("rank_0/execution_order/ms_global_execution_order_graph_0.csv", "0\n");
  EXPECT_THAT(Import(files).names,
              ElementsAre("Kernel.Parameter.fc.weight.0.forward", "Kernel.MatMul.Default_fc-Dense_MatMul-op0.0.forward",
                          "Kernel.ReLU.Default_relu-ReLU_ReLU-op0.0.forward"));
}

TEST(KernelDumpFiles, AKernelLaunchedTwiceIsTwoRecords) {
  MemoryFiles files;
  AddKernels(files, 3);
  files.Add("rank_0/Net/0/3/ReLU.Default_relu-ReLU_ReLU-op0.0.0.60.output.0.DefaultFormat.Float32.npy", Npy({9, 9}));
  const Imported imported = Import(files, 3);
  EXPECT_EQ(imported.names.back(), "Kernel.ReLU.Default_relu-ReLU_ReLU-op0.1.forward");
  EXPECT_EQ(Leaf(imported.records.back(), 1, 0).max().real(), 9);
}

constexpr std::string_view kColumns =
    "Op Type,Op Name,Task ID,Stream ID,Timestamp,IO,Slot,Data Size,Data Type,Shape,Max Value,Min Value,Avg Value,"
    "L2Norm Value\n";

TEST(KernelDumpFiles, NumbersAreThoseOfStatistics) {
  MemoryFiles files;
  files.Add("rank_1/Net/0/0/statistic.csv",
            Cat(kColumns, "Add,Default_Add-op1,0,0,7,output,0,24,float32,\"(2,3)\",4,-1,1.5,6.25\n"));
  const Imported imported = Import(files);
  EXPECT_THAT(imported.names, ElementsAre("Kernel.Add.Default_Add-op1.0.forward"));
  const v1::TensorLeaf& leaf = Leaf(imported.records[0], 1, 0);
  EXPECT_THAT(leaf.shape(), ElementsAre(2, 3));
  EXPECT_EQ(leaf.norm(), 6.25);
  EXPECT_EQ(imported.response.payloads(), 0u);
}

TEST(KernelDumpFiles, SaysWhereStatisticsAreWrong) {
  MemoryFiles files;
  files.Add("rank_0/Net/0/0/statistic.csv",
            Cat(kColumns, "Add,Default_Add-op1,0,0,soon,output,0,24,float32,1,1,1,1,1\n"));
  ReplayedSessions sessions;
  DumpImportOptions options;
  options.run = "r";
  const auto refused = ImportDump(files, options, sessions);
  EXPECT_THAT(refused.status().ToString(), HasSubstr("rank_0/Net/0/0/statistic.csv: line 2: columns Op Type"));
}

TEST(KernelDumpFiles, OtherFilesAreLeftOutWithAWarning) {
  MemoryFiles files;
  AddKernels(files);
  files.Add("rank_0/Net/0/0/0123456789.npy", Npy({1}));
  const Imported imported = Import(files);
  EXPECT_THAT(imported.response.warnings(),
              Contains("rank_0/Net/0/0/0123456789.npy: left out, a dump has no such file"));
}

}  // namespace
}  // namespace msprobe::server
