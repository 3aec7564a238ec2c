#include "server/query/entry_text.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "server/exporter/file_sink.h"
#include "server/exporter/step_exporter.h"
#include "server/format/cat.h"
#include "server/format/dump/dump_cursor.h"
#include "server/format/dump/dump_text.h"
#include "server/format/dump/stack_file.h"
#include "server/format/tensor_file/byte_source.h"

namespace msprobe::server {
namespace {

class MemorySink : public FileSink {
 public:
  absl::Status Begin(std::string_view path) override {
    file_ = &files_[std::string(path)];
    file_->clear();
    return absl::OkStatus();
  }
  absl::Status Write(std::string_view content) override {
    file_->append(content);
    return absl::OkStatus();
  }
  absl::Status End() override { return absl::OkStatus(); }

  // Empty: there is none.
  std::string_view file(const std::string& path) const {
    const auto found = files_.find(path);
    return found == files_.end() ? std::string_view() : found->second;
  }

 private:
  std::map<std::string, std::string> files_;
  std::string* file_ = nullptr;
};

absl::StatusOr<std::string> ReadEntry(std::string_view dump, std::string_view name) {
  std::string found;
  DumpCursor entries(dump);
  std::string entry;
  while (entries.NextEntry(entry)) {
    const JsonText value = entries.json().Take();
    if (entry == name) found = std::string(value.text);
  }
  if (!entries.status().ok()) return entries.status();
  return found;
}

// The modules around an entry, and the entry. `construct`: construct.json; empty: there is none.
absl::StatusOr<std::vector<std::string>> ReadModules(std::string_view construct, std::string_view name) {
  absl::flat_hash_map<std::string, std::string> parents;
  if (!construct.empty()) {
    absl::Status status =
        ReadParents(construct, {}, [&](std::string_view child, const JsonText& parent, const JsonText&) {
          JsonCursor text(parent.text);
          parents[std::string(child)] = parent.is_string() ? std::string(text.String()) : std::string();
          return absl::OkStatus();
        });
    if (!status.ok()) return status;
  }
  std::vector<std::string> modules;
  for (std::string at(name); !at.empty();) {
    modules.push_back(at);
    const auto parent = parents.find(at);
    at = parent == parents.end() ? std::string() : parent->second;
  }
  std::reverse(modules.begin(), modules.end());
  return modules;
}

absl::Status Named(const std::string& path, const absl::Status& status) {
  return status.ok() ? status : absl::Status(status.code(), Cat(path, ": ", StdView(status.message())));
}

absl::StatusOr<DumpText> ReadText(const std::string& path) {
  auto source = FileBytes::Open(path);
  if (!source.ok()) return source.status();
  auto text = DumpText::Read(**source);
  if (!text.ok()) return Named(path, text.status());
  return text;
}

}  // namespace

absl::StatusOr<EntryText> ReadEntryText(const DumpFiles& files, std::string_view name) {
  auto dump = ReadText(files.dump);
  if (!dump.ok()) return dump.status();
  auto json = ReadEntry(dump->view(), name);
  if (!json.ok()) return Named(files.dump, json.status());
  if (files.construct.empty()) return EntryText{*std::move(json), {std::string(name)}};
  auto construct = ReadText(files.construct);
  if (!construct.ok()) return construct.status();
  auto modules = ReadModules(construct->view(), name);
  if (!modules.ok()) return Named(files.construct, modules.status());
  return EntryText{*std::move(json), *std::move(modules)};
}

absl::StatusOr<EntryText> ReadEntryText(RecordSource& step, std::string_view name) {
  MemorySink files;
  StepExportOptions options;
  options.omit_tensors = true;
  auto summary = ExportStep(step, options, files);
  if (!summary.ok()) return summary.status();
  const std::string_view dump = files.file("dump.json");
  auto json = ReadEntry(dump.empty() ? files.file("debug.json") : dump, name);
  if (!json.ok()) return json.status();
  auto modules = ReadModules(files.file("construct.json"), name);
  if (!modules.ok()) return modules.status();
  return EntryText{*std::move(json), *std::move(modules)};
}

}  // namespace msprobe::server
