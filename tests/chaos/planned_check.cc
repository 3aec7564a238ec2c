#include "tests/chaos/planned_check.h"

#include <map>

#include "server/format/cat.h"
#include "server/ingest/scripted/scripted_agent.h"
#include "tests/chaos/planned_rank.h"

namespace msprobe::server {
namespace {

class StepCheck {
 public:
  StepCheck(const Store& store, const Planned& planned, uint32_t step, std::vector<std::string>& wrong)
      : store_(store), planned_(planned), step_(step), wrong_(wrong) {}

  // Whether the step is complete.
  bool Run(RecordSource& reader, bool whole) {
    absl::Status status = reader.ForEachRecord([&](const v1::Record& record, uint64_t) {
      Take(record, whole);
      return absl::OkStatus();
    });
    if (!status.ok()) Wrong(status.ToString());
    uint64_t lost = 0;
    for (const v1::Marker::Gap& gap : reader.gaps()) lost += gap.fragments();
    const bool complete = reader.state() == v1::StepSummary::COMPLETE;
    if (!planned_.gaps && lost > 0) Wrong(Cat("has a gap of ", lost, " records"));
    if (complete && planned_.records_a_step - taken_ != lost) {
      Wrong(Cat("is complete with ", taken_, " of ", planned_.records_a_step, " records and a gap of ", lost));
    }
    return complete;
  }

 private:
  void Wrong(const std::string& what) {
    if (wrong_.size() < 20)
      wrong_.push_back(Cat("rank ", planned_.rank, " of ", planned_.run, ", step ", step_, " ", what));
  }

  void Take(const v1::Record& record, bool whole) {
    const v1::TensorLeaf& tensor = record.fields().dict().entries(0).value().tensor();
    const auto value = static_cast<int>(tensor.max().real());
    // Where records may be missing, the next one that is there.
    uint32_t at = next_;
    while (planned_.gaps && at < planned_.records_a_step && PlannedRank::Value(planned_.rank, step_, at) != value) ++at;
    const std::string expected = Cat("Torch.op.", at, ".forward=", PlannedRank::Value(planned_.rank, step_, at));
    const std::string got = Cat(record.full_name(), "=", value);
    if (got != expected || at >= planned_.records_a_step) {
      return Wrong(Cat("has at place ", taken_, " ", got, ", not ", expected));
    }
    next_ = at + 1;
    ++taken_;
    const std::string content = PlannedRank::Content(planned_.rank, step_, at);
    if (content.empty() || (planned_.gaps && !tensor.has_payload())) return;
    if (tensor.payload().hash() != ScriptedAgent::HashOf(content)) return Wrong(Cat(got, " names another content"));
    std::string stored;
    absl::Status status = store_.payloads().Read(tensor.payload().hash(), [&](std::string_view chunk) {
      stored.append(chunk);
      return absl::OkStatus();
    });
    if (status.ok() ? stored != content : (whole || !absl::IsNotFound(status))) {
      Wrong(Cat(got, ": its content is ", status.ok() ? "of other bytes" : status.ToString()));
    }
  }

  const Store& store_;
  const Planned& planned_;
  const uint32_t step_;
  std::vector<std::string>& wrong_;
  uint32_t next_ = 0, taken_ = 0;
};

}  // namespace

std::vector<std::string> CheckPlanned(const Store& store, const Planned& planned, uint32_t* found) {
  std::vector<std::string> wrong;
  v1::Rank rank;
  rank.set_kind(v1::Rank::RANK);
  rank.set_number(planned.rank);
  std::map<uint32_t, v1::StepSummary::State> steps;
  if (auto run = store.catalogue().FindRun(planned.run); run.ok()) {
    auto rows = store.steps().Of(run->number());
    if (!rows.ok()) return {rows.status().ToString()};
    for (const Steps::Step& row : *rows) {
      if (row.first.rank == planned.rank) steps[row.first.step] = row.second.state();
    }
  }
  uint32_t complete = 0;
  for (const auto& [step, state] : steps) {
    if (step != complete) {
      wrong.push_back(
          Cat("rank ", planned.rank, " of ", planned.run, " has step ", step, " behind ", complete, " complete ones"));
      break;
    }
    auto reader = store.steps().Open(planned.run, step, rank);
    if (!reader.ok()) return {reader.status().ToString()};
    const bool whole = state == v1::StepSummary::COMPLETE;
    if (StepCheck(store, planned, step, wrong).Run(**reader, whole)) ++complete;
  }
  const uint32_t least = planned.steps.value_or(planned.acknowledged);
  if (complete < least || (planned.steps.has_value() && steps.size() != *planned.steps)) {
    wrong.push_back(Cat("rank ", planned.rank, " of ", planned.run, " has ", complete, " complete steps of ",
                        steps.size(), ", expected ", least));
  }
  if (found != nullptr) *found = complete;
  return wrong;
}

}  // namespace msprobe::server
