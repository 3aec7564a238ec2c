#include "agent/core/config/config.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "agent/core/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace msprobe::core {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ConfigTest : public ::testing::Test {
 protected:
  ConfigTest() : directory_(std::filesystem::temp_directory_path() / Cat("core-config-", getpid())) {
    unsetenv("MSPROBE_SERVER");
    unsetenv("MSPROBE_RUN");
  }
  ~ConfigTest() override { std::filesystem::remove_all(directory_); }

  // `fields`: members of the configuration beside dump_path, each with a comma behind it.
  absl::StatusOr<Config> Parse(const std::string& fields, const ConfigOverrides& overrides = {}) {
    return ParseConfig(Cat("{", fields, "\"dump_path\": \"", directory_.string(), "\"}"), overrides);
  }
  void ExpectRefused(const std::string& fields, const std::vector<std::string>& parts) {
    const absl::StatusOr<Config> config = Parse(fields);
    ASSERT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument) << fields;
    for (const std::string& part : parts) EXPECT_THAT(std::string(config.status().message()), HasSubstr(part));
  }

  const std::filesystem::path directory_;
};

TEST_F(ConfigTest, DefaultsAreThoseOfMindstudio) {
  const absl::StatusOr<Config> config = Parse("");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->task, Task::kStatistics);
  EXPECT_EQ(config->level, Level::kL1);
  EXPECT_EQ(config->risk_level, RiskLevel::kFocus);
  EXPECT_EQ(config->summary_mode, SummaryMode::kStatistics);
  EXPECT_TRUE(config->extra_info);
  EXPECT_TRUE(config->forward && config->backward && config->input && config->output);
  EXPECT_EQ(config->session.loss_policy, LossPolicy::kSpool);
  EXPECT_TRUE(config->session.shared_memory);
  EXPECT_EQ(config->session.session_memory, "");
  EXPECT_FALSE(config->capture_all);
  EXPECT_EQ(config->session.server, "");
  EXPECT_THAT(config->warnings, IsEmpty());
  EXPECT_EQ(config->dump_path, directory_.string());
  EXPECT_TRUE(std::filesystem::is_directory(directory_));
}

TEST_F(ConfigTest, ReadsEveryField) {
  const absl::StatusOr<Config> config = Parse(R"(
    "task": "tensor", "level": "mix", "rank": [3, "0-1", 3], "step": ["5", 2], "extra_info": false,
    "async_dump": false, "precision": "high", "risk_level": "", "custom_op_namespaces": ["_C"],
    "server": "host:9", "run": "r", "loss_policy": "spool", "memory_ceiling_mb": 16, "spool_quota_mb": 32,
    "stall_bound_s": 0.5, "shared_memory": false, "session_memory": "/tmp", "capture": "all", "reuse": "off",
    "statistics": {"list": ["not this section"]},
    "tensor": {"scope": ["Module.a.Linear.forward.0", "Functional.relu.0.forward"], "list": ["linear"],
               "data_mode": ["forward", "input"], "summary_mode": "md5",
               "slice": [{"dim": 1, "size": 8, "begin": -2, "end": 4}, {}]},)");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->task, Task::kTensor);
  EXPECT_EQ(config->level, Level::kMix);
  EXPECT_THAT(config->rank, ElementsAre(0, 1, 3));
  EXPECT_THAT(config->step, ElementsAre(2, 5));
  EXPECT_FALSE(config->extra_info);
  EXPECT_EQ(config->risk_level, RiskLevel::kAll);
  EXPECT_THAT(config->scope, ElementsAre("Module.a.Linear.forward.0", "Functional.relu.0.forward"));
  EXPECT_THAT(config->list, ElementsAre("linear"));
  EXPECT_TRUE(config->forward && config->input);
  EXPECT_FALSE(config->backward || config->output);
  EXPECT_EQ(config->summary_mode, SummaryMode::kMd5);
  ASSERT_EQ(config->slice.size(), 2);
  EXPECT_EQ(config->slice[0].dim, 1);
  EXPECT_EQ(config->slice[0].size, 8);
  EXPECT_EQ(config->slice[0].begin, -2);
  EXPECT_EQ(config->slice[0].end, 4);
  EXPECT_EQ(config->slice[1].dim, 0);
  EXPECT_FALSE(config->slice[1].end.has_value());
  EXPECT_EQ(config->session.server, "host:9");
  EXPECT_EQ(config->run, "r");
  EXPECT_EQ(config->session.loss_policy, LossPolicy::kSpool);
  EXPECT_TRUE(config->precision_high);
  EXPECT_THAT(config->custom_op_namespaces, ElementsAre("_C"));
  EXPECT_EQ(config->session.memory_ceiling_bytes, uint64_t{16} << 20);
  EXPECT_EQ(config->session.spool_quota_bytes, uint64_t{32} << 20);
  EXPECT_EQ(config->session.stall_bound, absl::Milliseconds(500));
  EXPECT_FALSE(config->session.shared_memory);
  EXPECT_EQ(config->session.session_memory, "/tmp");
  EXPECT_TRUE(config->capture_all);
  EXPECT_THAT(config->json, HasSubstr("\"stall_bound_s\":0.5"));
  EXPECT_THAT(config->warnings, IsEmpty());
}

