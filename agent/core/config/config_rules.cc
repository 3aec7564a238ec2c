#include "agent/core/config/config_rules.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "agent/core/config/fields.h"
#include "agent/core/config/selector.h"
#include "agent/core/config/server_address.h"
#include "agent/core/str_cat.h"

namespace msprobe::core {
namespace {

absl::Status Contradiction(std::string_view one, std::string_view other, std::string_view rule) {
  return absl::InvalidArgumentError(Cat(one, " contradicts ", other, ": ", rule));
}

// Checksums are compared with those under bench_path: summary_mode is md5 then.
absl::Status SettleBench(const GivenFields& given, Config* config) {
  if (config->bench_path.empty()) {
    if (config->task != Task::kDiffCheck) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "bench_path is required by task diff_check, it should be the dump_path of an earlier dump with "
        "summary_mode md5.");
  }
  if (given.contains("summary_mode") && config->summary_mode != SummaryMode::kMd5) {
    return Contradiction(Cat("summary_mode \"", ToString(config->summary_mode), "\""), "bench_path",
                         "what is compared are checksums, summary_mode should be md5 or absent.");
  }
  config->summary_mode = SummaryMode::kMd5;
  return absl::OkStatus();
}

absl::Status CheckAsync(const GivenFields&, Config* config) {
  if (!config->async_dump) return absl::OkStatus();
  if (config->summary_mode == SummaryMode::kMd5) {
    return absl::InvalidArgumentError("The parameters async_dump is true, the parameters summary_mode cannot be md5.");
  }
  if (config->task == Task::kTensor && config->list.empty() && config->level != Level::kDebug) {
    return absl::InvalidArgumentError(
        "The parameters async_dump is true in tensor task, the parameters list cannot be empty.");
  }
  return absl::OkStatus();
}

absl::Status CheckDebug(const GivenFields&, Config* config) {
  if (config->level != Level::kDebug) return absl::OkStatus();
  if (config->task != Task::kStatistics && config->task != Task::kTensor) {
    return Contradiction(Cat("task \"", ToString(config->task), "\""), "level \"debug\"",
                         "at level debug task should be statistics or tensor.");
  }
  if (config->load) {
    return Contradiction("load", "level \"debug\"",
                         "its modules do not run through the debugger; level should be L0, L1 or mix.");
  }
  if (!config->bench_path.empty()) {
    return Contradiction("bench_path", "level \"debug\"",
                         "values saved by name have no counterpart; level should be L0, L1 or mix.");
  }
  return absl::OkStatus();
}

absl::Status CheckDataMode(const GivenFields&, Config* config) {
  if (config->task == Task::kNanCheck && config->input && !config->output) {
    return Contradiction("data_mode [\"input\"]", "task \"nan_check\"",
                         "it looks at outputs; data_mode should name output or be [\"all\"].");
  }
  if (!config->bench_path.empty() && !(config->input && config->output)) {
    return Contradiction(Cat("data_mode [\"", config->input ? "input" : "output", "\"]"), "bench_path",
                         "outputs are compared where inputs are equal; data_mode should name both, or be [\"all\"].");
  }
  return absl::OkStatus();
}

// A program that is checked waits for nobody: what cannot be sent in time is left out, unless the file says otherwise.
absl::Status SettleCheck(const GivenFields& given, Config* config) {
  if (config->task != Task::kCheck) return absl::OkStatus();
  if (config->level == Level::kL0) {
    return Contradiction("level \"L0\"", "task \"check\"", "API calls are run again; level should be L1 or mix.");
  }
  if (!config->forward || !config->input || !config->output) {
    return Contradiction("data_mode", "task \"check\"",
                         "a call is run again from its inputs and held against its outputs; data_mode should be "
                         "[\"all\"] or [\"forward\"].");
  }
  if (!given.contains("loss_policy") && !given.contains("spool_quota_mb") && !given.contains("stall_bound_s")) {
    config->session.loss_policy = LossPolicy::kDrop;
  }
  return absl::OkStatus();
}

// No call is captured, so nothing of a call can be replaced.
absl::Status SettleGradProbe(const GivenFields&, Config* config) {
  if (config->task != Task::kGradProbe) return absl::OkStatus();
  if (config->load) {
    return Contradiction("load", "task \"grad_probe\"", "no call of a module is captured; leave one of them out.");
  }
  return absl::OkStatus();
}

// A field of a task and its value, as a message shows them.
std::string Given(std::string_view name, const Config& config) {
  const std::span<const Field> fields = Fields();
  const auto field = std::find_if(fields.begin(), fields.end(), [&](const Field& each) { return each.name == name; });
  return Cat(name, " \"", std::get<std::string>(field->access.give(config, *field)), "\"");
}

// The rules of mindstudio-probe, and that calls of APIs are what is perturbed.
absl::Status CheckFreeBenchmark(const GivenFields&, Config* config) {
  if (config->task != Task::kFreeBenchmark) return absl::OkStatus();
  using Asked = FreeBenchmarkConfig;
  const Asked& asked = config->free_benchmark;
  const std::string mode = Given("pert_mode", *config), device = Given("fuzz_device", *config);
  const std::string handler = Given("handler_type", *config), stage = Given("fuzz_stage", *config);
  if (config->level != Level::kL1) {
    return Contradiction(Cat("level \"", ToString(config->level), "\""), "task \"free_benchmark\"",
                         "calls of APIs are perturbed; level should be L1.");
  }
  const bool to_cpu = asked.mode == Asked::Mode::kToCpu;
  if (to_cpu != (asked.device == Asked::Device::kCpu)) {
    return Contradiction(mode, device, "with to_cpu fuzz_device should be cpu, with another pert_mode npu.");
  }
  if (asked.stage == Asked::Stage::kBackward && config->list.empty()) {
    return Contradiction(stage, "an empty list",
                         "inputs are held until the backward pass comes; list should name some APIs.");
  }
  if (asked.handler != Asked::Handler::kFix) return absl::OkStatus();
  if (asked.preheat) return Contradiction("if_preheat true", handler, "no limit is looked for; leave one of them out.");
  if (asked.stage != Asked::Stage::kForward) {
    return Contradiction(stage, handler, "outputs are replaced; fuzz_stage should be forward.");
  }
  if (!to_cpu && asked.mode != Asked::Mode::kImprovePrecision) {
    return Contradiction(mode, handler, "pert_mode should be one that computes better: improve_precision or to_cpu.");
  }
  return absl::OkStatus();
}

// What is read has just been written by the optimizer, so nothing is worth remembering. Of the modules nothing but
// sampled steps is captured.
absl::Status SettleMonitor(const GivenFields& given, Config* config) {
  if (config->task != Task::kMonitor) return absl::OkStatus();
  if (config->level == Level::kDebug) return absl::OkStatus();  // CheckDebug has refused it
  if (!given.contains("reuse")) config->reuse = Reuse::kOff;
  return absl::OkStatus();
}

absl::Status CheckSchedule(const GivenFields&, Config* config) {
  if (!config->schedule.has_value() || config->step.empty()) return absl::OkStatus();
  return Contradiction("schedule", "step", "each says which steps are captured; leave one of them out.");
}

// A predicate over what the level does not see would hold of nothing.
absl::Status CheckSelect(const GivenFields&, Config* config) {
  if (config->select.empty()) return absl::OkStatus();
  const absl::StatusOr<Selector> selector = Selector::Parse(config->select);
  if (!selector.ok()) return selector.status();
  const std::string given = Cat("select \"", config->select, "\"");
  const std::string level = Cat("level \"", ToString(config->level), "\"");
  if (config->level == Level::kDebug) {
    return Contradiction(given, level, "no call is captured; level should be L0, L1 or mix.");
  }
  if (config->level == Level::kL0 && selector->reads_apis()) {
    return Contradiction(given, level, "no API is seen; level should be L1 or mix.");
  }
  if (config->level == Level::kL1 && selector->reads_modules()) {
    return Contradiction(given, level, "no module is seen; level should be L0 or mix.");
  }
  return absl::OkStatus();
}

absl::Status CheckLoad(const GivenFields&, Config* config) {
  if (!config->load) return absl::OkStatus();
  const auto apart = [](const std::vector<uint32_t>& one, const std::vector<uint32_t>& other) {
    std::vector<uint32_t> common;
    std::set_intersection(one.begin(), one.end(), other.begin(), other.end(), std::back_inserter(common));
    return !one.empty() && !other.empty() && common.empty();
  };
  if (apart(config->load->step, config->step)) {
    return Contradiction("load.step", "step", "no step is in both; leave one of them out.");
  }
  if (apart(config->load->rank, config->rank)) {
    return Contradiction("load.rank", "rank", "no rank is in both; leave one of them out.");
  }
  return absl::OkStatus();
}

absl::Status CheckServer(const GivenFields&, Config* config) {
  if (config->session.server.empty()) return absl::OkStatus();
  const absl::StatusOr<std::vector<std::string>> targets = ParseServerAddresses(config->session.server);
  if (!targets.ok()) return targets.status();
  for (const std::string& target : *targets) {
    if (absl::Status status = config->session.access.CheckTarget(target); !status.ok()) return status;
  }
  if (config->session.dump_quota_bytes > 0) {
    config->warnings.push_back(
        "dump_quota_mb has no effect with a named server, whose own limits hold (--run_quota_mib, --retain_mib)");
  }
  return absl::OkStatus();
}

absl::Status CheckLossPolicy(const GivenFields& given, Config* config) {
  const LossPolicy policy = config->session.loss_policy;
  if (policy != LossPolicy::kSpool && given.contains("spool_quota_mb")) {
    return Contradiction("spool_quota_mb", Cat("loss_policy \"", ToString(policy), "\""),
                         "only the policy spool writes to disk; leave one of them out.");
  }
  if (policy == LossPolicy::kDrop && given.contains("stall_bound_s")) {
    return Contradiction("stall_bound_s", "loss_policy \"drop\"", "that policy never waits; leave one of them out.");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckRules(const GivenFields& given, Config* config) {
  for (const auto rule :
       {&SettleBench, &CheckAsync, &CheckDebug, &CheckDataMode, &SettleCheck, &SettleMonitor, &SettleGradProbe,
        &CheckFreeBenchmark, &CheckSchedule, &CheckSelect, &CheckLoad, &CheckServer, &CheckLossPolicy}) {
    if (absl::Status status = rule(given, config); !status.ok()) return status;
  }
  return absl::OkStatus();
}

void SettleLevel(const GivenFields& given, Config* config) {
  if (config->task == Task::kMonitor && !given.contains("level")) config->level = Level::kL0;
  if (config->task != Task::kStructure || config->level == Level::kL0 || config->level == Level::kMix) return;
  config->warnings.push_back(
      Cat("task structure needs level L0 or mix; level ", ToString(config->level), " is taken as mix"));
  config->level = Level::kMix;
}

}  // namespace msprobe::core
