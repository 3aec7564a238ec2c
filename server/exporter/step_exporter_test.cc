#include "server/exporter/step_exporter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <sstream>
#include <utility>

#include "server/exporter/file_sink.h"
#include "server/exporter/record_json.h"
#include "server/exporter/step_parts.h"
#include "server/format/cat.h"
#include "server/format/json/json_writer.h"
#include "server/format/tensor_file/pt_file.h"
#include "server/format/tensor_file/tensor_file_name.h"

namespace msprobe::server {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

class MemorySink : public FileSink {
 public:
  absl::Status Begin(std::string_view path) override {
    current_ = &files[std::string(path)];
    return absl::OkStatus();
  }
  absl::Status Write(std::string_view content) override {
    current_->append(content);
    return absl::OkStatus();
  }
  absl::Status End() override { return absl::OkStatus(); }

  std::map<std::string, std::string> files;

 private:
  std::string* current_ = nullptr;
};

class FakeStep : public RecordSource {
 public:
  const std::string& run() const override { return run_; }
  uint32_t step() const override { return 3; }
  const v1::Rank& rank() const override { return hello_.rank(); }
  uint32_t epoch() const override { return 0; }
  State state() const override { return step_state; }
  const v1::CaptureSettings& settings() const override { return step_settings; }
  const v1::Hello& hello() const override { return hello_; }
  absl::Status ForEachRecord(absl::FunctionRef<absl::Status(const v1::Record&, uint64_t)> visit) override {
    for (const auto& [record, stack] : records) {
      if (absl::Status status = visit(record, stack); !status.ok()) return status;
    }
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<v1::Frame>> Stack(uint64_t stack_id) override {
    if (!stacks.contains(stack_id)) return absl::NotFoundError("no such stack");
    return stacks[stack_id];
  }
  absl::Status ReadPayload(std::string_view hash, absl::FunctionRef<absl::Status(std::string_view)> visit) override {
    auto it = payloads.find(std::string(hash));
    return it == payloads.end() ? absl::NotFoundError("no such payload") : visit(it->second);
  }
  std::vector<v1::Marker::Fault> faults() override { return step_faults; }
  std::vector<v1::Marker::Gap> gaps() override { return step_gaps; }

  v1::Record& Add(std::string name, v1::RecordKind kind, std::string parent = "", uint64_t stack = 0) {
    v1::Record record;
    record.set_full_name(std::move(name));
    record.set_kind(kind);
    record.set_parent(std::move(parent));
    record.set_flags(v1::FRAGMENT_ENTER | v1::FRAGMENT_EXIT);
    record.mutable_fields()->mutable_dict();
    records.emplace_back(std::move(record), stack);
    return records.back().first;
  }

  State step_state = v1::StepSummary::COMPLETE;
  v1::CaptureSettings step_settings;
  std::vector<std::pair<v1::Record, uint64_t>> records;
  std::map<uint64_t, std::vector<v1::Frame>> stacks;
  std::map<std::string, std::string> payloads;
  std::vector<v1::Marker::Fault> step_faults;
  std::vector<v1::Marker::Gap> step_gaps;

 private:
  std::string run_ = "r";
  v1::Hello hello_;
};

v1::TensorLeaf Leaf(std::string dtype, std::vector<int64_t> shape, double value) {
  v1::TensorLeaf leaf;
  leaf.set_type("torch.Tensor");
  leaf.set_dtype(std::move(dtype));
  leaf.mutable_shape()->Add(shape.begin(), shape.end());
  leaf.mutable_max()->set_real(value);
  leaf.mutable_min()->set_real(value);
  leaf.set_mean(value);
  leaf.set_norm(std::fabs(value));
  leaf.set_variance(0.5);
  return leaf;
}

v1::TensorLeaf IntegerLeaf(std::string dtype, std::vector<int64_t> shape, int64_t value) {
  v1::TensorLeaf leaf = Leaf(std::move(dtype), std::move(shape), static_cast<double>(value));
  leaf.mutable_max()->set_integer(value);
  leaf.mutable_min()->set_integer(value);
  return leaf;
}

std::string Json(const v1::TensorLeaf& leaf, const RecordJsonOptions& options = {}, bool strict = false) {
  v1::Record record;
  record.set_kind(v1::RECORD_DEBUG);
  v1::Value::Entry* only = record.mutable_fields()->mutable_dict()->add_entries();
  only->set_key("debug");
  *only->mutable_value()->mutable_tensor() = leaf;
  JsonWriter writer(strict);
  WriteRecord(record, options, writer);
  return writer.Take();
}

std::string Numbers(const v1::TensorLeaf& leaf) {
  const std::string json = Json(leaf);
  const size_t begin = json.find("\"Max\"");
  return json.substr(begin, json.find(",\"requires_grad\"") - begin);
}

TEST(JsonNumber, IsPythonsRepr) {
  EXPECT_EQ(JsonNumber(0.05701769143342972), "0.05701769143342972");
  EXPECT_EQ(JsonNumber(1), "1.0");
  EXPECT_EQ(JsonNumber(-0.0), "-0.0");
  EXPECT_EQ(JsonNumber(1e15), "1000000000000000.0");
  EXPECT_EQ(JsonNumber(1e16), "1e+16");
  EXPECT_EQ(JsonNumber(1e-4), "0.0001");
  EXPECT_EQ(JsonNumber(1.0005271035279194e-42), "1.0005271035279194e-42");
  EXPECT_EQ(JsonNumber(3.0000000054977558e+38), "3.0000000054977558e+38");
  EXPECT_EQ(JsonNumber(kNan), "NaN");
  EXPECT_EQ(JsonNumber(-kInfinity), "-Infinity");
}

TEST(RecordJson, KeysStandInTheToolsOrder) {
  v1::TensorLeaf leaf = Leaf("torch.float32", {1, 8}, 0.5);
  leaf.set_requires_grad(true);
  leaf.set_crc32(0x3df3c1ba);
  leaf.set_attributes_json(R"({"device_mesh":[0],"placements":[{"Shard":{"dim":0}}]})");
  RecordJsonOptions options;
  options.crc32 = true;
  leaf.mutable_payload();
  options.data_name = [](auto, const v1::TensorLeaf&) { return std::string("a.pt"); };
  EXPECT_EQ(
      Json(leaf, options),
      R"({"type":"torch.Tensor","dtype":"torch.float32","shape":[1,8],"Max":0.5,"Min":0.5,"Mean":0.5,"Norm":0.5,)"
      R"("requires_grad":true,"device_mesh":[0],"placements":[{"Shard":{"dim":0}}],"data_name":"a.pt","md5":"3df3c1ba"})");
}

TEST(RecordJson, NullRules) {
  EXPECT_EQ(Numbers(Leaf("torch.float64", {2}, 1)), R"("Max":1.0,"Min":1.0,"Mean":null,"Norm":null)");
  EXPECT_EQ(Numbers(IntegerLeaf("torch.uint8", {2}, 255)), R"("Max":255,"Min":255,"Mean":null,"Norm":null)");
  EXPECT_EQ(Numbers(Leaf("torch.complex64", {2}, 5)), R"("Max":5.0,"Min":5.0,"Mean":5.0,"Norm":null)");
  EXPECT_EQ(Numbers(Leaf("torch.quint8", {2}, 1)), R"("Max":1.0,"Min":1.0,"Mean":null,"Norm":null)");
  EXPECT_EQ(Numbers(Leaf("torch.float8_e5m2", {2}, 1)), R"("Max":null,"Min":null,"Mean":null,"Norm":null)");
  EXPECT_EQ(Numbers(Leaf("torch.bfloat16", {2}, 1)), R"("Max":1.0,"Min":1.0,"Mean":1.0,"Norm":1.0)");
  v1::TensorLeaf flag = IntegerLeaf("torch.bool", {}, 1);
  flag.mutable_max()->set_boolean(true);
  flag.mutable_min()->set_boolean(false);
  EXPECT_EQ(Numbers(flag), R"("Max":true,"Min":false,"Mean":null,"Norm":null)");
  v1::TensorLeaf none;
  none.set_type("torch.Tensor");
  none.set_dtype("torch.float32");
  EXPECT_EQ(Numbers(none), R"("Max":null,"Min":null,"Mean":null,"Norm":null)");
}

TEST(RecordJson, ZeroDimensionsShowTheValue) {
  EXPECT_EQ(Numbers(Leaf("torch.float32", {}, -1.5)), R"("Max":-1.5,"Min":-1.5,"Mean":-1.5,"Norm":-1.5)");
  EXPECT_EQ(Numbers(IntegerLeaf("torch.int64", {}, 7)), R"("Max":7,"Min":7,"Mean":7,"Norm":7)");
  EXPECT_EQ(Numbers(Leaf("torch.complex64", {}, 5)), R"("Max":5.0,"Min":5.0,"Mean":5.0,"Norm":null)");
}

TEST(RecordJson, ArraysOfNumpyShowWhatWasComputed) {
  v1::TensorLeaf leaf = IntegerLeaf("int64", {3}, 2);
  leaf.set_type("numpy.ndarray");
  leaf.set_mean(1);
  leaf.set_norm(2.23606797749979);
  RecordJsonOptions md5;
  md5.crc32 = true;
  EXPECT_EQ(
      Json(leaf, md5),
      R"({"type":"numpy.ndarray","dtype":"int64","shape":[3],"Max":2,"Min":2,"Mean":1.0,"Norm":2.23606797749979})");
}

TEST(RecordJson, XorStandsInPlaceOfStatistics) {
  RecordJsonOptions options;
  options.xor_checksum = true;
  v1::TensorLeaf leaf = Leaf("torch.float32", {256, 64}, 1);
  leaf.set_requires_grad(true);
  leaf.set_xor64(0x878f212c88751016);
  EXPECT_EQ(
      Json(leaf, options),
      R"({"type":"torch.Tensor","dtype":"torch.float32","shape":[256,64],"md5":"0x878f212c88751016","requires_grad":true})");
  // A 0-D tensor shows its value; its bytes are its checksum.
  v1::TensorLeaf zero_d = Leaf("torch.float32", {}, 1.5);
  zero_d.set_xor64(0x3fc00000);
  EXPECT_THAT(Json(zero_d, options), HasSubstr(R"("md5":1.5,)"));
  v1::TensorLeaf half = Leaf("torch.float16", {}, 1.5);
  half.set_xor64(0x3e00);
  EXPECT_THAT(Json(half, options), HasSubstr(R"("md5":1.5,)"));
  v1::TensorLeaf byte = IntegerLeaf("torch.int8", {}, -1);
  byte.set_xor64(0xff);
  EXPECT_THAT(Json(byte, options), HasSubstr(R"("md5":"0xffffffffffffffff")"));
  v1::TensorLeaf meta = Leaf("torch.float32", {2}, 1);
  EXPECT_THAT(Json(meta, options), HasSubstr(R"("md5":null)"));
}

TEST(RecordJson, StrictJsonHasNoBareTokens) {
  const v1::TensorLeaf leaf = Leaf("torch.float32", {2}, kNan);
  EXPECT_THAT(Json(leaf), HasSubstr(R"("Max":NaN,"Min":NaN,"Mean":NaN,"Norm":NaN)"));
  EXPECT_THAT(Json(leaf, {}, true), HasSubstr(R"("Max":null,"Min":null,"Mean":null,"Norm":null)"));
}

TEST(RecordJson, ExtendedAddsWhatIsLeftOut) {
  RecordJsonOptions options;
  options.extended = true;
  v1::TensorLeaf leaf = Leaf("torch.float64", {3}, kInfinity);
  leaf.set_positive_inf_count(1);
  leaf.set_zero_count(2);
  leaf.set_finite_max(4);
  EXPECT_THAT(Json(leaf, options),
              HasSubstr(R"("extended":{"Max":Infinity,"Min":Infinity,"Mean":Infinity,"Norm":Infinity,"Variance":0.5,)"
                        R"("nan_count":0,"positive_inf_count":1,"negative_inf_count":0,"zero_count":2,)"
                        R"("finite":{"Max":4.0,"Min":null,"Mean":null,"Norm":null},"device":""})"));
}

TEST(RecordJson, ExtendedSaysWhichRecordsWereTouched) {
  const auto json = [](uint32_t flags, bool extended) {
    v1::Record record;
    record.set_flags(flags);
    RecordJsonOptions options;
    options.extended = extended;
    JsonWriter writer(false);
    WriteRecord(record, options, writer);
    return writer.Take();
  };
  EXPECT_EQ(json(v1::FRAGMENT_TOUCHED, true), R"({"touched":true})");
  EXPECT_EQ(json(v1::FRAGMENT_TOUCHED, false), "{}");
  EXPECT_EQ(json(0, true), "{}");
}

TEST(RecordJson, HighPrecisionShowsMeanAndNormOfEveryDtype) {
  RecordJsonOptions options;
  options.high_precision = true;
  EXPECT_THAT(Json(Leaf("torch.float64", {3}, 2)), HasSubstr(R"("Mean":null,"Norm":null)"));
  EXPECT_THAT(Json(Leaf("torch.float64", {3}, 2), options), testing::Not(HasSubstr("null")));
  EXPECT_THAT(Json(IntegerLeaf("torch.int32", {3}, 2), options), HasSubstr(R"("Max":2,"Min":)"));
  EXPECT_THAT(Json(Leaf("torch.float8_e4m3fn", {3}, 2)), HasSubstr(R"("Max":null)"));
  EXPECT_THAT(Json(Leaf("torch.float8_e4m3fn", {3}, 2), options), HasSubstr(R"("Max":2.0)"));
}

TEST(RecordJson, NanCheckTellsOfOutputsAloneAndHasNoStatistics) {
  RecordJsonOptions options;
  options.nan_only = true;
  const auto json = [&](uint64_t in_input, uint64_t in_output) {
    v1::Record record;
    for (const auto& [key, count] : {std::pair("input_args", in_input), {"output", in_output}}) {
      v1::Value::Entry* entry = record.mutable_fields()->mutable_dict()->add_entries();
      entry->set_key(key);
      v1::TensorLeaf leaf = Leaf("torch.float32", {2}, 1);
      leaf.set_positive_inf_count(count);
      *entry->mutable_value()->mutable_list()->add_items()->mutable_tensor() = leaf;
    }
    JsonWriter writer(false);
    WriteRecord(record, options, writer);
    return writer.Take();
  };
  EXPECT_EQ(
      json(1, 0),
      R"({"input_args":[{"type":"torch.Tensor","dtype":"torch.float32","shape":[2],"requires_grad":false}],)"
      R"("output":[{"type":"torch.Tensor","dtype":"torch.float32","shape":[2],"requires_grad":false}],"is_nan":0})");
  EXPECT_THAT(json(0, 1), HasSubstr("\"is_nan\":1"));
}

TEST(RecordJson, MalformedJsonOfASlotBecomesNull) {
  v1::Record record;
  for (const char* json : {R"({"type":"slice","value":[1,null,2]})", "{\"a\":", "NaN", "\"\xc3\xa9\""}) {
    v1::Value::Entry* entry = record.mutable_fields()->mutable_dict()->add_entries();
    entry->set_key("k");
    entry->mutable_value()->set_json(json);
  }
  JsonWriter writer(false);
  WriteRecord(record, {}, writer);
  EXPECT_EQ(writer.Take(), R"({"k":{"type":"slice","value":[1,null,2]},"k":null,"k":NaN,"k":"\u00E9"})");
}

TEST(TensorFileName, FollowsTheTool) {
  const auto name = [](std::string_view full_name, std::vector<std::string> path) {
    return TensorFileName(full_name, path);
  };
  EXPECT_EQ(name("Functional.linear.0.forward", {"input_args", "1"}), "Functional.linear.0.forward.input.1");
  EXPECT_EQ(name("Functional.linear.0.backward", {"input", "0"}), "Functional.linear.0.backward.input.0");
  EXPECT_EQ(name("Custom.f.3.forward", {"input_kwargs", "nt", "a"}), "Custom.f.3.forward.kwargs.nt.a");
  EXPECT_EQ(name("Module.x.Linear.forward.0", {"parameters", "weight"}), "Module.x.Linear.forward.0.parameters.weight");
  EXPECT_EQ(name("Module.x.Linear.parameters_grad.0", {"weight", "0"}), "Module.x.Linear.parameters_grad.0.weight");
  EXPECT_EQ(name("z.0.debug", {"debug", "b", "0"}), "z.0.debug.b.0");
  EXPECT_EQ(name("y.0.debug", {"debug"}), "y.0.debug");
  EXPECT_EQ(name("a.0.forward", {"input_kwargs", "../x"}), "a.0.forward.kwargs..._x");
  EXPECT_EQ(name("a.0.forward", {"input_kwargs", "a\\..\\b"}), "a.0.forward.kwargs.a_.._b");
  const std::string long_name = name(std::string(300, 'a') + ".0.forward", {"output", "0"});
  EXPECT_LE(long_name.size(), 240u);
  EXPECT_NE(long_name, name(std::string(300, 'a') + ".0.forward", {"output", "1"}));
}

TEST(StepExporter, SkeletonOfAnEmptyStep) {
  FakeStep step;
  step.step_settings.set_task("statistics");
  step.step_settings.set_level("L1");
  step.step_settings.set_stack_and_construct(true);
  MemorySink sink;
  ASSERT_TRUE(ExportStep(step, {}, sink).ok());
  EXPECT_EQ(sink.files.size(), 3u);
  EXPECT_EQ(sink.files["dump.json"],
            "{\n\"task\": \"statistics\",\n\"level\": \"L1\",\n\"framework\": \"pytorch\",\n\"dump_data_dir\": null,\n"
            "\"data\": {}\n}\n");
  EXPECT_EQ(sink.files["stack.json"], "{}\n");
  EXPECT_EQ(sink.files["construct.json"], "{}\n");
}

TEST(StepExporter, DigestsOfWeightsAloneAreNoDump) {
  FakeStep step;
  step.step_settings.set_level("L1");
  EXPECT_TRUE(*HasFiles(step)) << "an empty step has a skeleton";
  step.Add("weights.a.0", v1::RECORD_DEBUG);
  EXPECT_FALSE(*HasFiles(step));
  step.step_gaps.emplace_back();
  EXPECT_TRUE(*HasFiles(step)) << "what was lost is said";
  step.step_gaps.clear();
  step.Add("Torch.add.0.forward", v1::RECORD_API);
  EXPECT_TRUE(*HasFiles(step));
}

TEST(StepExporter, StacksAndParents) {
  FakeStep step;
  step.step_settings.set_stack_and_construct(true);
  v1::Frame frame;
  frame.set_path("a.py");
  frame.set_line(3);
  frame.set_function("f");
  frame.set_source("x = 1");
  step.stacks[7] = {frame};
  step.stacks[8] = {frame, frame};
  // In dump.json a module follows what it contains.
  step.Add("Tensor.add.0.forward", v1::RECORD_API, "Module.m.M.forward.0", 7);
  step.Add("Module.m.M.forward.0", v1::RECORD_MODULE, "", 8);
  step.Add("Tensor.mul.0.forward", v1::RECORD_API, "optimizer", 7);
  v1::Record& hidden = step.Add("Tensor.view.0.forward", v1::RECORD_API, "", 7);
  hidden.set_flags(v1::FRAGMENT_CONSTRUCT_ONLY);
  v1::Record& grad = step.Add("Module.m.M.parameters_grad.0", v1::RECORD_PARAMETERS_GRAD, "", 7);
  grad.set_flags(v1::FRAGMENT_NO_CONSTRUCT);
  MemorySink sink;
  ASSERT_TRUE(ExportStep(step, {}, sink).ok());
  EXPECT_EQ(
      sink.files["stack.json"],
      "{\n\"0\": [[\"Module.m.M.forward.0\"],[\"File a.py, line 3, in f, \\n x = 1\",\"File a.py, line 3, in f, "
      "\\n x = 1\"]],\n\"1\": [[\"Tensor.add.0.forward\",\"Tensor.mul.0.forward\",\"Tensor.view.0.forward\"],[\"File "
      "a.py, line 3, in f, \\n "
      "x = 1\"]]\n}\n");
  EXPECT_EQ(sink.files["construct.json"],
            "{\n\"Tensor.add.0.forward\": \"Module.m.M.forward.0\",\n\"Module.m.M.forward.0\": null,\n"
            "\"optimizer\": null,\n\"Tensor.mul.0.forward\": \"optimizer\",\n\"Tensor.view.0.forward\": null\n}\n");
  EXPECT_THAT(sink.files["dump.json"], testing::Not(HasSubstr("Tensor.view")));
  EXPECT_THAT(sink.files["dump.json"], HasSubstr("parameters_grad"));
}

TEST(StepExporter, WhatIsKnownOfStacksIsNotReadAgain) {
  FakeStep step;
  step.step_settings.set_stack_and_construct(true);
  for (uint64_t id : {7, 8}) {
    v1::Frame frame;
    frame.set_path(Cat("file", id, ".py"));
    step.stacks[id] = {frame};
    step.Add(Cat("Tensor.add.", id, ".forward"), v1::RECORD_API, "", id);
  }
  StackTexts stacks;
  StepExportOptions options;
  options.stacks = &stacks;
  MemorySink first, second;
  ASSERT_TRUE(ExportStep(step, options, first).ok());
  EXPECT_THAT(first.files["stack.json"], HasSubstr("[[\"Tensor.add.7.forward\"],[\"file7.py\"]]"));
  step.stacks.clear();
  EXPECT_THAT(ExportStep(step, options, second)->warnings, testing::IsEmpty());
  EXPECT_EQ(second.files["stack.json"], first.files["stack.json"]);
}

TEST(StackTexts, HoldsNoMoreThanItsLimit) {
  StackTexts stacks;
  const std::string half(StackTexts::kMaxBytes / 2, 'x');
  EXPECT_EQ(stacks.Keep(1, half), half);
  EXPECT_EQ(stacks.Keep(2, half), half);
  ASSERT_NE(stacks.Find(1), nullptr);
  EXPECT_EQ(stacks.Keep(3, "y"), "y");
  EXPECT_EQ(stacks.Find(1), nullptr);
  EXPECT_EQ(stacks.Find(2), nullptr);
  EXPECT_EQ(*stacks.Find(3), "y");
}

TEST(StepParts, CellsThatMindSporeCompilesHaveADirectoryOfTheirOwn) {
  FakeStep step;
  step.step_settings.set_stack_and_construct(true);
  step.Add("Cell.net.a.A.forward.0", v1::RECORD_MODULE, "Cell.net.N.forward.0");
  step.Add("Cell.net.a.A2.forward.0", v1::RECORD_MODULE, "Cell.net.N.forward.0");
  step.Add("Cell.net.N.forward.0", v1::RECORD_MODULE);
  step.Add("Cell.net.a.A.parameters_grad.0", v1::RECORD_PARAMETERS_GRAD).set_flags(v1::FRAGMENT_NO_CONSTRUCT);
  EXPECT_EQ(PartsOf(step).size(), 1U) << "no cell is compiled";
  EXPECT_EQ(ToldDirectory(step.step_settings, 3), "step3");

  step.step_settings.add_compiled_cells("Cell.net.a.A");
  EXPECT_EQ(ToldDirectory(step.step_settings, 3), "pynative/step3");
  std::map<std::string, MemorySink> sinks;
  for (const StepPart& part : PartsOf(step)) {
    EXPECT_EQ(ExportStep(*part.records, {}, sinks[part.directory])->records, 2U) << part.directory;
  }
  ASSERT_EQ(sinks.size(), 2U);
  const auto construct = [&](const char* part) {
    return sinks[Cat(part, "/", StepDirectory(3, step.rank()))].files["construct.json"];
  };
  EXPECT_EQ(construct("graph"),
            "{\n\"Cell.net.N.forward.0\": null,\n\"Cell.net.a.A.forward.0\": \"Cell.net.N.forward.0\"\n}\n");
  EXPECT_EQ(construct("pynative"),
            "{\n\"Cell.net.N.forward.0\": null,\n\"Cell.net.a.A2.forward.0\": \"Cell.net.N.forward.0\"\n}\n");
}

TEST(StepExporter, ParentsInACircleEnd) {
  FakeStep step;
  step.step_settings.set_stack_and_construct(true);
  step.Add("R.backward.0", v1::RECORD_MODULE, "R.backward.1");
  step.Add("R.backward.1", v1::RECORD_MODULE, "R.backward.0");
  step.Add("R.backward.2", v1::RECORD_MODULE, "R.backward.2");
  MemorySink sink;
  ASSERT_TRUE(ExportStep(step, {}, sink).ok());
  EXPECT_THAT(sink.files["construct.json"], HasSubstr("\"R.backward.2\": \"R.backward.2\""));
}

TEST(StepExporter, StructureHasNoData) {
  FakeStep step;
  step.step_settings.set_task("structure");
  step.step_settings.set_stack_and_construct(true);
  step.stacks[7] = {v1::Frame()};
  step.Add("Tensor.add.0.forward", v1::RECORD_API, "", 7);
  MemorySink sink;
  ASSERT_TRUE(ExportStep(step, {}, sink).ok());
  EXPECT_THAT(sink.files["dump.json"], HasSubstr("\"data\": {}"));
  EXPECT_THAT(sink.files["stack.json"], HasSubstr("Tensor.add.0.forward"));
}

class TensorExport : public testing::Test {
 protected:
  TensorExport() {
    step.step_settings.set_task("tensor");
    for (int i = 0; i < 2; ++i) {
      v1::Value::Entry* entry =
          step.Add(Cat("T.f.", i, ".forward"), v1::RECORD_API).mutable_fields()->mutable_dict()->add_entries();
      entry->set_key("output");
      v1::TensorLeaf leaf = IntegerLeaf("torch.int8", {3}, 1);
      leaf.mutable_payload()->set_hash(i == 0 ? "here" : "gone");
      leaf.mutable_payload()->set_size(3);
      *entry->mutable_value()->mutable_list()->add_items()->mutable_tensor() = leaf;
    }
    step.payloads["here"] = "abc";
  }

