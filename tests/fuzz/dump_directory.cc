// dump.json, stack.json, construct.json or debug.json of an import; the first byte says which.

#include <string>
#include <vector>

#include "server/importer/dump_layout.h"
#include "server/importer/file_source.h"
#include "server/importer/step_importer.h"
#include "tests/fuzz/fuzz_target.h"

namespace msprobe::server {
namespace {

constexpr char kDump[] = R"({"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": null,
 "data": {"Torch.add.0.forward": {"input_args": [], "input_kwargs": {}, "output": []}}})";

void Import(uint8_t which, std::string content) {
  static constexpr const char* kNames[] = {"dump.json", "stack.json", "construct.json", "debug.json"};
  const char* const name = kNames[which % 4];
  MemoryFiles files;
  if (which % 4 != 3) files.Add("dump.json", kDump);
  files.Add(name, std::move(content));
  std::vector<std::string> warnings;
  const auto layout = FindSteps(files.paths(), 0, v1::Rank(), warnings);
  if (!layout.ok()) return;
  for (const auto& [rank, steps] : *layout) {
    for (const auto& [step, step_files] : steps) {
      PayloadFiles payloads;
      (void)ImportStep(files, step, step_files, nullptr, payloads, warnings).ok();
    }
  }
}

}  // namespace
}  // namespace msprobe::server

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > 0) msprobe::server::Import(data[0], std::string(msprobe::fuzz::Text(data + 1, size - 1)));
  return 0;
}
