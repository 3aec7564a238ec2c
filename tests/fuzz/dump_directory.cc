// dump.json, stack.json, construct.json or debug.json, read by an import and for a comparison; the first byte says
// which file. Both read with the same cursors, and an import is the stricter of them: what it takes, a comparison
// takes, too.

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "server/analysis/table/dump_reader.h"
#include "server/importer/dump_layout.h"
#include "server/importer/file_source.h"
#include "server/importer/step_importer.h"
#include "tests/fuzz/fuzz_target.h"

namespace msprobe::server {
namespace {

constexpr char kDump[] = R"({"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": null,
 "data": {"Torch.add.0.forward": {"input_args": [], "input_kwargs": {}, "output": []}}})";
constexpr const char* kNames[] = {"dump.json", "stack.json", "construct.json", "debug.json"};

bool Imports(int which, const std::string& content) {
  MemoryFiles files;
  if (which != 3) files.Add("dump.json", kDump);
  files.Add(kNames[which], content);
  std::vector<std::string> warnings;
  const auto layout = FindSteps(files.paths(), 0, v1::Rank(), warnings);
  if (!layout.ok()) return false;
  bool good = true;
  for (const auto& [rank, steps] : *layout) {
    for (const auto& [step, step_files] : steps) {
      PayloadFiles payloads;
      good = ImportStep(files, step, step_files, nullptr, payloads, warnings).ok() && good;
    }
  }
  return good;
}

absl::Status Compares(int which, const std::string& content) {
  StepTable table;
  DumpReader reader(&table);
  if (which == 0 || which == 3) return reader.AddDump(content);
  if (absl::Status status = reader.AddDump(kDump); !status.ok()) return status;
  return which == 1 ? reader.AddStacks(content) : reader.AddConstruct(content);
}

void Read(int which, const std::string& content) {
  const absl::Status compared = Compares(which, content);
  if (!Imports(which, content) || compared.ok()) return;
  std::fprintf(stderr, "imported, but not compared: %s\n", compared.ToString().c_str());
  std::abort();
}

}  // namespace
}  // namespace msprobe::server

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > 0) msprobe::server::Read(data[0] % 4, std::string(msprobe::fuzz::Text(data + 1, size - 1)));
  return 0;
}