TEST_F(ConfigTest, NamingOneSideOfDataModeLeavesBothOfTheOther) {
  const absl::StatusOr<Config> config = Parse(R"("statistics": {"data_mode": ["output"]},)");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_TRUE(config->forward && config->backward && config->output);
  EXPECT_FALSE(config->input);
  EXPECT_TRUE(Parse(R"("statistics": {"data_mode": []},)")->input);
}

TEST_F(ConfigTest, RefusesWithFieldValueAndWhatIsAllowed) {
  ExpectRefused(R"("task": "xx",)", {"task is invalid, it should be one of ['statistics', 'tensor', 'structure', "
                                     "'diff_check', 'nan_check', 'check', 'monitor', 'grad_probe', 'free_benchmark']",
                                     "\"xx\""});
  ExpectRefused(R"("task": 3,)", {"task is invalid", "3"});
  for (const char* task : {"acc_check", "exception_dump", "overflow_check"}) {
    ExpectRefused(Cat("\"task\": \"", task, "\","), {task, "not supported, as it", "'statistics'"});
  }
  ExpectRefused(R"("level": "L9",)", {"level is invalid, it should be one of ['L0', 'L1', 'mix', 'debug']", "\"L9\""});
  ExpectRefused(R"("level": "L2",)", {"level \"L2\" is not supported, as it makes the driver", "'mix'"});
  ExpectRefused(R"("rank": 0,)", {"rank is invalid, it should be a list", "0"});
  ExpectRefused(R"("rank": ["a"],)", {"The string parameter for rank only supports formats like \"3\" or \"3-5\". Now "
                                      "string parameter for rank is \"a\"."});
  ExpectRefused(R"("step": ["1,2"],)", {"step", "\"1,2\""});
  ExpectRefused(R"("rank": [-1],)", {"Each element of rank must be between 0 and 1000000, currently it is -1."});
  ExpectRefused(R"("step": ["0-1000001"],)", {"Each element of step must be between 0 and 1000000"});
  ExpectRefused(R"("rank": [1.5],)", {"rank element 1.5 must be an integer or string."});
  ExpectRefused(R"("step": [true],)", {"step element true must be an integer or string."});
  ExpectRefused(R"("step": ["5-2"],)",
                {"For the hyphen(-) in step, the left boundary (5) cannot be greater than the right boundary (2)."});
  ExpectRefused(R"("async_dump": "true",)", {"async_dump is invalid, it should be a boolean", "\"true\""});
  ExpectRefused(R"("extra_info": 1,)", {"extra_info is invalid, it should be a boolean", "1"});
  ExpectRefused(R"("dump_enable": 1,)", {"dump_enable is invalid, it should be a boolean"});
  ExpectRefused(R"("precision": "mid",)", {"precision is invalid, it should be one of ['low', 'high']", "\"mid\""});
  ExpectRefused(R"("risk_level": "low",)", {"risk_level is invalid, it should be one of ['CORE', 'FOCUS', 'ALL']"});
  ExpectRefused(R"("custom_op_namespaces": "a",)", {"custom_op_namespaces is invalid, it should be a list[str]"});
  ExpectRefused(R"("statistics": {"list": [1]},)", {"list is invalid, it should be a list[str]", "[1]"});
  ExpectRefused(R"("statistics": {"tensor_list": "a"},)", {"tensor_list is invalid, it should be a list[str]"});
  ExpectRefused(R"("statistics": {"data_mode": ["all", "input"]},)",
                {"'all' cannot be combined with other options in data_mode."});
  ExpectRefused(R"("statistics": {"data_mode": ["x"]},)",
                {"The element 'x' of data_mode [\"x\"] is not in ['all', 'input', 'output', 'forward', 'backward']."});
  ExpectRefused(R"("statistics": {"data_mode": ["input", "input", "input", "input", "input"]},)", {"cannot exceed 4"});
  ExpectRefused(R"("statistics": {"summary_mode": "crc"},)",
                {"summary_mode is invalid, summary_mode is not in ['statistics', 'md5', 'xor']", "\"crc\""});
  ExpectRefused(R"("async_dump": true, "statistics": {"summary_mode": "md5"},)",
                {"The parameters async_dump is true, the parameters summary_mode cannot be md5."});
  ExpectRefused(R"("async_dump": true, "task": "tensor",)",
                {"The parameters async_dump is true in tensor task, the parameters list cannot be empty."});
  ExpectRefused(R"("statistics": {"slice": [{"dim": -1}]},)", {"slice.dim cannot be negative, got -1"});
  ExpectRefused(R"("statistics": {"slice": {"dim": 1}},)", {"slice is invalid, it should be a list"});
  ExpectRefused(R"("statistics": {"slice": [{"begin": "a"}]},)",
                {"Field 'begin' in slice must be an integer, got str"});
  ExpectRefused(R"("statistics": [],)", {"statistics is invalid, it should be a dict"});
  ExpectRefused(R"("server": "nowhere",)", {"server is invalid", "\"nowhere\"", "host:port"});
  for (const char* given : {"relative", "/nowhere/at/all", "on"}) {
    ExpectRefused(Cat(R"("session_memory": ")", given, R"(",)"), {"session_memory", "absolute path", given});
  }
  ExpectRefused(R"("loss_policy": "lose",)", {"loss_policy", "'spool', 'stall', 'drop'", "\"lose\""});
  ExpectRefused(R"("memory_ceiling_mb": 0,)", {"memory_ceiling_mb", "0"});
  ExpectRefused(R"("stall_bound_s": "1",)", {"stall_bound_s", "\"1\""});
  ExpectRefused(R"("capture": "some",)", {"capture", "'listed', 'all'"});
  ExpectRefused(R"("reuse": "some",)", {"reuse", "'off', 'parameters', 'all'"});
}

