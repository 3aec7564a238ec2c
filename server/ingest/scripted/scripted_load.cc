#include "server/ingest/scripted/scripted_load.h"

#include <algorithm>
#include <random>

#include "server/format/cat.h"

namespace msprobe::server {
namespace {

std::string ContentNumber(uint32_t number, size_t unit_bytes) {
  std::mt19937 random(number);
  std::string content((number % 7 + 1) * unit_bytes, '\0');
  for (char& c : content) c = static_cast<char>(random());
  return content;
}

const v1::TensorLeaf* FirstTensor(const v1::Value& value) {
  if (value.has_tensor()) return &value.tensor();
  for (const v1::Value& item : value.list().items()) {
    if (const v1::TensorLeaf* found = FirstTensor(item); found != nullptr) return found;
  }
  for (const v1::Value::Entry& entry : value.dict().entries()) {
    if (const v1::TensorLeaf* found = FirstTensor(entry.value()); found != nullptr) return found;
  }
  return nullptr;
}

std::string Named(const std::string& name, uint32_t count, int value) {
  return Cat("Torch.", name, ".", count, ".forward=", value);
}

}  // namespace

std::vector<std::string> RecordsOf(RecordSource& step) {
  std::vector<std::string> found;
  absl::Status status = step.ForEachRecord([&](const v1::Record& record, uint64_t) {
    const v1::TensorLeaf* tensor = FirstTensor(record.fields());
    found.push_back(Cat(record.full_name(), "=", tensor == nullptr ? -1 : static_cast<int>(tensor->max().real())));
    return absl::OkStatus();
  });
  if (!status.ok()) found.push_back(status.ToString());
  return found;
}

ScriptedLoad::ScriptedLoad(const std::string& run, uint32_t rank, uint64_t seed, uint32_t batches_a_step,
                           Contents contents)
    : run_(run),
      rank_(rank),
      seed_(seed),
      batches_a_step_(batches_a_step),
      contents_of_(contents),
      agent_(Cat("r", rank, ".", seed), run, rank),
      hello_(agent_.hello()) {}

void ScriptedLoad::Generate() {
  const auto sequence = static_cast<uint32_t>(batches_.size());
  const uint32_t step = sequence / batches_a_step_;
  std::mt19937_64 random(seed_ * 1'000'003 + sequence);
  std::vector<std::string>& records = records_.emplace_back();
  const uint32_t place = sequence % batches_a_step_;
  for (uint32_t call = 0; call < 1 + random() % 4; ++call) {
    const int value = static_cast<int>(random() % 100'000);
    const std::string name = Cat("op", call);
    agent_.Call(step, name, static_cast<float>(value), place);
    records.push_back(Named(name, place, value));
  }
  if (random() % 4 == 0) {
    const std::string content =
        ContentNumber(static_cast<uint32_t>(random() % contents_of_.different), contents_of_.unit_bytes);
    const std::string name = Cat("saved", place);
    contents_[agent_.CallWithPayload(step, name, content)] = content;
    records.push_back(Named(name, 0, 1));
  }
  if (place == batches_a_step_ - 1) agent_.StepEnd(step);
  batches_.push_back(agent_.Take());
}

const v1::Batch& ScriptedLoad::Batch(uint64_t sequence) {
  while (batches_.size() < sequence) Generate();
  return batches_[sequence - 1];
}

std::string ScriptedLoad::Content(const std::string& hash) const {
  auto found = contents_.find(hash);
  return found == contents_.end() ? std::string() : found->second;
}

std::set<std::string> ScriptedLoad::hashes() const {
  std::set<std::string> hashes;
  for (const auto& [hash, content] : contents_) hashes.insert(hash);
  return hashes;
}

uint64_t ScriptedLoad::watermark(const Store& store) const {
  auto row = store.database().Find<storage::SessionRow>(SessionKey(session()));
  return row.ok() && row->has_value() ? (*row)->watermark() : 0;
}

std::vector<std::string> ScriptedLoad::Check(const Store& store, uint64_t durable_through,
                                             const std::set<std::string>& stored) {
  std::vector<std::string> wrong;
  const std::string who = Cat("rank ", rank_, ": ");
  const uint64_t through = watermark(store);
  if (through < durable_through) {
    wrong.push_back(Cat(who, "batch ", durable_through, " was acknowledged as durable, the store has ", through));
  }
  if (through > batches_.size()) {
    wrong.push_back(Cat(who, "the store has ", through, " batches, sent were ", batches_.size()));
    return wrong;
  }
  std::map<uint32_t, std::vector<std::string>> expected;
  for (uint64_t n = 0; n < through; ++n) {
    auto& step = expected[static_cast<uint32_t>(n) / batches_a_step_];
    step.insert(step.end(), records_[n].begin(), records_[n].end());
  }
  std::map<uint32_t, v1::StepSummary::State> found;
  if (auto run = store.catalogue().FindRun(run_); run.ok()) {
    auto steps = store.steps().Of(run->number());
    if (!steps.ok()) wrong.push_back(Cat(who, steps.status().ToString()));
    for (const Steps::Step& step : steps.ok() ? *steps : std::vector<Steps::Step>()) {
      if (step.first.rank == rank_) found[step.first.step] = step.second.state();
    }
  }
  for (const auto& [step, state] : found) {
    if (!expected.contains(step)) wrong.push_back(Cat(who, "step ", step, " is there and ought not to be"));
  }
  for (const auto& [step, records] : expected) {
    auto reader = store.steps().Open(run_, step, hello_.rank());
    if (!reader.ok()) {
      wrong.push_back(Cat(who, reader.status().ToString()));
      continue;
    }
    const std::vector<std::string> got = RecordsOf(**reader);
    if (got != records) {
      const auto at = std::mismatch(got.begin(), got.end(), records.begin(), records.end());
      wrong.push_back(Cat(who, "step ", step, " has ", got.size(), " records, expected ", records.size(), "; at ",
                          at.first - got.begin(), " is ", at.first == got.end() ? "nothing" : *at.first, ", not ",
                          at.second == records.end() ? "nothing" : *at.second));
    }
    const bool ended = uint64_t{step + 1} * batches_a_step_ <= through;
    if (found[step] == v1::StepSummary::COMPLETE && !ended) {
      wrong.push_back(Cat(who, "step ", step, " is complete before its end"));
    }
  }
  for (const auto& [hash, content] : contents_) {
    std::string got;
    absl::Status status = store.payloads().Read(hash, [&](std::string_view chunk) {
      got.append(chunk);
      return absl::OkStatus();
    });
    if (status.ok() ? got != content : (!absl::IsNotFound(status) || stored.contains(hash))) {
      wrong.push_back(Cat(who, "payload ", Hex(hash), ": ", status.ok() ? "other bytes" : status.ToString()));
    }
  }
  return wrong;
}

}  // namespace msprobe::server
