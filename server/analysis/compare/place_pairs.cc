#include "server/analysis/compare/place_pairs.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <thread>

#include "absl/container/flat_hash_map.h"
#include "msprobe/v1/record.pb.h"
#include "server/analysis/compare/row_match.h"
#include "server/analysis/table/joined_table.h"
#include "server/format/cat.h"

namespace msprobe::server {
namespace {

using Place = StepTables::Place;

std::string PlaceText(const Place& place) {
  return Cat("step ", place.first, place.second.first == v1::Rank::RANK ? " rank" : " proc", place.second.second);
}

std::string PlacesText(const std::vector<Place>& places) {
  std::string text;
  for (size_t i = 0; i < places.size() && i < 5; ++i) text += Cat(i == 0 ? "" : ", ", PlaceText(places[i]));
  if (places.size() > 5) text += ", ...";
  return text.empty() ? "no steps" : text;
}

std::vector<Place> TakenPlaces(const StepTables& source, const PlaceScope& scope) {
  std::vector<Place> places;
  for (const Place& place : source.places()) {
    if (scope.Takes(place)) places.push_back(place);
  }
  return places;
}

}  // namespace

bool PlaceScope::Takes(const Place& place) const {
  const bool step = steps.empty() || std::any_of(steps.begin(), steps.end(), [&](const auto& range) {
                      return range.first <= place.first && place.first <= range.second;
                    });
  return step && (ranks.empty() || std::find(ranks.begin(), ranks.end(), place.second) != ranks.end());
}

absl::StatusOr<std::vector<Place>> PlacesIn(const StepTables& source, const PlaceScope& scope) {
  std::vector<Place> places = TakenPlaces(source, scope);
  if (source.places().empty()) return absl::NotFoundError(Cat("no step of ", source.name(), " has records"));
  if (places.empty()) {
    return absl::NotFoundError(Cat("there is no such step and rank; there is ", PlacesText(source.places())));
  }
  return places;
}

absl::StatusOr<std::vector<PlacePair>> PairPlaces(const StepTables& target, const StepTables& golden,
                                                  const PlaceScope& scope, std::vector<UnpairedPlace>& unpaired) {
  const std::vector<Place> ours = TakenPlaces(target, scope);
  const std::vector<Place> theirs = TakenPlaces(golden, scope);
  if (ours.size() == 1 && theirs.size() == 1) return std::vector<PlacePair>{{ours[0], theirs[0]}};
  struct PlacesOfStep {
    size_t ours = 0;
    size_t theirs = 0;
    size_t first_golden = 0;  // index of the golden side's first one
  };
  absl::flat_hash_map<uint32_t, PlacesOfStep> steps;
  absl::flat_hash_map<Place, size_t> golden_index;
  for (const Place& place : ours) ++steps[place.first].ours;
  for (size_t i = 0; i < theirs.size(); ++i) {
    PlacesOfStep& step = steps[theirs[i].first];
    if (step.theirs++ == 0) step.first_golden = i;
    golden_index.emplace(theirs[i], i);
  }
  const auto partner_of = [&](const Place& place) -> std::optional<size_t> {
    if (const auto found = golden_index.find(place); found != golden_index.end()) return found->second;
    // A step with one process on each side, whose numbers are process ids.
    const PlacesOfStep& step = steps.at(place.first);
    if (step.ours != 1 || step.theirs != 1) return std::nullopt;
    const bool is_process =
        place.second.first == v1::Rank::PROCESS || theirs[step.first_golden].second.first == v1::Rank::PROCESS;
    return is_process ? std::optional<size_t>(step.first_golden) : std::nullopt;
  };
  std::vector<PlacePair> pairs;
  std::vector<bool> taken(theirs.size());
  for (const Place& place : ours) {
    if (const std::optional<size_t> partner = partner_of(place)) {
      pairs.push_back({place, theirs[*partner]});
      taken[*partner] = true;
    } else {
      unpaired.push_back({true, place});
    }
  }
  for (size_t i = 0; i < theirs.size(); ++i) {
    if (!taken[i]) unpaired.push_back({false, theirs[i]});
  }
  if (pairs.empty()) {
    const std::string_view asked = scope.steps.empty() && scope.ranks.empty() ? "" : " of those that are asked for";
    return absl::InvalidArgumentError(Cat("there is no step and rank", asked, " that both sides have: the target has ",
                                          PlacesText(target.places()), "; the golden side has ",
                                          PlacesText(golden.places())));
  }
  return pairs;
}

absl::StatusOr<StepPair> ReadPair(const StepTables& target, const StepTables& golden, const PlacePair& pair,
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

absl::StatusOr<std::vector<LayoutPair>> PairLayouts(const StepTables& target, const StepTables& golden,
                                                    const PlaceScope& scope, bool across_layouts,
                                                    std::vector<UnpairedPlace>& unpaired) {
  const auto by_step = [&](const StepTables& source) {
    std::map<uint32_t, std::vector<Place>> steps;
    for (const auto& place : source.places()) {
      if (scope.Takes(place)) steps[place.first].push_back(place);
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
  const auto lonely = [&](const std::vector<Place>& places, bool in_target) {
    for (const auto& place : places) unpaired.push_back({in_target, place});
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

absl::StatusOr<StepPair> ReadLayouts(const StepTables& target, const StepTables& golden, const LayoutPair& pair,
                                     const DumpReading& reading, const CompareOptions& options, bool parallel) {
  if (pair.target.size() == 1 && pair.golden.size() == 1) {
    return ReadPair(target, golden, pair.shown(), reading, reading, parallel);
  }
  const auto read = [&](const StepTables& source,
                        const std::vector<Place>& places) -> absl::StatusOr<std::vector<std::unique_ptr<TableSource>>> {
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
