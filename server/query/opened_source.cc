#include "server/query/opened_source.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "server/format/cat.h"
#include "server/importer/file_source.h"
#include "server/stored/stored_table.h"

namespace msprobe::server {
namespace {

namespace fs = std::filesystem;

bool IsNumbered(std::string_view part, std::string_view prefix) {
  return part.size() > prefix.size() && part.starts_with(prefix) &&
         part.find_first_not_of("0123456789", prefix.size()) == std::string_view::npos;
}

bool IsDumpName(std::string_view name) { return name == "dump.json" || name == "debug.json"; }

// Files of one rank directory, or of the directories of ranks and steps below it: names of tensors are not listed.
absl::Status ListJson(const fs::path& directory, const std::string& relative, int depth,
                      std::vector<std::string>& paths) {
  std::error_code error;
  for (const fs::directory_entry& child : fs::directory_iterator(directory, error)) {
    const std::string name = child.path().filename().string();
    const std::string path = relative.empty() ? name : Cat(relative, "/", name);
    std::error_code ignored;
    if (child.is_directory(ignored)) {
      if (depth > 0 && name != "dump_tensor_data" && !name.starts_with('.')) {
        if (absl::Status status = ListJson(child.path(), path, depth - 1, paths); !status.ok()) return status;
      }
    } else if (IsDumpName(name) || name == "stack.json" || name == "construct.json") {
      paths.push_back(path);
    }
  }
  if (!error) return absl::OkStatus();
  return absl::ErrnoToStatus(error.value(), Cat("cannot read ", directory.string()));
}

// "step3/rank1/" of /dumps/step3/rank1: a path may begin inside what the names of directories say.
std::string NamesAbove(const fs::path& directory) {
  const std::string name = directory.filename().string();
  if (IsNumbered(name, "rank") || IsNumbered(name, "proc")) {
    const std::string above = directory.parent_path().filename().string();
    return IsNumbered(above, "step") ? Cat(above, "/", name, "/") : Cat(name, "/");
  }
  return IsNumbered(name, "step") ? Cat(name, "/") : "";
}

absl::StatusOr<std::map<OpenedSource::Place, DumpFiles>> FilesOf(const std::string& given) {
  std::error_code error;
  const fs::path path = fs::canonical(given, error);
  if (error) return absl::NotFoundError(Cat(given, ": ", error.message()));
  fs::path directory = path;
  std::vector<std::string> paths;
  if (fs::is_regular_file(path, error)) {
    if (!IsDumpName(path.filename().string())) {
      return absl::InvalidArgumentError(Cat(given, " is neither a directory nor a dump.json or debug.json"));
    }
    directory = path.parent_path();
    paths.push_back(path.filename().string());
    for (const char* name : {"stack.json", "construct.json"}) {
      if (fs::is_regular_file(directory / name, error)) paths.push_back(name);
    }
  } else {
    if (absl::Status status = ListJson(directory, "", 4, paths); !status.ok()) return status;
  }
  const std::string above = NamesAbove(directory);
  for (std::string& each : paths) each.insert(0, above);
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> warnings;
  v1::Rank rank;
  rank.set_kind(v1::Rank::RANK);
  auto layout = FindSteps(paths, 0, rank, warnings);
  if (!layout.ok()) return absl::InvalidArgumentError(Cat(given, ": ", StdView(layout.status().message())));
  std::map<OpenedSource::Place, DumpFiles> files;
  for (const auto& [place, steps] : *layout) {
    for (const auto& [step, found] : steps) {
      const auto whole = [&](const std::string& file) {
        return file.empty() ? std::string() : (directory / file.substr(above.size())).string();
      };
      DumpFiles& of = files[{step, place}];
      of.dump = whole(found.dump.empty() ? found.debug : found.dump);
      of.stacks = whole(found.stack);
      of.construct = whole(found.construct);
      of.tensors = (fs::path(of.dump).parent_path() / "dump_tensor_data").string();
    }
  }
  return files;
}

}  // namespace

v1::Rank RankOfPlace(const OpenedSource::Place& place) {
  v1::Rank rank;
  rank.set_kind(static_cast<v1::Rank::Kind>(place.second.first));
  rank.set_number(place.second.second);
  return rank;
}

std::string TextOfRank(const OpenedSource::Place& place) {
  return Cat(place.second.first == v1::Rank::RANK ? "rank " : "process ", place.second.second);
}

absl::StatusOr<OpenedSource> OpenedSource::Open(const v1::Source& source, const AnalysisContext& context) {
  OpenedSource opened(context);
  if (source.kind_case() == v1::Source::kRun) {
    opened.name_ = source.run();
    auto view = RunView::Open(context.shards(), source.run());
    if (!view.ok()) return view.status();
    opened.view_ = std::make_shared<const RunView>(*std::move(view));
    for (const ShownStep& step : opened.view_->steps()) {
      const v1::Rank rank = RankOfCode(step.key.rank);
      opened.places_.push_back({step.key.step, {rank.kind(), rank.number()}});
      opened.steps_.emplace(opened.places_.back(), &step);
    }
  } else if (source.kind_case() == v1::Source::kPath) {
    opened.name_ = source.path();
    if (!context.paths_allowed) {
      return absl::FailedPreconditionError(
          Cat("path ", source.path(),
              ": this server reads no directories; import it as a run, or let the client start a "
              "server of its own"));
    }
    auto files = FilesOf(source.path());
    if (!files.ok()) return files.status();
    opened.files_ = *std::move(files);
    for (const auto& [place, found] : opened.files_) {
      opened.places_.push_back(place);
      std::error_code none;
      if (fs::exists(fs::path(found.dump).parent_path() / "INCOMPLETE", none)) opened.incomplete_.insert(place);
    }
  } else {
    return absl::InvalidArgumentError("a source is neither a run nor a path");
  }
  std::sort(opened.places_.begin(), opened.places_.end());
  return opened;
}

absl::StatusOr<OpenedSource> OpenedSource::OpenRun(const std::string& name, const AnalysisContext& context) {
  v1::Source source;
  source.set_run(name);
  return Open(source, context);
}

absl::StatusOr<std::unique_ptr<TableSource>> OpenedSource::Read(const Place& place, const DumpReading& reading) const {
  if (const auto found = steps_.find(place); found != steps_.end()) {
    auto blocks = view_->Blocks(*found->second);
    if (!blocks.ok()) return blocks.status();
    return ReadStoredTable(*std::move(blocks), reading, *layouts_);
  }
  return ReadDumpTable(files_.at(place), reading);
}

absl::StatusOr<EntryText> OpenedSource::ReadEntry(const Place& place, std::string_view name) const {
  const auto found = steps_.find(place);
  if (found == steps_.end()) return ReadEntryText(files_.at(place), name);
  auto records = Records(place);
  if (!records.ok()) return records.status();
  return ReadEntryText(**records, name);
}

absl::StatusOr<std::unique_ptr<RecordSource>> OpenedSource::Records(const Place& place) const {
  return view_->Records(*steps_.at(place));
}

const DumpFiles* OpenedSource::Files(const Place& place) const {
  const auto found = files_.find(place);
  return found == files_.end() ? nullptr : &found->second;
}

OpenedSource::Completeness OpenedSource::CompletenessOf(const Place& place) const {
  const auto found = steps_.find(place);
  if (found == steps_.end()) return incomplete_.contains(place) ? Completeness::kFileSaysSo : Completeness::kWhole;
  const storage::StepRow& row = found->second->row;
  if (row.state() == v1::StepSummary::OPEN) return Completeness::kOpen;
  if (row.state() == v1::StepSummary::INCOMPLETE) return Completeness::kNeverEnded;
  return row.gaps().empty() ? Completeness::kWhole : Completeness::kLeftOut;
}

bool OpenedSource::HasNonFinite(const Place& place) const {
  const auto found = steps_.find(place);
  return found != steps_.end() && found->second->row.nan_tensors() + found->second->row.inf_tensors() > 0;
}

std::optional<TileSource::Step> OpenedSource::FindStored(const Place& place) const {
  const auto found = steps_.find(place);
  if (found == steps_.end() || found->second->peer != nullptr) return std::nullopt;
  return TileSource::Step{found->second->key, found->second->row.next_block()};
}

}  // namespace msprobe::server