TEST_F(ConfigTest, ScopeIsTwoFullNamesOfTheLevel) {
  ExpectRefused(R"("statistics": {"scope": ["a"]},)", {"Invalid scope", "length 2", "1"});
  ExpectRefused(R"("statistics": {"scope": ["a", "b"]},)", {"Invalid scope", "Functional.linear.0.forward", "\"a\""});
  ExpectRefused(R"("statistics": {"scope": "a"},)", {"scope is invalid, it should be a list[str]"});
  const std::string modules = R"("statistics": {"scope": ["Module.a.L.forward.0", "Module.b.L.backward.1"]},)";
  const std::string apis = R"("statistics": {"scope": ["Tensor.add.0.forward", "Torch.mul.3.backward"]},)";
  ExpectRefused(modules, {"Invalid scope", "level L1"});
  ExpectRefused(R"("level": "L0",)" + apis, {"Invalid scope", "level L0"});
  EXPECT_TRUE(Parse(apis).ok());
  EXPECT_TRUE(Parse(R"("level": "L0",)" + modules).ok());
  EXPECT_TRUE(Parse(R"("level": "mix",)" + modules).ok());
  EXPECT_TRUE(Parse(R"("level": "mix",)" + apis).ok());
}

TEST_F(ConfigTest, DumpPathIsMadeAndMayHoldAnyLetters) {
  const std::filesystem::path path = directory_ / "a b+c" / "\xC3\xA9";
  const absl::StatusOr<Config> config = ParseConfig(Cat(R"({"dump_path": ")", path.string(), "/\"}"), {});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->dump_path, path.string());
  EXPECT_TRUE(std::filesystem::is_directory(path));
}

TEST_F(ConfigTest, DumpPathThatCannotBeIsRefused) {
  const auto message = [](const std::string& json) { return std::string(ParseConfig(json, {}).status().message()); };
  EXPECT_THAT(message("{}"), HasSubstr("The dump_path not found."));
  EXPECT_THAT(message(R"({"dump_path": null})"), HasSubstr("The dump_path not found."));
  EXPECT_THAT(message(R"({"dump_path": 1})"), HasSubstr("dump_path is invalid, it should be a string"));
  EXPECT_THAT(message(R"({"dump_path": ""})"), HasSubstr("empty"));
  EXPECT_THAT(message(R"({"dump_path": "/proc/nothing"})"), HasSubstr("\"/proc/nothing\" cannot be created"));
  EXPECT_THAT(message(Cat(R"({"dump_path": "/tmp/)", std::string(256, 'x'), "\"}")), HasSubstr("255"));
  std::filesystem::create_directories(directory_);
  std::ofstream(directory_ / "file") << "x";
  EXPECT_THAT(message(Cat(R"({"dump_path": ")", (directory_ / "file").string(), "\"}")), HasSubstr("dump_path"));
}

