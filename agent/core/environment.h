#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace msprobe::core {

// What a run's page shows of the environment that its processes began in.

// Whether people may see a variable: its name is on the allow list and holds no word such as KEY or TOKEN.
bool MayBeShown(std::string_view name);

// Whether a value has a secret in it: a user or a password in a URL, "?sig=X", "--token X", "--password=X",
// "HF_TOKEN=X", "Authorization: Bearer X". The same rule as in client_py/msprobe_client/shown_values.py.
bool HoldsSecret(std::string_view value);

// Those of `environment` ("NAME=value", null at its end) that people may see, sorted by name, as UTF-8. A value that
// holds a secret is left out. At most 128, and of each value the first 341 bytes.
std::vector<std::pair<std::string, std::string>> ShownEnvironment(const char* const* environment);

// Processors and accelerators of this machine, each kind once: "8 x NVIDIA H100 80GB HBM3". Files of the kernel tell;
// no driver is asked. `root` stands before /proc and /dev. Empty: nothing is known.
std::vector<std::string> MachineDevices(const std::string& root = "");

}  // namespace msprobe::core
