#include "agent/core/config/fields.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <sstream>

#include "agent/core/config/config_schema.h"
#include "agent/core/config/field_tables.h"
#include "agent/core/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace msprobe::core {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Section = Field::Section;

// A configuration in a directory of its own.
class FieldsTest : public ::testing::Test {
 protected:
  FieldsTest() : directory_(std::filesystem::temp_directory_path() / Cat("core-fields-", getpid())) {
    std::filesystem::create_directories(directory_);
    for (const Field& field : Fields()) {
      if (!field.environment.empty()) unsetenv(std::string(field.environment).c_str());
    }
  }
  ~FieldsTest() override { std::filesystem::remove_all(directory_); }

  // `value`: JSON of one field; empty: it is left out.
  absl::StatusOr<Config> Parse(const Field& field, std::string_view value) {
    const std::string dump = field.name == "dump_path" ? "" : Cat(R"(, "dump_path": ")", directory_.string(), "\"");
    const std::string member = value.empty() ? "" : Cat("\"", field.key(), "\": ", value);
    if (field.section == Section::kLoad) {
      std::string load = member;
      for (const auto& [name, given] : {std::pair("path", Cat("\"", directory_.string(), "\"")),
                                        std::pair("modules", std::string(R"(["Module.a.Linear.forward.0"])"))}) {
        if (field.key() != name) load += Cat(load.empty() ? "\"" : ", \"", name, "\": ", given);
      }
      return ParseConfig(Cat(R"({"run": "")", dump, R"(, "load": {)", load, "}}"), {});
    }
    if (field.section == Section::kTask) {
      const std::string_view task = field.Has(Task::kStatistics)  ? "statistics"
                                    : field.Has(Task::kTensor)    ? "tensor"
                                    : field.Has(Task::kCheck)     ? "check"
                                    : field.Has(Task::kMonitor)   ? "monitor"
                                    : field.Has(Task::kGradProbe) ? "grad_probe"
                                                                  : "free_benchmark";
      return ParseConfig(Cat(R"({"task": ")", task, "\"", dump, ", \"", task, "\": {", member, "}}"), {});
    }
    return ParseConfig(Cat("{", member.empty() ? R"("extra_info": true)" : member, dump, "}"), {});
  }

  static std::map<std::string, FieldValue> ValuesOf(const Config& config) {
    std::map<std::string, FieldValue> values;
    for (const Field& field : Fields()) {
      if (field.access.give != nullptr) values[std::string(field.name)] = field.access.give(config, field);
    }
    return values;
  }

  const std::filesystem::path directory_;
};

TEST_F(FieldsTest, AWrongValueIsRefusedByTheFieldsName) {
  for (const Field& field : Fields()) {
    const absl::StatusOr<Config> config = Parse(field, field.wrong);
    EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument) << field.name;
    EXPECT_THAT(std::string(config.status().message()), HasSubstr(std::string(field.key()))) << field.name;
  }
}

TEST_F(FieldsTest, TheDefaultIsTheValueOfAFieldThatIsLeftOut) {
  for (const Field& field : Fields()) {
    const absl::StatusOr<Config> absent = Parse(field, "");
    if (field.required) {
      EXPECT_THAT(absent.status().ToString(), HasSubstr(std::string(field.name)));
      continue;
    }
    ASSERT_TRUE(absent.ok()) << field.name << absent.status();
    const absl::StatusOr<Config> given = Parse(field, DefaultOf(field));
    ASSERT_TRUE(given.ok()) << field.name << given.status();
    EXPECT_EQ(ValuesOf(*given), ValuesOf(*absent)) << field.name;
    EXPECT_THAT(given->warnings, IsEmpty()) << field.name;
  }
}

