#include "server/importer/dump_importer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <tuple>

#include "server/exporter/step_exporter.h"
#include "server/format/cat.h"
#include "server/format/tensor_file/npy_file.h"
#include "server/format/tensor_file/pt_file.h"
#include "server/importer/record_name.h"
#include "server/importer/replayed_sessions.h"

namespace msprobe::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::string_view kHead =
    R"({"task":"statistics","level":"mix","framework":"pytorch","dump_data_dir":null,"data":)";

std::string Dump(std::string_view data) { return Cat(kHead, data, "}"); }

std::string Tensor(std::string_view rest) {
  return Cat(R"({"T.f.0.forward":{"output":[{"type":"torch.Tensor","dtype":"torch.float32","shape":[2],)", rest,
             "}]}}");
}

absl::StatusOr<v1::ImportResponse> Import(FileSource& files, ReplayedSessions& sessions) {
  DumpImportOptions options;
  options.run = "r";
  return ImportDump(files, options, sessions);
}

std::string Refusal(const std::string& path, std::string content) {
  MemoryFiles files;
  files.Add("step0/rank0/dump.json", Dump("{}"));
  files.Add(path, std::move(content));
  ReplayedSessions sessions;
  absl::StatusOr<v1::ImportResponse> response = Import(files, sessions);
  EXPECT_FALSE(response.ok());
  EXPECT_THAT(sessions.sessions(), IsEmpty());  // nothing was begun
  return response.status().ToString();
}

std::vector<v1::Record> Records(const ReplayedSessions& sessions, size_t session, uint32_t step) {
  std::vector<v1::Record> records;
  EXPECT_TRUE(sessions.ReadStep(session, step)
                  ->ForEachRecord([&](const v1::Record& record, uint64_t) {
                    records.push_back(record);
                    return absl::OkStatus();
                  })
                  .ok());
  return records;
}

v1::TensorLeaf OneLeaf(std::string_view rest) {
  MemoryFiles files;
  files.Add("dump.json", Dump(Tensor(rest)));
  ReplayedSessions sessions;
  absl::StatusOr<v1::ImportResponse> response = Import(files, sessions);
  EXPECT_TRUE(response.ok()) << response.status();
  return Records(sessions, 0, 0)[0].fields().dict().entries(0).value().list().items(0).tensor();
}

TEST(RecordName, AllForms) {
  const auto parse = [](std::string_view name) { return *ParseRecordName(name); };
  EXPECT_EQ(parse("Functional.linear.12.backward").name, "Functional.linear");
  EXPECT_EQ(parse("Functional.linear.12.backward").count, 12u);
  EXPECT_EQ(parse("Functional.linear.12.backward").direction, v1::DIRECTION_BACKWARD);
  EXPECT_EQ(parse("Cell.net.conv1.Conv2d.forward.0").kind, v1::RECORD_MODULE);
  EXPECT_EQ(parse("Module.x.Linear.parameters_grad.0").kind, v1::RECORD_PARAMETERS_GRAD);
  EXPECT_EQ(parse("y_grad.1.debug").kind, v1::RECORD_DEBUG);
  EXPECT_EQ(parse("Functional.linear.12.backward").pass, 0u);
  const RecordName api = parse("Functional.linear.12.backward.2");
  EXPECT_EQ(std::tuple(api.name, api.kind, api.count, api.pass),
            std::tuple("Functional.linear", v1::RECORD_API, 12u, 2u));
  const RecordName module = parse("Module.x.Linear.backward.3.1");
  EXPECT_EQ(std::tuple(module.name, module.kind, module.count, module.pass),
            std::tuple("Module.x.Linear", v1::RECORD_MODULE, 3u, 1u));
  EXPECT_EQ(parse("Module.x.Linear.backward.1").pass, 0u);
  for (const char* name : {"", "optimizer", "a.b", ".0.forward", "a.00.forward", "a.-1.forward",
                           "a.99999999999.forward", "a.forward.x", "a.0.sideways", "a.parameters_grad"}) {
    EXPECT_FALSE(ParseRecordName(name).has_value()) << name;
  }
}

TEST(ParseFrame, TakesTheToolsFormApart) {
  const v1::Frame frame = ParseFrame("File /a b, line 1, in c.py, line 12, in <module>, \n x = f(1, in_, 2)");
  EXPECT_EQ(frame.path(), "/a b, line 1, in c.py");
  EXPECT_EQ(frame.line(), 12u);
  EXPECT_EQ(frame.function(), "<module>");
  EXPECT_EQ(frame.source(), "x = f(1, in_, 2)");
  EXPECT_EQ(ParseFrame("somewhere else").path(), "somewhere else");
  EXPECT_EQ(ParseFrame("somewhere else").line(), 0u);
}

