#include "server/query/opened_source.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <thread>

#include "server/analysis/table/joined_table.h"
#include "server/format/cat.h"
#include "server/importer/file_source.h"
#include "server/query/stored_table.h"

namespace msprobe::server {
namespace {

namespace fs = std::filesystem;

bool IsNumbered(std::string_view part, std::string_view prefix) {
  return part.size() > prefix.size() && part.starts_with(prefix) &&
         part.find_first_not_of("0123456789", prefix.size()) == std::string_view::npos;
}

bool IsDumpName(std::string_view name) { return name == "dump.json" || name == "debug.json"; }

// Files of one rank directory, or of the directories of ranks and steps below it: names of tensors are not listed.
void ListJson(const fs::path& directory, const std::string& relative, int depth, std::vector<std::string>& paths) {
  std::error_code error;
  for (const fs::directory_entry& child : fs::directory_iterator(directory, error)) {
    const std::string name = child.path().filename().string();
    const std::string path = relative.empty() ? name : Cat(relative, "/", name);
    std::error_code ignored;
    if (child.is_directory(ignored)) {
      if (depth > 0 && name != "dump_tensor_data" && !name.starts_with('.')) {
        ListJson(child.path(), path, depth - 1, paths);
      }
    } else if (IsDumpName(name) || name == "stack.json" || name == "construct.json") {
      paths.push_back(path);
    }
  }
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
    ListJson(directory, "", 4, paths);
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

bool InScope(const OpenedSource::Place& place, const v1::Scope& scope) {
  const bool step = scope.steps().empty() ||
                    std::any_of(scope.steps().begin(), scope.steps().end(), [&](const v1::Scope::Steps& steps) {
                      return steps.first() <= place.first && place.first <= steps.last();
                    });
  const bool rank =
      scope.ranks().empty() || std::any_of(scope.ranks().begin(), scope.ranks().end(), [&](const v1::Rank& wanted) {
        return place.second == std::pair<int, uint32_t>(wanted.kind(), wanted.number());
      });
  return step && rank;
}

std::string PlaceText(const OpenedSource::Place& place) {
  return Cat("step ", place.first, place.second.first == v1::Rank::RANK ? " rank" : " proc", place.second.second);
}

std::string PlacesText(const std::vector<OpenedSource::Place>& places) {
  std::string text;
  for (size_t i = 0; i < places.size() && i < 5; ++i) text += Cat(i == 0 ? "" : ", ", PlaceText(places[i]));
  if (places.size() > 5) text += ", ...";
  return text.empty() ? "no steps" : text;
}

}  // namespace

v1::Rank RankOfPlace(const OpenedSource::Place& place) {
  v1::Rank rank;
  rank.set_kind(static_cast<v1::Rank::Kind>(place.second.first));
  rank.set_number(place.second.second);
  return rank;
}

absl::StatusOr<OpenedSource> OpenedSource::Open(const v1::Source& source, const AnalysisContext& context) {
  OpenedSource opened;
  opened.context_ = &context;
  if (source.kind_case() == v1::Source::kRun) {
    auto view = RunView::Open(context.shards(), source.run());
    if (!view.ok()) return view.status();
    opened.view_ = std::make_shared<const RunView>(*std::move(view));
    for (const ShownStep& step : opened.view_->steps()) {
      const v1::Rank rank = RankOfCode(step.key.rank);
      opened.places_.push_back({step.key.step, {rank.kind(), rank.number()}});
      opened.stored_.emplace(opened.places_.back(), Stored{step.key, step.row.next_block(), &step});
      if (step.row.state() == v1::StepSummary::OPEN) opened.open_.insert(opened.places_.back());
    }
  } else if (source.kind_case() == v1::Source::kPath) {
    if (!context.paths_allowed) {
      return absl::FailedPreconditionError(
          Cat("path ", source.path(),
              ": this server reads no directories; import it as a run, or let the client start a "
              "server of its own"));
    }
    auto files = FilesOf(source.path());
    if (!files.ok()) return files.status();
    opened.files_ = *std::move(files);
    for (const auto& [place, found] : opened.files_) opened.places_.push_back(place);
  } else {
    return absl::InvalidArgumentError("a source is neither a run nor a path");
  }
  std::sort(opened.places_.begin(), opened.places_.end());
  return opened;
}

absl::StatusOr<std::unique_ptr<TableSource>> OpenedSource::Read(const Place& place, const DumpReading& reading) const {
  if (const auto found = stored_.find(place); found != stored_.end()) {
    auto blocks = view_->Blocks(*found->second.step);
    if (!blocks.ok()) return blocks.status();
    return ReadStoredTable(*std::move(blocks), reading, *context_->layouts);
  }
  return ReadDumpTable(files_.at(place), reading);
}

absl::StatusOr<std::vector<OpenedSource::Place>> PlacesIn(const OpenedSource& source, const v1::Scope& scope) {
  std::vector<OpenedSource::Place> places;
  for (const auto& place : source.places()) {
    if (InScope(place, scope)) places.push_back(place);
  }
  if (places.empty()) {
    return absl::NotFoundError(Cat("there is no such step and rank; there is ", PlacesText(source.places())));
  }
  return places;
}

absl::StatusOr<std::vector<PlacePair>> PairPlaces(const OpenedSource& target, const OpenedSource& golden,
                                                  const v1::Scope& scope, std::vector<v1::UnpairedStep>& unpaired) {
  std::vector<OpenedSource::Place> ours;
  std::vector<OpenedSource::Place> theirs;
  for (const auto& place : target.places()) {
    if (InScope(place, scope)) ours.push_back(place);
  }
  for (const auto& place : golden.places()) {
    if (InScope(place, scope)) theirs.push_back(place);
  }
  std::vector<PlacePair> pairs;
  if (ours.size() == 1 && theirs.size() == 1) return std::vector<PlacePair>{{ours[0], theirs[0]}};
  // Steps with one process on each side, whose numbers are process ids.
  const auto processes = [](const std::vector<OpenedSource::Place>& places, uint32_t step) {
    std::vector<OpenedSource::Place> found;
    for (const auto& place : places) {
      if (place.first == step) found.push_back(place);
    }
    return found;
  };
  std::vector<bool> taken(theirs.size());
  for (const auto& place : ours) {
    auto partner = std::find(theirs.begin(), theirs.end(), place);
    if (partner == theirs.end()) {
      const auto one = processes(ours, place.first);
      const auto other = processes(theirs, place.first);
      const bool is_process =
          place.second.first == v1::Rank::PROCESS || (!other.empty() && other[0].second.first == v1::Rank::PROCESS);
      if (one.size() == 1 && other.size() == 1 && is_process) {
        partner = std::find(theirs.begin(), theirs.end(), other[0]);
      }
    }
    if (partner != theirs.end()) {
      pairs.push_back({place, *partner});
      taken[static_cast<size_t>(partner - theirs.begin())] = true;
      continue;
    }
    v1::UnpairedStep lonely;
    lonely.set_in_target(true);
    lonely.set_step(place.first);
    *lonely.mutable_rank() = RankOfPlace(place);
    unpaired.push_back(lonely);
  }
  for (size_t i = 0; i < theirs.size(); ++i) {
    if (taken[i]) continue;
    v1::UnpairedStep lonely;
    lonely.set_step(theirs[i].first);
    *lonely.mutable_rank() = RankOfPlace(theirs[i]);
    unpaired.push_back(lonely);
  }
  if (pairs.empty()) {
    return absl::InvalidArgumentError(Cat("there is no step and rank that both sides have: the target has ",
                                          PlacesText(target.places()), "; the golden side has ",
                                          PlacesText(golden.places())));
  }
  return pairs;
}

absl::StatusOr<StepPair> ReadPair(const OpenedSource& target, const OpenedSource& golden, const PlacePair& pair,
                                  const DumpReading& target_reading, const DumpReading& golden_reading, bool parallel) {
  absl::StatusOr<std::unique_ptr<TableSource>> theirs;
  std::thread reader;
  if (parallel) reader = std::thread([&] { theirs = golden.Read(pair.golden, golden_reading); });
  auto ours = target.Read(pair.target, target_reading);
  if (parallel) {
    reader.join();
  } else {
    theirs = golden.Read(pair.golden, golden_reading);
  }
  if (!ours.ok()) return ours.status();
  if (!theirs.ok()) return theirs.status();
  NameAlike((*ours)->mutable_table(), (*theirs)->mutable_table());
  return StepPair{*std::move(ours), *std::move(theirs)};
}

absl::StatusOr<std::vector<LayoutPair>> PairLayouts(const OpenedSource& target, const OpenedSource& golden,
                                                    const v1::Scope& scope, bool across_layouts,
                                                    std::vector<v1::UnpairedStep>& unpaired) {
  const auto by_step = [&](const OpenedSource& source) {
    std::map<uint32_t, std::vector<OpenedSource::Place>> steps;
    for (const auto& place : source.places()) {
      if (InScope(place, scope)) steps[place.first].push_back(place);
    }
    return steps;
  };
  std::vector<LayoutPair> layouts;
  if (!across_layouts) {
    auto pairs = PairPlaces(target, golden, scope, unpaired);
    if (!pairs.ok()) return pairs.status();
    for (const PlacePair& pair : *pairs) layouts.push_back({{pair.target}, {pair.golden}});
    return layouts;
  }
  const auto ours = by_step(target);
  const auto theirs = by_step(golden);
  const auto lonely = [&](const std::vector<OpenedSource::Place>& places, bool in_target) {
    for (const auto& place : places) {
      v1::UnpairedStep& added = unpaired.emplace_back();
      added.set_in_target(in_target);
      added.set_step(place.first);
      *added.mutable_rank() = RankOfPlace(place);
    }
  };
  for (const auto& [step, places] : ours) {
    const auto found = theirs.find(step);
    if (found == theirs.end()) {
      lonely(places, true);
    } else if (found->second.size() != places.size()) {
      layouts.push_back({places, found->second});
    } else {
      for (size_t i = 0; i < places.size(); ++i) layouts.push_back({{places[i]}, {found->second[i]}});
    }
  }
  for (const auto& [step, places] : theirs) {
    if (!ours.contains(step)) lonely(places, false);
  }
  if (layouts.empty()) {
    return absl::InvalidArgumentError(Cat("there is no step that both sides have: the target has ",
                                          PlacesText(target.places()), "; the golden side has ",
                                          PlacesText(golden.places())));
  }
  return layouts;
}

absl::StatusOr<StepPair> ReadLayouts(const OpenedSource& target, const OpenedSource& golden, const LayoutPair& pair,
                                     const DumpReading& reading, const ComparisonOptions& options, bool parallel) {
  if (pair.target.size() == 1 && pair.golden.size() == 1) {
    return ReadPair(target, golden, pair.shown(), reading, reading, parallel);
  }
  const auto read =
      [&](const OpenedSource& source,
          const std::vector<OpenedSource::Place>& places) -> absl::StatusOr<std::vector<std::unique_ptr<TableSource>>> {
    std::vector<std::unique_ptr<TableSource>> steps;
    for (const auto& place : places) {
      auto step = source.Read(place, reading);
      if (!step.ok()) return step.status();
      steps.push_back(*std::move(step));
    }
    return steps;
  };
  auto ours = read(target, pair.target);
  if (!ours.ok()) return ours.status();
  auto theirs = read(golden, pair.golden);
  if (!theirs.ok()) return theirs.status();
  for (auto& our_rank : *ours) {
    for (auto& their_rank : *theirs) NameAlike(our_rank->mutable_table(), their_rank->mutable_table());
  }
  JoinedSides joined = JoinLayouts(*std::move(ours), *std::move(theirs), options);
  return StepPair{std::move(joined.target), std::move(joined.golden)};
}

}  // namespace msprobe::server