// A field whose value is given back as text, number or list can be read again.
TEST_F(FieldsTest, AValueThatIsGivenBackIsTheOneThatWasRead) {
  const std::map<std::string_view, std::string_view> kOthers = {
      {"level", R"("mix")"},
      {"rank", "[3]"},
      {"step", "[1,2]"},
      {"dump_enable", "false"},
      {"extra_info", "false"},
      {"precision", R"("high")"},
      {"risk_level", R"("CORE")"},
      {"tensor_list", R"(["a"])"},
      {"data_mode", R"(["forward","input"])"},
      {"summary_mode", R"("md5")"},
      {"request_id", R"("r")"},
      {"diff_nums", "-1"},
      {"sample", R"("first")"},
      {"budget_mb", "0.5"},
      {"budget_ms", "2.5"},
      {"golden", R"("monday")"},
      {"golden_wait_s", "2.5"},
      {"keep", R"("all")"},
      {"policy", R"("cann")"},
      {"grad_level", R"("L2")"},
      {"param_list", R"(["a"])"},
      {"bounds", "[-1,0.5]"},
      {"server", R"("h:1")"},
      {"run", R"("r")"},
      {"loss_policy", R"("drop")"},
      {"memory_ceiling_mb", "16"},
      {"spool_quota_mb", "32"},
      {"stall_bound_s", "0.5"},
      {"schedule", R"({"wait":1,"warmup":2,"active":3,"repeat":4,"skip_first":5})"},
      {"max_steps", "7"},
      {"dump_quota_mb", "64"},
      {"session_memory", R"("off")"},
      {"shared_memory", "false"},
      {"capture", R"("all")"},
      {"backward", R"("exact")"},
      {"reuse", R"("off")"},
      {"reading_threads", "2"},
      {"linear_weight_grad", "true"},
      {"server_ca", R"("a")"},
      {"load.step", "[4]"},
      {"load.dump_after_load", "true"},
  };
  for (const Field& field : Fields()) {
    const auto other = kOthers.find(field.name);
    if (other == kOthers.end()) continue;
    const absl::StatusOr<Config> config = Parse(field, other->second);
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_EQ(JsonOf(field.access.give(*config, field)), other->second) << field.name;
  }
}

TEST_F(FieldsTest, TheServerIsToldOfTheCapture) {
  const absl::StatusOr<Config> config =
      ParseConfig(Cat(R"({"task": "tensor", "level": "mix", "extra_info": false, "precision": "high", "dump_path": ")",
                      directory_.string(), R"(", "tensor": {"summary_mode": "xor"}})"),
                  {});
  ASSERT_TRUE(config.ok()) << config.status();
  const CaptureSettings settings = SettingsOf(*config, "pytorch");
  EXPECT_EQ(settings.task, "tensor");
  EXPECT_EQ(settings.level, "mix");
  EXPECT_EQ(settings.summary_mode, "xor");
  EXPECT_EQ(settings.dump_path, directory_.string());
  EXPECT_FALSE(settings.stack_and_construct);
  EXPECT_TRUE(settings.high_precision);
  EXPECT_THAT(settings.config_json, HasSubstr("\"xor\""));
}

TEST_F(FieldsTest, TheServerIsToldWhatArgumentsAskFor) {
  ConfigOverrides arguments;
  arguments.level = "mix";
  arguments.dump_path = directory_.string();
  const absl::StatusOr<Config> config = ParseConfig(R"({"task": "statistics", "level": "L1"})", arguments);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(SettingsOf(*config, "pytorch").config_json,
            Cat(R"({"task":"statistics","level":"mix","dump_path":")", directory_.string(), R"("})"));
}

TEST_F(FieldsTest, FilesOfTheEnvironmentStandInForThoseOfTheConfiguration) {
  const Field& any = Fields()[0];
  setenv("MSPROBE_SERVER_CA", "/of/environment", 1);
  setenv("MSPROBE_SERVER_TOKEN_FILE", "", 1);
  EXPECT_EQ(AccessOfEnvironment().ca, "/of/environment");
  EXPECT_EQ(AccessOfEnvironment().token_file, "");
  EXPECT_EQ(Parse(any, "")->session.access.ca, "/of/environment");
  for (const Field& field : Fields()) {
    if (field.name != "server_ca") continue;
    EXPECT_EQ(Parse(field, R"("/of/file")")->session.access.ca, "/of/file");
  }
  unsetenv("MSPROBE_SERVER_CA");
  unsetenv("MSPROBE_SERVER_TOKEN_FILE");
}