  FakeStep step;
  MemorySink sink;
};

TEST_F(TensorExport, WritesTheFilesThatAreThere) {
  StepExportOptions options;
  options.directory = "/out/step3/rank0";
  absl::StatusOr<StepExportSummary> summary = ExportStep(step, options, sink);
  ASSERT_TRUE(summary.ok());
  EXPECT_EQ(summary->tensors, 1u);
  EXPECT_THAT(summary->warnings, ElementsAre(HasSubstr("T.f.1.forward.output.0.pt")));
  EXPECT_THAT(sink.files["dump.json"], HasSubstr("\"dump_data_dir\": \"/out/step3/rank0/dump_tensor_data\""));
  EXPECT_THAT(sink.files["dump.json"], HasSubstr("\"data_name\":\"T.f.0.forward.output.0.pt\""));
  EXPECT_THAT(sink.files["dump.json"], testing::Not(HasSubstr("\"data_name\":\"T.f.1.")));
  EXPECT_THAT(sink.files["dump_error_info.log"], HasSubstr("never arrived"));
  MemoryBytes bytes(sink.files["dump_tensor_data/T.f.0.forward.output.0.pt"]);
  absl::StatusOr<PtFile> file = PtFile::Open(bytes);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->description().dtype, v1::DTYPE_INT8);
}

TEST_F(TensorExport, MayBeLeftOut) {
  StepExportOptions options;
  options.omit_tensors = true;
  ASSERT_TRUE(ExportStep(step, options, sink).ok());
  EXPECT_EQ(sink.files.size(), 1u);
  EXPECT_THAT(sink.files["dump.json"], HasSubstr("\"dump_data_dir\": null"));
  EXPECT_THAT(sink.files["dump.json"], testing::Not(HasSubstr("data_name")));
}

TEST_F(TensorExport, APayloadOfAnotherSizeIsNotWritten) {
  step.records[0]
      .first.mutable_fields()
      ->mutable_dict()
      ->mutable_entries(0)
      ->mutable_value()
      ->mutable_list()
      ->mutable_items(0)
      ->mutable_tensor()
      ->set_dtype("torch.int16");
  absl::StatusOr<StepExportSummary> summary = ExportStep(step, {}, sink);
  ASSERT_TRUE(summary.ok());
  EXPECT_EQ(summary->tensors, 0u);
  EXPECT_THAT(sink.files["dump_error_info.log"], HasSubstr("does not fit torch.int16"));
}

TEST(StepExporter, SaysWhatIsMissing) {
  FakeStep step;
  step.step_state = v1::StepSummary::INCOMPLETE;
  v1::Marker::Gap gap;
  gap.set_step(3);
  gap.set_fragments(5);
  gap.set_reason(v1::Marker::Gap::DROPPED);
  step.step_gaps = {gap};
  v1::Marker::Fault fault;
  fault.set_where("Tensor.add.0.forward");
  fault.set_message("no memory");
  step.step_faults = {fault};
  MemorySink sink;
  ASSERT_TRUE(ExportStep(step, {}, sink).ok());
  EXPECT_THAT(sink.files["INCOMPLETE"], HasSubstr("never ended"));
  EXPECT_THAT(sink.files["INCOMPLETE"], HasSubstr("5 fragments"));
  EXPECT_THAT(sink.files["dump_error_info.log"], HasSubstr("Tensor.add.0.forward: no memory"));
}

TEST(StepExporter, CallsAndStacksThatStayAsTheyWereAreLinkedToThoseOfTheStepBefore) {
  const fs::path root = fs::temp_directory_path() / Cat("msprobe_steps_", getpid());
  FormerFiles former;
  FakeStep step;
  step.step_settings.set_stack_and_construct(true);
  v1::Frame frame;
  frame.set_path("train.py");
  step.stacks[7] = step.stacks[8] = {frame};
  step.Add("Torch.add.0.forward", v1::RECORD_API, "Module.m.M.forward.0", 7);
  step.Add("Module.m.M.forward.0", v1::RECORD_MODULE, "", 7);
  // Exports the step as it is now. Gives its warnings.
  const auto write = [&](const std::string& directory) {
    absl::StatusOr<DirectorySink> sink = DirectorySink::Open((root / directory).string(), std::nullopt, &former);
    EXPECT_TRUE(sink.ok()) << sink.status();
    absl::StatusOr<StepExportSummary> summary = ExportStep(step, {}, *sink);
    EXPECT_TRUE(summary.ok()) << summary.status();
    EXPECT_TRUE(sink->Commit().ok());
    return summary->warnings;
  };
  // Which files of the two directories are one.
  const auto shared = [&](const std::string& one, const std::string& other) {
    std::vector<std::string> names;
    for (const char* name : {"construct.json", "dump.json", "stack.json"}) {
      if (fs::equivalent(root / one / name, root / other / name)) names.push_back(name);
    }
    return names;
  };
  write("step0");
  write("step1");
  EXPECT_THAT(shared("step0", "step1"), ElementsAre("construct.json", "stack.json"));

  step.records[0].second = 8;
  write("another stack");
  EXPECT_THAT(shared("step1", "another stack"), IsEmpty());
  step.records[0].first.clear_parent();
  write("another parent");
  EXPECT_THAT(shared("another stack", "another parent"), IsEmpty());
  step.records[0].first.set_full_name("Torch.mul.0.forward");
  write("another call");
  EXPECT_THAT(shared("another parent", "another call"), IsEmpty());

  // A file that lacks a stack is not passed on: the next step says so, too, or has it.
  step.stacks.erase(8);
  EXPECT_THAT(write("the same"), IsEmpty());
  step.Add("Torch.add.1.forward", v1::RECORD_API, "", 9);
  EXPECT_EQ(write("lacking 0").size(), 2u);
  EXPECT_EQ(write("lacking 1").size(), 2u);
  step.stacks[8] = step.stacks[9] = {frame};
  EXPECT_THAT(write("whole"), IsEmpty());
  EXPECT_THAT(shared("lacking 1", "whole"), ElementsAre("construct.json"));
  fs::remove_all(root);
}

TEST(StepDirectory, NamesRanksAndProcesses) {
  v1::Rank rank;
  rank.set_number(7);
  EXPECT_EQ(StepDirectory(3, rank), "step3/proc7");
  rank.set_kind(v1::Rank::RANK);
  EXPECT_EQ(StepDirectory(3, rank), "step3/rank7");
}

}  // namespace
}  // namespace msprobe::server
