#include "server/control/run_control.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "server/format/cat.h"
#include "server/metrics/log.h"

namespace msprobe::server {
namespace {

using Command = v1::ControlCommand;
using Answer = v1::ControlRunResponse::Process;

constexpr uint32_t kWait = 5'000;
constexpr uint32_t kLongestWait = 30'000;
constexpr size_t kLongestSettings = size_t{64} << 10;
constexpr size_t kLongestText = 4096;
constexpr absl::Duration kLook = absl::Milliseconds(200);  // how often to check whether the caller has gone away

bool IsRank(const v1::Rank& rank) { return rank.kind() == v1::Rank::RANK; }

std::string NamesOf(const google::protobuf::RepeatedPtrField<v1::Rank>& ranks) {
  return absl::StrJoin(ranks, ", ", [](std::string* out, const v1::Rank& rank) {
    out->append(Cat(IsRank(rank) ? "rank" : "proc", rank.number()));
  });
}

std::string Shown(const v1::ControlRunRequest& request) {
  const Command& command = request.command();
  std::string text;
  switch (command.action()) {
    case Command::START:
      text = "start";
      break;
    case Command::STOP:
      text = "stop";
      break;
    case Command::SET:
      text = Cat("set ", command.settings_json());
      break;
    case Command::NEXT:
      text = Cat("next ", command.steps());
      break;
    case Command::DEEPER:
      text = Cat("deeper ", command.steps(), " ", command.settings_json());
      break;
    case Command::REQUEST:
      text = Cat("request ", command.request());
      if (command.steps() > 0) text += Cat(" for ", command.steps(), " steps");
      break;
    default:
      text = "status";
  }
  if (request.ranks_size() > 0) text += Cat(" (", NamesOf(request.ranks()), ")");
  return text;
}

}  // namespace

absl::Status RunControl::Check(const v1::ControlRunRequest& request) const {
  const Command& command = request.command();
  if (!Command::Action_IsValid(command.action())) {
    return absl::InvalidArgumentError(Cat("command.action is ", static_cast<int>(command.action()),
                                          "; this server knows 0 to ", static_cast<int>(Command::DEEPER)));
  }
  if ((command.action() == Command::NEXT || command.action() == Command::DEEPER) && command.steps() == 0) {
    return absl::InvalidArgumentError("command.steps is 0; next and deeper need at least 1");
  }
  if (command.action() == Command::REQUEST && command.request().empty()) {
    return absl::InvalidArgumentError("command.request is empty; it should be the id of a request");
  }
  if (command.action() == Command::SET && command.settings_json().empty()) {
    return absl::InvalidArgumentError("command.settings_json is empty; it should be a JSON object");
  }
  if (command.settings_json().size() > kLongestSettings) {
    return absl::InvalidArgumentError(
        Cat("command.settings_json has ", command.settings_json().size(), " bytes, at most ", kLongestSettings));
  }
  if (command.request().size() > kLongestText || command.asked_by().size() > kLongestText) {
    return absl::InvalidArgumentError(Cat("command.request and asked_by have at most ", kLongestText, " bytes"));
  }
  if (request.wait_ms() > kLongestWait) {
    return absl::InvalidArgumentError(Cat("wait_ms is ", request.wait_ms(), ", at most ", kLongestWait));
  }
  return absl::OkStatus();
}

absl::Status RunControl::Ask(const v1::ControlRunRequest& request, const std::string& asked_by,
                             const std::function<bool()>& cancelled, v1::ControlRunResponse* response) {
  if (absl::Status status = Check(request); !status.ok()) return status;
  auto run = catalogue_->FindRun(request.run());
  if (!run.ok()) return run.status();

  std::map<std::string, Answer> asked;
  std::vector<std::shared_ptr<LiveSession>> able;
  for (const std::shared_ptr<LiveSession>& session : sessions_->ConnectedTo(run->number())) {
    const v1::Hello hello = session->row().hello();
    const bool wanted = request.ranks().empty() ||
                        std::any_of(request.ranks().begin(), request.ranks().end(), [&](const v1::Rank& rank) {
                          return rank.kind() == hello.rank().kind() && rank.number() == hello.rank().number();
                        });
    if (!wanted) continue;
    Answer& process = asked[hello.session()];
    *process.mutable_rank() = hello.rank();
    process.set_host(hello.host());
    process.set_process_id(hello.process_id());
    const auto& capabilities = hello.capabilities();
    if (std::find(capabilities.begin(), capabilities.end(), "control") == capabilities.end()) {
      process.set_answer(Answer::UNABLE);
    } else {
      able.push_back(session);
    }
  }
  if (asked.empty()) {
    const std::string ranks = NamesOf(request.ranks());
    return absl::NotFoundError(Cat("no process of the run \"", request.run(), "\"",
                                   ranks.empty() ? std::string() : Cat(" that is ", ranks),
                                   " is connected; only processes that run now can be asked"));
  }
  const bool is_status = request.command().action() == Command::STATUS;
  if (!is_status) {
    if (absl::Status status = Note(request, asked_by); !status.ok()) return status;
  }

  Command command = request.command();
  command.set_asked_by(asked_by);
  const absl::Time deadline = absl::Now() + absl::Milliseconds(request.wait_ms() == 0 ? kWait : request.wait_ms());
  {
    absl::MutexLock lock(&mu_);
    // Higher than the ids that an earlier server has used.
    last_id_ = std::max(last_id_ + 1, static_cast<uint64_t>(absl::ToUnixMicros(absl::Now())));
    command.set_id(last_id_);
    ++asking_;
  }
  for (const std::shared_ptr<LiveSession>& session : able) session->Control(command);
  absl::MutexLock lock(&mu_);
  while (!Answered(asked, command.id(), is_status) && absl::Now() < deadline && !cancelled()) {
    reported_.WaitWithDeadline(&mu_, std::min(deadline, absl::Now() + kLook));
  }
  for (auto& [session, process] : asked) {
    if (process.answer() == Answer::UNABLE) continue;
    const auto report = reports_.find(session);
    if (report == reports_.end() || report->second.received() < command.id()) continue;
    const bool obeyed = is_status || report->second.answered() >= command.id();
    process.set_answer(obeyed ? Answer::OBEYED : Answer::WAITS);
    *process.mutable_report() = report->second;
  }
  if (--asking_ == 0) reports_.clear();
  std::vector<Answer> ordered;
  for (auto& [session, process] : asked) ordered.push_back(std::move(process));
  std::stable_sort(ordered.begin(), ordered.end(), [](const Answer& one, const Answer& other) {
    return std::make_pair(!IsRank(one.rank()), one.rank().number()) <
           std::make_pair(!IsRank(other.rank()), other.rank().number());
  });
  for (Answer& process : ordered) *response->add_processes() = std::move(process);
  if (auto now = catalogue_->FindRun(request.run()); now.ok()) *response->mutable_notes() = now->control_notes();
  return absl::OkStatus();
}

bool RunControl::Answered(const std::map<std::string, Process>& asked, uint64_t id, bool is_status) {
  return std::all_of(asked.begin(), asked.end(), [&](const auto& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (entry.second.answer() == Answer::UNABLE) return true;
    const auto report = reports_.find(entry.first);
    if (report == reports_.end()) return false;
    return (is_status ? report->second.received() : report->second.answered()) >= id;
  });
}

absl::Status RunControl::Note(const v1::ControlRunRequest& request, const std::string& asked_by) {
  v1::ControlNote note;
  note.set_at_unix_us(absl::ToUnixMicros(absl::Now()));
  note.set_asked_by(asked_by);
  note.set_asked(Shown(request));
  LogInfo("control: {} asks of run {}: {}", asked_by, request.run(), note.asked());
  return catalogue_->NoteControl(request.run(), note);
}

void RunControl::Report(const std::string& session, const v1::ControlReport& report) {
  absl::MutexLock lock(&mu_);
  if (asking_ == 0) return;
  reports_[session] = report;
  reported_.SignalAll();
}

}  // namespace msprobe::server