TEST(Fields, NamesAreUniqueAndEachIsDescribed) {
  std::set<std::string_view> names;
  for (const Field& field : Fields()) {
    EXPECT_TRUE(names.insert(field.name).second) << field.name << " stands twice";
    EXPECT_EQ(field.section == Section::kLoad, field.name.starts_with("load.")) << field.name;
    EXPECT_TRUE(field.description.ends_with(".")) << field.name;
    EXPECT_EQ(field.description.find('|'), std::string_view::npos) << field.name << " breaks the table";
  }
}

TEST(Fields, EveryFieldIsListedOnce) {
  const std::vector<std::string> fields = ConfigFields();
  EXPECT_THAT(fields, Contains("task"));
  EXPECT_THAT(fields, Contains("load.modules"));
  EXPECT_THAT(fields, Contains("*.data_mode"));
  EXPECT_EQ(std::set<std::string>(fields.begin(), fields.end()).size(), fields.size());
}

TEST(Fields, WhatIsSettledOrUnknownCannotBeChangedWhileTheProgramRuns) {
  for (const char* live : {"level", "task", "list", "data_mode", "summary_mode", "step", "reuse"}) {
    EXPECT_EQ(WhyFixed(live), "") << live;
  }
  for (const char* fixed :
       {"dump_path", "server", "run", "server_ca", "server_cert", "server_key", "server_token_file", "loss_policy",
        "memory_ceiling_mb", "spool_quota_mb", "stall_bound_s", "shared_memory", "async_dump", "load"}) {
    EXPECT_EQ(WhyFixed(fixed), std::string(fixed) + " cannot be changed while the program runs");
  }
  EXPECT_THAT(WhyFixed("dump_enable"), HasSubstr("start and stop"));
  EXPECT_THAT(WhyFixed("statistics"), HasSubstr("is a section"));
  EXPECT_EQ(WhyFixed("levle"), "\"levle\" is no field of the configuration; did you mean \"level\"?");
  EXPECT_EQ(WhyFixed("spool_dir"), "\"spool_dir\" is no field of the configuration");
  EXPECT_THAT(WhyFixed(""), HasSubstr("is no field"));
}

// What a generated file holds; with MSPROBE_UPDATE_DOCS it is written first.
void ExpectCurrent(const std::string& file, const std::function<std::string(const std::string&)>& generate) {
  const std::string path = Cat(MSPROBE_SOURCE_DIR, "/", file);
  const auto content = [&] {
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  };
  const std::string generated = generate(content());
  if (std::getenv("MSPROBE_UPDATE_DOCS") != nullptr) std::ofstream(path) << generated;
  EXPECT_EQ(content(), generated) << "run this test with MSPROBE_UPDATE_DOCS=1";
}

TEST(ConfigSchema, TheFileOfThePackageIsCurrent) {
  ExpectCurrent("agent/python/msprobe/config.schema.json", [](const std::string&) { return ConfigSchema(); });
}

TEST(FieldTables, TheDocumentIsCurrent) {
  ExpectCurrent("docs/config.md", [](const std::string& document) { return WithFieldTables(document); });
  const std::string tables = WithFieldTables("<!-- table of fields: task -->\noutdated\n<!-- end of table -->\nrest");
  EXPECT_THAT(tables, HasSubstr("| `*.scope` | `[]` |"));
  EXPECT_THAT(tables, testing::Not(HasSubstr("outdated")));
  EXPECT_THAT(tables, testing::EndsWith("<!-- end of table -->\nrest"));
}

}  // namespace
}  // namespace msprobe::core