TEST(DumpImporter, NamesFileAndPlaceOfWhatIsMalformed) {
  EXPECT_THAT(Refusal("step0/rank0/dump.json", "{\n \"data\": {,}}"),
              HasSubstr("step0/rank0/dump.json: line 2, column 11"));
  EXPECT_THAT(Refusal("step0/rank0/dump.json", ""), HasSubstr("step0/rank0/dump.json: line 1, column 1"));
  EXPECT_THAT(Refusal("step0/rank0/dump.json", "[]"), HasSubstr("a JSON object is expected, not a list"));
  EXPECT_THAT(Refusal("step0/rank0/dump.json", "{}"), HasSubstr("has no data"));
  EXPECT_THAT(Refusal("step0/rank0/dump.json", R"({"task":1,"data":{}})"),
              HasSubstr("task: a text is expected, not the number 1"));
  EXPECT_THAT(Refusal("step0/rank0/dump.json", Dump("[]")), HasSubstr("data: an object is expected, not a list"));
  EXPECT_THAT(
      Refusal("step0/rank0/dump.json", Dump(R"({"T.f.0.forward":3})")),
      HasSubstr("data.T.f.0.forward: an object of fields (input_args, output, ...) is expected, not the number 3"));
  EXPECT_THAT(Refusal("step0/rank0/dump.json", Dump(Tensor(R"("Max":"x","Min":1)"))),
              HasSubstr("data.T.f.0.forward.output.0.Max: a number, a bool or null is expected, not the text \"x\""));
  EXPECT_THAT(Refusal("step0/rank0/dump.json", Dump(Tensor(R"("md5":"xyz")"))),
              HasSubstr("output.0.md5: 8 hexadecimal digits"));
  EXPECT_THAT(Refusal("step0/rank0/dump.json",
                      Dump(R"({"T.f.0.forward":{"o":{"type":"torch.Tensor","dtype":"x","shape":[-1]}}})")),
              HasSubstr("data.T.f.0.forward.o.shape: a size from 0 is expected, not the number -1"));
  EXPECT_THAT(Refusal("step0/rank0/construct.json", R"({"a.0.forward":3})"),
              HasSubstr("construct.json: a.0.forward: the name of a module"));
  EXPECT_THAT(Refusal("step0/rank0/stack.json", R"({"0":[["a"],[3]]})"), HasSubstr("stack.json: 0: a frame as text"));
  EXPECT_THAT(Refusal("step0/rank0/stack.json", R"({"0":3})"), HasSubstr("stack.json: 0: a list is expected"));
  EXPECT_THAT(Refusal("step1/rank0/stack.json", "{}"), HasSubstr("'step1/rank0' has neither dump.json nor debug.json"));
  EXPECT_THAT(Refusal("other/step0/rank0/dump.json", Dump("{}")), HasSubstr("are both step 0 of one rank"));
  EXPECT_THAT(Refusal("../dump.json", Dump("{}")), HasSubstr("not a relative path"));
  EXPECT_THAT(
      Refusal("step1/rank4294967295/dump.json", Dump("{}")),
      HasSubstr("rank4294967295/dump.json: rank4294967295: a number of up to 2147483647 is expected behind rank"));
  EXPECT_THAT(Refusal("step4294967296/rank0/dump.json", Dump("{}")), HasSubstr("a number of up to 4294967295"));
}

TEST(DumpImporter, DeepNestingIsRefused) {
  std::string deep;
  for (int i = 0; i < 200000; ++i) deep += '[';
  for (int i = 0; i < 200000; ++i) deep += ']';
  EXPECT_THAT(Refusal("step0/rank0/dump.json", Dump(Cat(R"({"T.f.0.forward":{"o":)", deep, "}}"))),
              HasSubstr("nested over 64 deep"));
}

TEST(DumpImporter, StepsAndRanks) {
  MemoryFiles files;
  for (const char* directory : {"step0/rank0", "step1/rank0", "step1/rank1", "step0/proc12"}) {
    files.Add(Cat("dump_path/", directory, "/dump.json"), Dump(R"({"T.f.0.forward":{"output":[null]}})"));
  }
  files.Add("dump_path/step1/rank1/INCOMPLETE", "why");
  files.Add("dump_path/notes.txt", "mine");
  ReplayedSessions sessions;
  absl::StatusOr<v1::ImportResponse> response = Import(files, sessions);
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->steps(), 2u);
  EXPECT_EQ(response->records(), 4u);
  EXPECT_THAT(response->warnings(), ElementsAre(HasSubstr("notes.txt")));
  ASSERT_EQ(sessions.sessions().size(), 3u);
  EXPECT_EQ(sessions.sessions()[0]->hello.rank().kind(), v1::Rank::PROCESS);
  EXPECT_EQ(sessions.sessions()[0]->hello.rank().number(), 12u);
  EXPECT_EQ(sessions.sessions()[1]->steps.size(), 2u);
  EXPECT_EQ(sessions.ReadStep(1, 1)->state(), v1::StepSummary::COMPLETE);
  EXPECT_EQ(sessions.ReadStep(2, 1)->state(), v1::StepSummary::INCOMPLETE);
}

