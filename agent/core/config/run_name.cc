#include <cstdlib>
#include <string>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "agent/core/config/config.h"
#include "agent/core/str_cat.h"

namespace msprobe::core {
namespace {

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

std::string ChooseRunName(std::string_view program) {
  std::string run = Environment("MSPROBE_RUN");
  if (!run.empty()) return run;
  const std::string_view name = program.substr(program.rfind('/') + 1);
  const std::string stem(name.empty() ? "run" : name.substr(0, name.rfind(".py")));
  // torchrun without rendezvous gives every launch the id "none"; its port then tells launches apart.
  const std::string launch = Environment("TORCHELASTIC_RUN_ID");
  if (!launch.empty() && launch != "none") return Cat(stem, "-", launch);
  const std::string address = Environment("MASTER_ADDR"), port = Environment("MASTER_PORT");
  if (!address.empty() && !port.empty()) return Cat(stem, "-", address, "-", port);
  return Cat(stem, "-", absl::FormatTime("%Y%m%d-%H%M%E3S", absl::Now(), absl::LocalTimeZone()));
}

}  // namespace msprobe::core
