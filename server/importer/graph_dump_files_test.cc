#include "server/importer/graph_dump_files.h"

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

TEST(GraphDumpFiles, ALaunchIsARecordWithItsTensors) {
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

TEST(GraphDumpFiles, KernelsStandInTheOrderOfTheirGraph) {
  MemoryFiles files;
  AddKernels(files);
  files.Add("rank_0/execution_order/ms_execution_order_graph_0.csv",
            "Default/fc-Dense/MatMul-op0,x\nDefault/relu-ReLU/ReLU-op0,x\n");
  files.Add("rank_0/execution_order/ms_global_execution_order_graph_0.csv", "0\n");
  EXPECT_THAT(Import(files).names,
              ElementsAre("Kernel.Parameter.fc.weight.0.forward", "Kernel.MatMul.Default_fc-Dense_MatMul-op0.0.forward",
                          "Kernel.ReLU.Default_relu-ReLU_ReLU-op0.0.forward"));
}

TEST(GraphDumpFiles, AKernelLaunchedTwiceIsTwoRecords) {
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

TEST(GraphDumpFiles, NumbersAreThoseOfStatistics) {
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

TEST(GraphDumpFiles, SaysWhereStatisticsAreWrong) {
  MemoryFiles files;
  files.Add("rank_0/Net/0/0/statistic.csv",
            Cat(kColumns, "Add,Default_Add-op1,0,0,soon,output,0,24,float32,1,1,1,1,1\n"));
  ReplayedSessions sessions;
  DumpImportOptions options;
  options.run = "r";
  const auto refused = ImportDump(files, options, sessions);
  EXPECT_THAT(refused.status().ToString(), HasSubstr("rank_0/Net/0/0/statistic.csv: line 2: columns Op Type"));
}

TEST(GraphDumpFiles, OtherFilesAreLeftOutWithAWarning) {
  MemoryFiles files;
  AddKernels(files);
  files.Add("rank_0/Net/0/0/0123456789.npy", Npy({1}));
  const Imported imported = Import(files);
  EXPECT_THAT(imported.response.warnings(),
              Contains("rank_0/Net/0/0/0123456789.npy: left out, a dump has no such file"));
}

std::string ParentOf(const Imported& imported, std::string_view name) {
  for (const v1::Record& record : imported.records) {
    if (record.full_name() == name) return record.parent();
  }
  return "no record";
}

// Of a cell in a cell, as TensorDump and DumpGradient write them for a forward and a backward pass.
TEST(GraphDumpFiles, TensorsOfCellsAreTheirCalls) {
  MemoryFiles files;
  const std::string directory = "step2/rank0/dump_tensor_data/";
  const char* const names[] = {
      "Cell.net.Net.forward.input.0_float32_0",          "Cell.net.fc.Dense.forward.input.0_float32_1",
      "Cell.net.fc.Dense.forward.input.1_int32_2",       "Cell.net.fc.Dense.forward.output.0_float32_3",
      "Cell.net.Net.forward.output.0_float32_4",         "Cell.net.Net.backward.input.0_float32_5",
      "Cell.net.fc.Dense.backward.input.0_in_float32_6", "Cell.net.fc.Dense.backward.output.0_bfloat16_7"};
  for (const char* name : names)
    files.Add(Cat(directory, name, ".npy"), Npy({1, static_cast<float>(files.paths().size())}));
  const Imported imported = Import(files, 2);
  EXPECT_THAT(imported.names, ElementsAre("Cell.net.fc.Dense.forward.0", "Cell.net.Net.forward.0",
                                          "Cell.net.Net.backward.0", "Cell.net.fc.Dense.backward.0"));
  EXPECT_EQ(imported.response.payloads(), 8u);
  EXPECT_EQ(Leaf(imported.records[0], 0, 1).max().real(), 2);
  EXPECT_EQ(Leaf(imported.records[0], 1, 0).max().real(), 3);
  EXPECT_EQ(imported.records[3].fields().dict().entries(0).key(), "input") << "the gradients of the results";
  EXPECT_EQ(Leaf(imported.records[3], 1, 0).dtype(), "BFloat16");
  EXPECT_EQ(ParentOf(imported, "Cell.net.fc.Dense.forward.0"), "Cell.net.Net.forward.0");
  EXPECT_EQ(ParentOf(imported, "Cell.net.fc.Dense.backward.0"), "Cell.net.Net.backward.0");
  EXPECT_EQ(ParentOf(imported, "Cell.net.Net.forward.0"), "");
}

TEST(GraphDumpFiles, StatisticsOfCellsAreRowsOfTheirOperators) {
  MemoryFiles files;
  const auto row = [](std::string_view path, int time, int slot, int max) {
    return Cat("TensorDump,Default_TensorDump-op1|", path, "|,0,0,", time, ",input,", slot, ",24,float32,\"(2,3)\",",
               max, ",-1,1.5,6.25\n");
  };
  const std::string_view tensor = "/dump/{step}/{rank}/dump_tensor_data/Cell-net-fc-Dense-forward-input-0";
  files.Add("rank_1/Net/0/0/statistic.csv",
            Cat(kColumns, row(tensor, 7, 0, 1), row(tensor, 7, 1, 4), row(tensor, 9, 1, 5)));
  const Imported imported = Import(files);
  EXPECT_THAT(imported.names, ElementsAre("Cell.net.fc.Dense.forward.0", "Cell.net.fc.Dense.forward.1"));
  EXPECT_EQ(Leaf(imported.records[0], 0, 0).dtype(), "Float32");
  EXPECT_EQ(Leaf(imported.records[0], 0, 0).max().real(), 4);
  EXPECT_EQ(Leaf(imported.records[1], 0, 0).max().real(), 5);
}

}  // namespace
}  // namespace msprobe::server