TEST(DumpImporter, WhatTheOriginalDoesNotSayStaysUnsaid) {
  const v1::TensorLeaf known = OneLeaf(R"("Max":2.5,"Min":-1.0,"Mean":1.0,"Norm":3.0,"requires_grad":true)");
  EXPECT_EQ(known.max().real(), 2.5);
  EXPECT_EQ(known.norm(), 3.0);
  EXPECT_TRUE(known.requires_grad());
  EXPECT_FALSE(known.has_variance());
  const v1::TensorLeaf partly = OneLeaf(R"("Max":2.5,"Min":-1.0,"Mean":null,"Norm":null)");
  EXPECT_TRUE(partly.has_max());
  EXPECT_FALSE(partly.has_mean());
  EXPECT_FALSE(partly.has_norm());
  EXPECT_FALSE(OneLeaf(R"("Max":null,"Min":null,"Mean":null,"Norm":null)").has_max());
  const v1::TensorLeaf nan = OneLeaf(R"("Max":NaN,"Min":NaN,"Mean":NaN,"Norm":NaN)");
  EXPECT_TRUE(nan.has_mean());
  EXPECT_EQ(nan.nan_count(), 1u);
  const v1::TensorLeaf inf = OneLeaf(R"("Max":Infinity,"Min":-Infinity,"Mean":NaN,"Norm":Infinity)");
  EXPECT_TRUE(inf.has_mean());
  EXPECT_EQ(inf.positive_inf_count(), 1u);
  EXPECT_EQ(inf.negative_inf_count(), 1u);
}

TEST(DumpImporter, NumbersBeyondFloatKeepTheirDigits) {
  const v1::TensorLeaf leaf = OneLeaf(R"("Max":1e300,"Min":0.1,"Mean":0.2,"Norm":0.3)");
  EXPECT_EQ(leaf.max().real(), 1e300);
  EXPECT_EQ(leaf.min().real(), 0.1);
}

TEST(DumpImporter, AZeroIsZeroWhateverItsExponent) {
  const v1::TensorLeaf leaf = OneLeaf(R"("Max":0e55,"Min":-0.0e-30,"Mean":0.000e300,"Norm":5e-1)");
  EXPECT_EQ(leaf.max().real(), 0.0);
  EXPECT_EQ(leaf.min().real(), 0.0);
  EXPECT_EQ(leaf.mean(), 0.0);
  EXPECT_EQ(leaf.norm(), 0.5);
}

TEST(DumpImporter, OlderStackForm) {
  MemoryFiles files;
  files.Add("dump.json", Dump(R"({"T.f.0.forward":{"output":[null]}})"));
  files.Add("stack.json", R"({"T.f.0.forward":["File a.py, line 3, in f, \n x = 1"]})");
  ReplayedSessions sessions;
  ASSERT_TRUE(Import(files, sessions).ok());
  ASSERT_EQ(sessions.sessions()[0]->stacks.size(), 1u);
  const uint64_t id = sessions.sessions()[0]->stacks.begin()->first;
  EXPECT_EQ((*sessions.ReadStep(0, 0)->Stack(id))[0].function(), "f");
}

std::string PtBytes(v1::DType dtype, std::vector<int64_t> shape, std::string_view content) {
  std::string out;
  TensorDescription description;
  description.dtype = dtype;
  description.shape = std::move(shape);
  auto writer = NewPtFileWriter("x", description, [&](std::string_view bytes) {
    out.append(bytes);
    return absl::OkStatus();
  });
  EXPECT_TRUE((*writer)->Append(content).ok());
  EXPECT_TRUE((*writer)->Finish().ok());
  return out;
}

TEST(DumpImporter, TensorsBecomePayloads) {
  MemoryFiles files;
  files.Add("step0/rank0/dump.json", Dump(Tensor(R"("Max":1.0,"Min":1.0,"Mean":1.0,"Norm":1.0,"data_name":"a.pt")")));
  files.Add("step0/rank0/dump_tensor_data/a.pt", PtBytes(v1::DTYPE_FLOAT32, {2}, "abcdefgh"));
  ReplayedSessions sessions;
  absl::StatusOr<v1::ImportResponse> response = Import(files, sessions);
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->payloads(), 1u);
  ASSERT_EQ(sessions.sessions()[0]->payloads.size(), 1u);
  EXPECT_EQ(sessions.sessions()[0]->payloads.begin()->second, "abcdefgh");
}

