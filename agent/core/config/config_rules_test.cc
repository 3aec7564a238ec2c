#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "agent/core/config/config.h"
#include "agent/core/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace msprobe::core {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// The fields that refer to earlier dumps, those of the tasks that compare and search, and pairs that contradict.
class ConfigRulesTest : public ::testing::Test {
 protected:
  ConfigRulesTest() : directory_(std::filesystem::temp_directory_path() / Cat("core-config-rules-", getpid())) {
    std::filesystem::create_directories(directory_);
    unsetenv("MSPROBE_SERVER");
    unsetenv("MSPROBE_RUN");
  }
  ~ConfigRulesTest() override { std::filesystem::remove_all(directory_); }

  absl::StatusOr<Config> Parse(std::string fields) {
    for (size_t at; (at = fields.find("$DIR")) != std::string::npos;) fields.replace(at, 4, directory_.string());
    return ParseConfig(Cat("{", fields, "\"dump_path\": \"", directory_.string(), "/out\"}"), {});
  }
  void ExpectRefused(const std::string& fields, const std::vector<std::string>& parts) {
    const absl::StatusOr<Config> config = Parse(fields);
    ASSERT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument) << fields;
    for (const std::string& part : parts)
      EXPECT_THAT(std::string(config.status().message()), HasSubstr(part)) << fields;
  }
  void ExpectWarning(const std::string& fields, const std::string& part) {
    const absl::StatusOr<Config> config = Parse(fields);
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_THAT(config->warnings, Contains(HasSubstr(part))) << fields;
  }

  const std::filesystem::path directory_;
};

TEST_F(ConfigRulesTest, DiffCheckNeedsAnEarlierDumpAndTakesChecksums) {
  const absl::StatusOr<Config> config =
      Parse(R"("task": "diff_check", "diff_check": {"bench_path": "$DIR", "diff_nums": -1},)");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->task, Task::kDiffCheck);
  EXPECT_EQ(config->bench_path, directory_.string());
  EXPECT_EQ(config->diff_nums, -1);
  EXPECT_EQ(config->summary_mode, SummaryMode::kMd5);
  EXPECT_EQ(Parse(R"("task": "tensor", "tensor": {"bench_path": "$DIR", "summary_mode": "md5"},)")->diff_nums, 1);
  EXPECT_EQ(Parse(R"("task": "tensor", "tensor": {"bench_path": "$DIR"},)")->summary_mode, SummaryMode::kMd5);
  EXPECT_EQ(Parse(R"("task": "tensor", "tensor": {"bench_path": null},)")->summary_mode, SummaryMode::kStatistics);
  ExpectRefused(R"("task": "diff_check",)", {"bench_path is required by task diff_check"});
  ExpectRefused(R"("task": "tensor", "tensor": {"bench_path": 3},)", {"bench_path is invalid", "string", "3"});
  ExpectRefused(R"("task": "tensor", "tensor": {"bench_path": "/none"},)", {"bench_path", "exists", "\"/none\""});
  for (const char* value : {"0", "-2", "1.5", "\"1\"", "true"}) {
    ExpectRefused(Cat(R"("task": "tensor", "tensor": {"diff_nums": )", value, "},"),
                  {"diff_nums should be -1 or positive integer", value});
  }
}

TEST_F(ConfigRulesTest, NanCheckHasEveryLevelButDebug) {
  for (const char* level : {"L0", "L1", "mix"}) {
    EXPECT_EQ(Parse(Cat(R"("task": "nan_check", "level": ")", level, "\","))->task, Task::kNanCheck);
  }
  EXPECT_THAT(Parse(R"("task": "nan_check", "nan_check": {"tensor_list": ["relu"]},)")->tensor_list,
              ElementsAre("relu"));
  ExpectRefused(R"("task": "nan_check", "nan_check": {"data_mode": ["input"]},)", {"data_mode", "nan_check", "output"});
}

TEST_F(ConfigRulesTest, LoadNamesModulesOfAnEarlierDump) {
  const absl::StatusOr<Config> config = Parse(
      R"("load": {"path": "$DIR", "modules": ["Module.a.Linear.forward.0"], "step": ["1-2"], "rank": [0],
                  "dump_after_load": true},)");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->load->path, directory_.string());
  EXPECT_THAT(config->load->modules, ElementsAre("Module.a.Linear.forward.0"));
  EXPECT_THAT(config->load->step, ElementsAre(1, 2));
  EXPECT_THAT(config->load->rank, ElementsAre(0));
  EXPECT_TRUE(config->load->dump_after_load);
  EXPECT_FALSE(Parse(R"("load": null,)")->load.has_value());
  ExpectRefused(R"("load": {},)", {"load.modules is required and must be a non-empty list[str]"});
  ExpectRefused(R"("load": [],)", {"load is invalid, it should be a dict"});
  ExpectRefused(R"("load": {"modules": ["a"], "path": "$DIR"},)", {"load.modules", "\"a\"", "Module."});
  ExpectRefused(R"("load": {"modules": ["Module.a.L.backward.0"], "path": "$DIR"},)", {"load.modules", "forward"});
  ExpectRefused(R"("load": {"modules": ["Module.a.L.forward.0"]},)", {"load.path is required"});
  ExpectRefused(R"("load": {"modules": ["Module.a.L.forward.0"], "path": "/none"},)", {"load.path", "\"/none\""});
  ExpectWarning(R"("load": {"path": "$DIR", "modules": ["Module.a.L.forward.0"], "stp": []},)",
                "did you mean \"step\"?");
}

