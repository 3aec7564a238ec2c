// Dumps recorded with mindstudio-probe, imported and exported again: the same JSON, key by key.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>

#include "rapidjson/document.h"
#include "server/exporter/step_exporter.h"
#include "server/format/cat.h"
#include "server/format/json/json_writer.h"
#include "server/format/tensor_file/pt_file.h"
#include "server/importer/dump_importer.h"
#include "server/importer/replayed_sessions.h"

namespace msprobe::server {
namespace {

namespace fs = std::filesystem;

constexpr unsigned kFlags = rapidjson::kParseNanAndInfFlag | rapidjson::kParseFullPrecisionFlag;

class MemorySink : public FileSink {
 public:
  absl::Status Begin(std::string_view path) override {
    current_ = &files[std::string(path)];
    current_->clear();
    return absl::OkStatus();
  }
  absl::Status Write(std::string_view content) override {
    current_->append(content);
    return absl::OkStatus();
  }
  absl::Status End() override {
    current_ = nullptr;
    return absl::OkStatus();
  }

  std::map<std::string, std::string> files;

 private:
  std::string* current_ = nullptr;
};

fs::path Reference() {
  const char* named = std::getenv("MSPROBE_REFERENCE");
  return named != nullptr ? fs::path(named) : fs::path(MSPROBE_SOURCE_DIR) / ".." / "shared" / "reference";
}

std::string ReadFile(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// One spelling of equal JSON; order of keys counts. Header's dump_data_dir is set aside: it is where the export lies.
std::string Normal(const std::string& text) {
  rapidjson::Document document;
  document.Parse<kFlags>(text.data(), text.size());
  EXPECT_FALSE(document.HasParseError()) << text.substr(0, 200);
  if (document.IsObject() && document.HasMember("dump_data_dir")) document["dump_data_dir"].SetNull();
  JsonWriter writer(false);
  document.Accept(writer);
  return writer.Take();
}

// construct.json: its order of keys has no meaning, and the store keeps one order of records, that of dump.json.
std::string NormalKeys(const std::string& text) {
  rapidjson::Document document;
  document.Parse<kFlags>(text.data(), text.size());
  std::map<std::string, std::string> members;
  for (const auto& member : document.GetObject()) {
    JsonWriter writer(false);
    member.value.Accept(writer);
    members[member.name.GetString()] = writer.Take();
  }
  std::string all;
  for (const auto& [key, value] : members) all += Cat(key, ": ", value, "\n");
  return all;
}

struct RoundTrip {
  v1::ImportResponse response;
  std::vector<MemorySink> sinks;  // one a session, its first step
  ReplayedSessions sessions;
};

void ImportAndExport(FileSource& files, const StepExportOptions& options, RoundTrip& trip) {
  DumpImportOptions import;
  import.run = "r";
  absl::StatusOr<v1::ImportResponse> response = ImportDump(files, import, trip.sessions);
  ASSERT_TRUE(response.ok()) << response.status();
  trip.response = *response;
  for (size_t i = 0; i < trip.sessions.sessions().size(); ++i) {
    trip.sinks.emplace_back();
    std::unique_ptr<RecordSource> reader = trip.sessions.ReadStep(i, trip.sessions.sessions()[i]->steps.begin()->first);
    absl::StatusOr<StepExportSummary> summary = ExportStep(*reader, options, trip.sinks.back());
    ASSERT_TRUE(summary.ok()) << summary.status();
    EXPECT_THAT(summary->warnings, testing::IsEmpty());
  }
}

std::vector<std::string> Cases() {
  std::vector<std::string> cases;
  std::error_code error;
  for (const char* room : {"dump", "compare", "mindspore"}) {
    for (fs::directory_iterator it(Reference() / room, error), end; !error && it != end; it.increment(error)) {
      if (it->is_directory() && fs::exists(it->path() / "step0")) {
        cases.push_back(Cat(room, "/", it->path().filename().string()));
      }
    }
  }
  std::sort(cases.begin(), cases.end());
  if (cases.empty()) cases.push_back("absent");
  return cases;
}

class RecordedDump : public testing::TestWithParam<std::string> {};

TEST_P(RecordedDump, ComesBackAsItWas) {
  if (GetParam() == "absent") GTEST_SKIP() << "no recorded dumps at " << Reference() << " (MSPROBE_REFERENCE)";
  const fs::path root = Reference() / GetParam();
  absl::StatusOr<std::unique_ptr<DirectoryFiles>> files = DirectoryFiles::Open(root.string());
  ASSERT_TRUE(files.ok()) << files.status();
  RoundTrip trip;
  StepExportOptions options;
  options.directory = "/elsewhere";
  ImportAndExport(**files, options, trip);
  ASSERT_EQ(trip.sinks.size(), 1u);
  const auto& exported = trip.sinks[0].files;
  const fs::path rank = *fs::directory_iterator(root / "step0");
  std::set<std::string> expected_files;
  for (const auto& entry : fs::recursive_directory_iterator(rank)) {
    if (entry.is_regular_file()) expected_files.insert(entry.path().lexically_relative(rank).generic_string());
  }
  std::set<std::string> got_files;
  for (const auto& [path, content] : exported) got_files.insert(path);
  EXPECT_EQ(got_files, expected_files);
  for (const char* name : {"dump.json", "debug.json", "stack.json"}) {
    if (!fs::exists(rank / name)) continue;
    SCOPED_TRACE(name);
    ASSERT_TRUE(exported.contains(name));
    EXPECT_EQ(Normal(exported.at(name)), Normal(ReadFile(rank / name)));
  }
  if (fs::exists(rank / "construct.json")) {
    EXPECT_EQ(NormalKeys(exported.at("construct.json")), NormalKeys(ReadFile(rank / "construct.json")));
  }
  // Saved tensors: the same elements.
  for (const std::string& path : expected_files) {
    if (!path.ends_with(".pt")) continue;
    const std::string before = ReadFile(rank / path);
    std::string contents[2];
    int side = 0;
    for (const std::string* bytes : {&before, &exported.at(path)}) {
      MemoryBytes source(*bytes);
      absl::StatusOr<PtFile> file = PtFile::Open(source);
      ASSERT_TRUE(file.ok()) << path << file.status();
      contents[side] = testing::PrintToString(file->description().shape);
      ASSERT_TRUE(file->Read([&](std::string_view chunk) {
                        contents[side].append(chunk);
                        return absl::OkStatus();
                      })
                      .ok());
      ++side;
    }
    EXPECT_EQ(contents[0], contents[1]) << path;
  }
}

INSTANTIATE_TEST_SUITE_P(All, RecordedDump, testing::ValuesIn(Cases()), [](const auto& info) {
  std::string name = info.param;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
  return name;
});

}  // namespace
}  // namespace msprobe::server