TEST_F(ConfigTest, ArgumentsStandAboveTheFile) {
  ConfigOverrides overrides;
  overrides.task = "tensor";
  overrides.level = "L0";
  overrides.step = {"7", "1-2"};
  overrides.dump_path = (directory_ / "other").string();
  const absl::StatusOr<Config> config = Parse(R"("task": "statistics", "step": [9], "level": "bad",)", overrides);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->task, Task::kTensor);
  EXPECT_EQ(config->level, Level::kL0);
  EXPECT_THAT(config->step, ElementsAre(1, 2, 7));
  EXPECT_EQ(config->dump_path, *overrides.dump_path);
  overrides.task = "nope";
  EXPECT_THAT(std::string(Parse("", overrides).status().message()), HasSubstr("\"nope\""));
}

TEST_F(ConfigTest, UnknownFieldsAreWarnedOfWithTheNearestName) {
  const absl::StatusOr<Config> config = Parse(R"("summry_mode": 1, "Rank": [], "statistics": {"data_modes": []},)");
  ASSERT_TRUE(config.ok()) << config.status();
  ASSERT_EQ(config->warnings.size(), 3);
  EXPECT_THAT(config->warnings[0], HasSubstr("\"summry_mode\""));
  EXPECT_THAT(config->warnings[0], HasSubstr("did you mean \"summary_mode\" in section \"statistics\"?"));
  EXPECT_THAT(config->warnings[1], HasSubstr("did you mean \"rank\"?"));
  EXPECT_THAT(config->warnings[2], HasSubstr("did you mean \"data_mode\"?"));
}

TEST_F(ConfigTest, StructureIsForcedToMix) {
  const absl::StatusOr<Config> config = Parse(R"("task": "structure", "level": "L1",)");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->level, Level::kMix);
  ASSERT_EQ(config->warnings.size(), 1);
  EXPECT_THAT(config->warnings[0], HasSubstr("L1"));
  EXPECT_EQ(Parse(R"("task": "structure", "level": "L0",)")->level, Level::kL0);
}

TEST_F(ConfigTest, TheEnvironmentStandsInForServerAndRun) {
  setenv("MSPROBE_SERVER", "unix:/run/s", 1);
  setenv("MSPROBE_RUN", "night", 1);
  EXPECT_EQ(Parse("")->session.server, "unix:/run/s");
  EXPECT_EQ(Parse("")->run, "night");
  EXPECT_EQ(Parse(R"("server": "h:1", "run": "day",)")->session.server, "h:1");
  EXPECT_EQ(Parse(R"("server": "h:1", "run": "day",)")->run, "day");
  setenv("MSPROBE_SERVER", "bad", 1);
  ExpectRefused("", {"\"bad\""});
  unsetenv("MSPROBE_SERVER");
  setenv("MSPROBE_RUN", std::string(256, 'n').c_str(), 1);
  ExpectRefused("", {"run is invalid", "at most 255 bytes", "256"});
  unsetenv("MSPROBE_RUN");
}

TEST_F(ConfigTest, WhatIsNotJsonIsRefusedWithItsLine) {
  EXPECT_THAT(std::string(ParseConfig("{\n\"task\" 1}", {}).status().message()), HasSubstr("Line 2"));
  EXPECT_THAT(std::string(ParseConfig("[]", {}).status().message()), HasSubstr("JSON object"));
}

TEST_F(ConfigTest, RanksOfOneLaunchChooseOneRunName) {
  for (const char* name : {"TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT"}) unsetenv(name);
  EXPECT_THAT(ChooseRunName("/home/me/train.py"), ::testing::StartsWith("train-2"));
  setenv("MASTER_ADDR", "node0", 1);
  setenv("MASTER_PORT", "29500", 1);
  EXPECT_EQ(ChooseRunName("train.py"), "train-node0-29500");
  setenv("TORCHELASTIC_RUN_ID", "none", 1);
  EXPECT_EQ(ChooseRunName("train.py"), "train-node0-29500");
  setenv("TORCHELASTIC_RUN_ID", "job7", 1);
  EXPECT_EQ(ChooseRunName("train.py"), "train-job7");
  setenv("MSPROBE_RUN", "mine", 1);
  EXPECT_EQ(ChooseRunName("train.py"), "mine");
  for (const char* name : {"TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "MSPROBE_RUN"}) unsetenv(name);
}

}  // namespace
}  // namespace msprobe::core