TEST_F(ConfigRulesTest, LoadAloneNeedsNoDumpPath) {
  const std::string fields =
      Cat(R"({"load": {"path": ")", directory_.string(), R"(", "modules": ["Module.a.L.forward.0"])");
  EXPECT_TRUE(ParseConfig(fields + "}}", {}).ok());
  EXPECT_FALSE(ParseConfig(fields + R"(, "dump_after_load": true}})", {}).ok());
}

TEST_F(ConfigRulesTest, ListTakesRegularExpressionsAndRefusesWrongOnes) {
  EXPECT_TRUE(Parse(R"x("statistics": {"list": ["name-regex(^Torch\\.)"]},)x").ok());
  ExpectRefused(R"x("statistics": {"list": ["name-regex([)"]},)x", {"list is invalid", "name-regex([)"});
}

TEST_F(ConfigRulesTest, DumpEnableMayBeAbsent) {
  EXPECT_FALSE(Parse("")->dump_enable.has_value());
  EXPECT_FALSE(*Parse(R"("dump_enable": false,)")->dump_enable);
  EXPECT_TRUE(*Parse(R"("dump_enable": true,)")->dump_enable);
}

TEST_F(ConfigRulesTest, FieldsThatContradictAreRefusedByBothNames) {
  const std::string load =
      R"("load": {"path": "$DIR", "modules": ["Module.a.L.forward.0"], "step": [1], "rank": [1]},)";
  const std::string bench = R"({"bench_path": "$DIR")";
  const struct {
    std::string fields;
    std::string one, other;
  } kCases[] = {
      {Cat(R"("task": "tensor", "tensor": )", bench, R"(, "summary_mode": "xor"},)"), "summary_mode \"xor\"",
       "bench_path"},
      {Cat(R"("task": "diff_check", "diff_check": )", bench, R"(, "summary_mode": "statistics"},)"), "summary_mode",
       "bench_path"},
      {Cat(R"("task": "diff_check", "diff_check": )", bench, R"(, "data_mode": ["input"]},)"), "data_mode",
       "bench_path"},
      {Cat(R"("task": "diff_check", "level": "debug", "diff_check": )", bench, "},"), "diff_check", "level \"debug\""},
      {Cat(R"("task": "tensor", "level": "debug", "tensor": )", bench, "},"), "bench_path", "level \"debug\""},
      {R"("task": "nan_check", "level": "debug",)", "nan_check", "level \"debug\""},
      {Cat(R"("level": "debug",)", load), "load", "level \"debug\""},
      {Cat(R"("step": [0, 2],)", load), "load.step", "step"},
      {Cat(R"("rank": [0],)", load), "load.rank", "rank"},
      {R"("step": [1], "schedule": {"active": 1},)", "schedule", "step"},
      {R"("async_dump": true, "statistics": {"summary_mode": "md5"},)", "async_dump", "md5"},
      {R"("async_dump": true, "task": "tensor",)", "async_dump", "list"},
      {R"("loss_policy": "drop", "spool_quota_mb": 5,)", "spool_quota_mb", "loss_policy \"drop\""},
      {R"("loss_policy": "stall", "spool_quota_mb": 5,)", "spool_quota_mb", "loss_policy \"stall\""},
      {R"("loss_policy": "drop", "stall_bound_s": 5,)", "stall_bound_s", "loss_policy \"drop\""},
      {R"("rank": [0], "rank": [1],)", "\"rank\"", "twice"},
  };
  for (const auto& each : kCases) ExpectRefused(each.fields, {each.one, each.other});
}

TEST_F(ConfigRulesTest, AScheduleHasWholeNumbersAndSomethingActive) {
  const auto config = Parse(R"("schedule": {"wait": 2, "active": 3, "repeat": 1},)");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(*config->schedule, (CaptureSchedule{.wait = 2, .active = 3, .repeat = 1}));
  EXPECT_FALSE(Parse("")->schedule.has_value());
  EXPECT_FALSE(Parse(R"("schedule": null,)")->schedule.has_value());
  ExpectRefused(R"("schedule": {},)", {"schedule.active is required", "at least 1"});
  ExpectRefused(R"("schedule": [],)", {"schedule is invalid, it should be a dict"});
  ExpectRefused(R"("schedule": {"active": 1, "warm_up": 1},)", {"unknown field \"warm_up\"", "warmup"});
  ExpectRefused(R"("schedule": {"active": 1, "wait": -1},)", {"schedule.wait", "-1"});
  ExpectRefused(R"("schedule": {"active": -1},)", {"schedule.active", "at least 1", "-1"});
  ExpectRefused(R"("schedule": {"active": 0},)", {"schedule.active", "at least 1", "is 0"});
  ExpectRefused(R"("schedule": {"active": 9999999},)", {"schedule.active", "at most 1000000", "9999999"});
}

TEST_F(ConfigRulesTest, WhatDoesNothingHereIsWarnedOf) {
  ExpectWarning(R"("task": "tensor", "tensor": {"tensor_list": ["a"]},)", "tensor_list has no effect with task tensor");
  ExpectWarning(R"("statistics": {"bench_path": "/x"},)", "bench_path has no effect with task statistics");
  ExpectWarning(R"("level": "debug", "statistics": {"tensor_list": ["a"]},)",
                "tensor_list has no effect at level debug");
  ExpectWarning(R"("level": "debug", "statistics": {"request_id": "r"},)", "request_id has no effect at level debug");
  ExpectWarning(R"("task": "nan_check", "nan_check": {"summary_mode": "md5"},)", "summary_mode has no effect");
  EXPECT_THAT(Parse(R"("task": "tensor", "tensor": {"tensor_list": []},)")->warnings, IsEmpty());
  EXPECT_EQ(Parse(R"("statistics": {"request_id": "r"},)")->request_id, "r");
  ExpectRefused(R"("statistics": {"request_id": 3},)", {"request_id is invalid", "string", "3"});
}

TEST_F(ConfigRulesTest, SelectIsAPredicateOverWhatTheLevelSees) {
  EXPECT_EQ(Parse(R"("level": "L0", "select": "Linear",)")->select, "Linear");
  EXPECT_EQ(Parse(R"("level": "mix", "select": "api('linear') & Linear",)")->select, "api('linear') & Linear");
  ExpectRefused(R"("level": "mix", "select": "Linear &",)", {"select is invalid", "at character 9 of \"Linear &\""});
  ExpectRefused(R"("select": 3,)", {"select", "3"});
  ExpectRefused(R"("level": "L1", "select": "Linear",)", {"select \"Linear\"", "level \"L1\"", "L0 or mix"});
  ExpectRefused(R"("level": "L0", "select": "api('linear') | Linear",)", {"select", "level \"L0\"", "L1 or mix"});
  ExpectRefused(R"("level": "debug", "select": "Linear",)", {"select", "debug"});
  ExpectRefused(R"("task": "monitor", "monitor": {"routers": "x y"},)", {"routers is invalid: at character 3"});
  ExpectRefused(R"("task": "monitor", "monitor": {"model_series": ["heads"]},)", {"model_series", "heads", "experts"});
}

TEST_F(ConfigRulesTest, MonitorCapturesModulesAndRemembersNothing) {
  const auto monitor = Parse(R"("task": "monitor", "monitor": {"interval": 5, "ops": ["rms", "kurtosis"]},)");
  EXPECT_EQ(monitor->level, Level::kL0);
  EXPECT_EQ(monitor->reuse, Reuse::kOff);
  EXPECT_EQ(monitor->monitor.interval, 5U);
  EXPECT_THAT(monitor->monitor.ops, ElementsAre("rms", "kurtosis"));
  EXPECT_EQ(Parse(R"("task": "monitor", "level": "mix", "reuse": "parameters",)")->level, Level::kMix);
  EXPECT_EQ(Parse(R"("task": "monitor", "level": "mix", "reuse": "parameters",)")->reuse, Reuse::kParameters);
  EXPECT_EQ(Parse(R"("task": "monitor", "monitor": {"ops": []},)")->monitor.ops.size(), 5U);
  ExpectRefused(R"("task": "monitor", "monitor": {"ops": ["median"]},)", {"ops", "median", "zero_share"});
  ExpectRefused(R"("task": "monitor", "level": "debug",)", {"monitor", "debug"});
}

TEST_F(ConfigRulesTest, CheckTakesBothSidesOfCallsAndWaitsForNobody) {
  const absl::StatusOr<Config> config = Parse(R"("task": "check", "check": {"budget_mb": 1, "budget_ms": 2},)");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->check.budget_bytes, uint64_t{1} << 20);
  EXPECT_EQ(config->check.budget_time, absl::Milliseconds(2));
  EXPECT_EQ(config->session.loss_policy, LossPolicy::kDrop);
  EXPECT_EQ(Parse(R"("task": "check", "loss_policy": "spool",)")->session.loss_policy, LossPolicy::kSpool);
  EXPECT_EQ(Parse(R"("task": "check", "spool_quota_mb": 9,)")->session.loss_policy, LossPolicy::kSpool);
  ExpectRefused(R"("task": "check", "level": "L0",)", {"level \"L0\"", "level should be L1 or mix"});
  ExpectRefused(R"("task": "check", "level": "debug",)", {"at level debug task should be statistics or tensor"});
  ExpectRefused(R"("task": "check", "check": {"data_mode": ["backward"]},)", {"data_mode", "[\"forward\"]"});
  ExpectRefused(R"("task": "check", "check": {"golden": ""},)", {"golden is invalid", "cpu-fp64"});
}