TEST(DumpImporter, TensorsThatCannotBeTakenAreNamed) {
  for (const std::string& file : {std::string("no zip"), PtBytes(v1::DTYPE_INT64, {1}, "abcdefgh"), std::string()}) {
    MemoryFiles files;
    files.Add("step0/rank0/dump.json", Dump(Tensor(R"("Max":1.0,"Min":1.0,"data_name":"a.pt")")));
    if (!file.empty()) files.Add("step0/rank0/dump_tensor_data/a.pt", file);
    ReplayedSessions sessions;
    absl::StatusOr<v1::ImportResponse> response = Import(files, sessions);
    ASSERT_TRUE(response.ok()) << response.status();
    EXPECT_EQ(response->payloads(), 0u);
    EXPECT_THAT(response->warnings(), ElementsAre(HasSubstr("step0/rank0/dump_tensor_data/a.pt")));
  }
}

TEST(DumpImporter, WidenedBFloat16IsNarrowedAgain) {
  std::string npy;
  TensorDescription description;
  description.dtype = v1::DTYPE_BFLOAT16;
  description.shape = {2};
  auto writer = NewNpyFileWriter(description, [&](std::string_view bytes) {
    npy.append(bytes);
    return absl::OkStatus();
  });
  ASSERT_TRUE((*writer)->Append(std::string_view("\x80\x3f\x00\xc0", 4)).ok());
  ASSERT_TRUE((*writer)->Finish().ok());
  MemoryFiles files;
  files.Add("step0/rank0/dump.json",
            Dump(R"({"Mint.f.0.forward":{"output":[{"type":"mindspore.Tensor","dtype":"BFloat16","shape":[2],)"
                 R"("Max":1.0,"Min":-2.0,"Mean":-0.5,"Norm":2.0,"data_name":"a.npy"}]}})"));
  files.Add("step0/rank0/dump_tensor_data/a.npy", npy);
  ReplayedSessions sessions;
  ASSERT_TRUE(Import(files, sessions).ok());
  ASSERT_EQ(sessions.sessions()[0]->payloads.size(), 1u);
  EXPECT_EQ(sessions.sessions()[0]->payloads.begin()->second, std::string("\x80\x3f\x00\xc0", 4));
}

TEST(DumpImporter, ALongStepTakesManyBatches) {
  std::string data = "{";
  constexpr int kRecords = 30000;
  for (int i = 0; i < kRecords; ++i) {
    data += Cat(i == 0 ? "" : ",", R"("T.f.)", i,
                R"(.forward":{"output":[{"type":"torch.Tensor","dtype":"torch.float32",)", R"("shape":[)", i,
                R"(],"Max":1.0,"Min":1.0,"Mean":1.0,"Norm":1.0,"requires_grad":false},{"type":"str","value":"x)", i,
                R"("}]})");
  }
  MemoryFiles files;
  files.Add("dump.json", Dump(data + "}"));
  ReplayedSessions sessions;
  absl::StatusOr<v1::ImportResponse> response = Import(files, sessions);
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_GT(sessions.sessions()[0]->sequence, 5u);
  EXPECT_LT(sessions.sessions()[0]->structures.size(), 5u);
  EXPECT_EQ(Records(sessions, 0, 0).size(), static_cast<size_t>(kRecords));
}

TEST(DumpImporter, NoBytesCrashIt) {
  const std::string whole = Dump(
      R"({"T.f.0.forward":{"input_args":[{"type":"torch.Tensor","dtype":"torch.int8","shape":[2,3],"Max":3,"Min":-1,"Mean":null,)"
      R"("Norm":null,"requires_grad":false,"md5":"0123abcd"},{"type":"int","value":3},[null,{"type":"str","value":"q"}]],)"
      R"("input_kwargs":{"a":{"type":"slice","value":[1,null,2]}},"output":{}}})");
  std::mt19937 random(9);
  for (int i = 0; i < 5000; ++i) {
    std::string damaged = whole;
    for (int k = static_cast<int>(random() % 3); k >= 0; --k) {
      damaged[random() % damaged.size()] = "{}[]\":,0123456789.-eENIantruefls\\"[random() % 33];
    }
    if (random() % 4 == 0) damaged.resize(random() % damaged.size());
    MemoryFiles files;
    files.Add("dump.json", damaged);
    ReplayedSessions sessions;
    if (!Import(files, sessions).ok()) continue;
    // What is taken can be read back.
    for (const auto& kept : sessions.sessions()) {
      for (const auto& [step, blocks] : kept->steps) (void)Records(sessions, 0, step);
    }
  }
}

}  // namespace
}  // namespace msprobe::server
