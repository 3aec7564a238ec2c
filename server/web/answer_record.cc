#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/analysis/compare/name_mapping.h"
#include "server/analysis/compare/place_pairs.h"
#include "server/format/cat.h"
#include "server/format/storage/key.h"
#include "server/query/opened_source.h"
#include "server/web/golden_side.h"
#include "server/web/web_question.h"

namespace msprobe::server {
namespace {

constexpr size_t kMaxRecords = 16;  // with one name; each token has one
constexpr size_t kMaxBytes = 4 << 20;

// Keeps the first `left` leaves of a value, and what is around them.
void KeepTensors(v1::Value& value, size_t& left) {
  if (value.has_list()) {
    auto& items = *value.mutable_list()->mutable_items();
    int kept = 0;
    for (; kept < items.size() && left > 0; ++kept) KeepTensors(items[kept], left);
    items.DeleteSubrange(kept, items.size() - kept);
  } else if (value.has_dict()) {
    auto& entries = *value.mutable_dict()->mutable_entries();
    int kept = 0;
    for (; kept < entries.size() && left > 0; ++kept) KeepTensors(*entries[kept].mutable_value(), left);
    entries.DeleteSubrange(kept, entries.size() - kept);
  } else {
    --left;
  }
}

void Shorten(v1::Record& record, size_t limit) {
  size_t left = limit;
  KeepTensors(*record.mutable_fields(), left);
  const int frames = std::min(record.stack_size(), static_cast<int>(limit));
  record.mutable_stack()->DeleteSubrange(frames, record.stack_size() - frames);
}

// A step of a run and of its golden run.
struct Beside {
  OpenedSource target;
  OpenedSource golden;
  PlacePair pair;  // of the rank that comparisons pair with the one asked for
};
absl::StatusOr<Beside> OpenBeside(const WebContext& context, const std::string& golden,
                                  const v1::ReadRecordsRequest& request) {
  v1::Source ours, theirs;
  ours.set_run(request.run());
  theirs.set_run(golden);
  auto target = OpenedSource::Open(ours, context.analysis);
  if (!target.ok()) return target.status();
  auto beside = OpenedSource::Open(theirs, context.analysis);
  if (!beside.ok()) return beside.status();
  PlaceScope scope;
  scope.steps = {{request.step(), request.step()}};
  std::vector<UnpairedPlace> unpaired;
  auto pairs = PairPlaces(*target, *beside, scope, unpaired);
  if (!pairs.ok()) return pairs.status();
  const StepTables::Place place{request.step(), {request.rank().kind(), request.rank().number()}};
  const auto pair =
      std::find_if(pairs->begin(), pairs->end(), [&](const PlacePair& one) { return one.target == place; });
  if (pair == pairs->end()) {
    return absl::NotFoundError(Cat(golden, " has no ", RankName(request.rank()), " at step ", request.step()));
  }
  return Beside{*std::move(target), *std::move(beside), *pair};
}

// What the golden run calls a record, where it is of another framework. Empty: it has none.
absl::StatusOr<std::string> PartnerOf(const Beside& beside, const std::string& name) {
  constexpr DumpReading kNames{.stacks = false, .construct = false};
  auto steps = ReadPair(beside.target, beside.golden, beside.pair, kNames, kNames);
  if (!steps.ok()) return steps.status();
  const StepTable& target = steps->target->table();
  const StepTable& golden = steps->golden->table();
  if (!AcrossFrameworks(target, golden)) return std::string();
  const std::vector<int32_t> partners = EntriesByMapping(target, golden, MappingFor({}, target, golden));
  for (size_t i = 0; i < partners.size(); ++i) {
    if (target.entries[i].name != name || partners[i] < 0) continue;
    return std::string(golden.entries[static_cast<size_t>(partners[i])].name);
  }
  return std::string();
}

}  // namespace

// The records with one name in one step, with their stacks, in protobuf's JSON for record.proto: [{...}, ...].
// `limit`: of each at most so many values, and so many innermost frames. `side` (target or golden) where `golden` names
// a run to compare with.
absl::Status AnswerRecord(const WebContext& context, const WebQuery& query, JsonWriter& json) {
  auto run = query.Required("run");
  auto rank = query.Rank();
  auto name = query.Required("name");
  auto required = query.Required("step");
  auto step = query.Number("step", 0);
  auto limit = query.Number("limit", 0);
  auto golden_side = IsGoldenSide(query);
  for (const absl::Status& status : {run.status(), rank.status(), name.status(), required.status(), step.status(),
                                     limit.status(), golden_side.status()}) {
    if (!status.ok()) return status;
  }
  v1::ReadRecordsRequest request;
  request.set_run(*run);
  request.set_step(*step);
  *request.mutable_rank() = *rank;
  request.set_name_glob(LiteralPattern(*name));
  request.set_with_stack(true);
  std::optional<Beside> beside;
  if (*golden_side) {
    auto opened = OpenBeside(context, query.Text("golden"), request);
    if (!opened.ok()) return opened.status();
    beside.emplace(*std::move(opened));
    request.set_run(query.Text("golden"));
    *request.mutable_rank() = RankOfPlace(beside->pair.golden);
  }
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  json.StartArray();
  size_t records = 0, bytes = 0;
  const auto write = [&](const v1::Record& found) {
    v1::Record record = found;
    if (*limit > 0) Shorten(record, *limit);
    std::string text;
    if (records == kMaxRecords || bytes > kMaxBytes || !MessageToJsonString(record, &text, options).ok()) return true;
    json.RawValue(text.data(), text.size(), rapidjson::kObjectType);
    bytes += text.size();
    ++records;
    return true;
  };
  absl::Status status = ReadRecords(context.query, request, write);
  if (status.ok() && beside && records == 0) {
    auto partner = PartnerOf(*beside, *name);
    if (!partner.ok()) return partner.status();
    if (!partner->empty()) {
      request.set_name_glob(LiteralPattern(*partner));
      status = ReadRecords(context.query, request, write);
    }
  }
  json.EndArray();
  return status;
}

}  // namespace msprobe::server