TEST_F(ConfigRulesTest, GradProbeTakesBoundsThatGrowAndReplacesNoInputs) {
  const absl::StatusOr<Config> config =
      Parse(R"("task": "grad_probe", "grad_probe": {"grad_level": "L2", "bounds": [-1, 0.5], "param_list": ["a"]},)");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->grad_probe.level, GradProbeConfig::GradLevel::kL2);
  EXPECT_EQ(config->grad_probe.bounds, (std::vector<double>{-1, 0.5}));
  EXPECT_EQ(config->grad_probe.parameters, std::vector<std::string>{"a"});
  for (const char* bounds : {"[0, 0]", "[\"a\"]", "3", "[1e19]", "[9223372036854775808]"}) {
    ExpectRefused(Cat(R"("task": "grad_probe", "grad_probe": {"bounds": )", bounds, "},"),
                  {"bounds is invalid", "at most 4096 numbers that grow"});
  }
  ExpectRefused(R"("task": "grad_probe", "level": "debug",)", {"at level debug task should be statistics or tensor"});
}

TEST_F(ConfigRulesTest, FreeBenchmarkReadsTheOldFields) {
  const auto config = Parse(
      R"("task": "free_benchmark", "free_benchmark": {"scope": [], "list": ["log"], "fuzz_device": "cpu",
         "pert_mode": "to_cpu", "handler_type": "check", "fuzz_level": "L1", "fuzz_stage": "backward",
         "if_preheat": true, "preheat_step": 3, "max_sample": 4},)");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_THAT(config->warnings, ::testing::IsEmpty());
  const FreeBenchmarkConfig& asked = config->free_benchmark;
  EXPECT_EQ(asked.device, FreeBenchmarkConfig::Device::kCpu);
  EXPECT_EQ(asked.mode, FreeBenchmarkConfig::Mode::kToCpu);
  EXPECT_EQ(asked.stage, FreeBenchmarkConfig::Stage::kBackward);
  EXPECT_TRUE(asked.preheat);
  EXPECT_EQ(asked.preheat_steps, 3U);
  EXPECT_EQ(asked.max_sample, 4U);
  EXPECT_EQ(Parse(R"("task": "free_benchmark",)")->free_benchmark.max_sample, 20U);
}

TEST_F(ConfigRulesTest, FreeBenchmarkRefusesWhatContradicts) {
  const struct {
    std::string fields, one, other;
  } kCases[] = {
      {R"("pert_mode": "to_cpu")", "pert_mode \"to_cpu\"", "fuzz_device \"npu\""},
      {R"("fuzz_device": "cpu")", "fuzz_device \"cpu\"", "pert_mode \"improve_precision\""},
      {R"("fuzz_stage": "backward")", "fuzz_stage \"backward\"", "list should name some APIs"},
      {R"("handler_type": "fix", "if_preheat": true)", "if_preheat true", "handler_type \"fix\""},
      {R"("handler_type": "fix", "fuzz_stage": "backward", "list": ["log"])", "backward", "handler_type \"fix\""},
      {R"("handler_type": "fix", "pert_mode": "bit_noise")", "pert_mode \"bit_noise\"", "handler_type \"fix\""},
      {R"("preheat_step": 0)", "preheat_step is invalid", "at least 1"},
      {R"("fuzz_level": "L2")", "fuzz_level is invalid", "['L1']"},
  };
  for (const auto& each : kCases) {
    ExpectRefused(Cat(R"("task": "free_benchmark", "free_benchmark": {)", each.fields, "},"), {each.one, each.other});
  }
  for (const char* level : {"L0", "mix", "debug"}) {
    ExpectRefused(Cat(R"("task": "free_benchmark", "level": ")", level, "\","), {"level", level});
  }
}

}  // namespace
}  // namespace msprobe::core
