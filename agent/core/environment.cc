#include "agent/core/environment.h"

#include <re2/re2.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <system_error>

#include "absl/strings/ascii.h"
#include "agent/core/str_cat.h"
#include "agent/core/utf8.h"

namespace msprobe::core {
namespace {

constexpr size_t kMost = 128;
constexpr size_t kLongest = 1024;

constexpr std::string_view kNames[] = {"ASCEND_DEVICE_ID",
                                       "ASCEND_GLOBAL_LOG_LEVEL",
                                       "ASCEND_LAUNCH_BLOCKING",
                                       "ASCEND_RT_VISIBLE_DEVICES",
                                       "CUBLAS_WORKSPACE_CONFIG",
                                       "CUDA_DEVICE_MAX_CONNECTIONS",
                                       "CUDA_DEVICE_ORDER",
                                       "CUDA_LAUNCH_BLOCKING",
                                       "CUDA_VISIBLE_DEVICES",
                                       "DEVICE_ID",
                                       "GROUP_RANK",
                                       "LCCL_DETERMINISTIC",
                                       "LOCAL_RANK",
                                       "LOCAL_WORLD_SIZE",
                                       "MASTER_ADDR",
                                       "MASTER_PORT",
                                       "MKL_NUM_THREADS",
                                       "MS_NODE_ID",
                                       "MS_ROLE",
                                       "MS_SCHED_HOST",
                                       "MS_SCHED_PORT",
                                       "MS_WORKER_NUM",
                                       "NPU_VISIBLE_DEVICES",
                                       "NVIDIA_TF32_OVERRIDE",
                                       "NVIDIA_VISIBLE_DEVICES",
                                       "OMP_NUM_THREADS",
                                       "OMP_PROC_BIND",
                                       "PYTHONHASHSEED",
                                       "RANK",
                                       "RANK_ID",
                                       "RANK_SIZE",
                                       "RANK_TABLE_FILE",
                                       "ROLE_RANK",
                                       "SLURM_JOB_ID",
                                       "SLURM_NODEID",
                                       "SLURM_PROCID",
                                       "WORLD_SIZE"};
constexpr std::string_view kFamilies[] = {"GLOO_",  "HCCL_",         "MSPROBE_",       "NCCL_", "PYTORCH_",
                                          "TORCH_", "TORCHELASTIC_", "TORCHINDUCTOR_", "VLLM_"};
constexpr std::string_view kSecret[] = {"AUTH",  "BEARER", "CREDENTIAL", "KEY",  "PASSPHRASE",
                                        "PASSW", "PWD",    "SECRET",     "TOKEN"};

// In values. Names of options: "_" stands for "-" too.
constexpr char kSecretUrl[] = R"(://[^\s@]*@|[?&]key=[^&\s])";
constexpr char kGiven[] =
    R"re((?i)(?:^|[^\w.-])(-{0,2})([a-z][\w-]*)['"]?(?:(\s*[=:]\s*)['"]?[^\s&'"]|[\s,]+['"]?[^\s'"-]))re";
constexpr char kSecretName[] =
    "(?i)passw|passphrase|secret|credential|bearer|(^|[_-])(pass|pwd|auth|authorization|sig|signature|token)$"
    "|(^|[_-])(access|account|api|auth|aws|azure|encryption|hf|hub|master|openai|private|shared|signing|ssh|storage"
    "|wandb)[_-]?key$";
constexpr char kOfTokenizers[] =
    "(?i)(^|[_-])(audio|bos|cls|each|end|eod|eos|eot|first|image|last|mask|max|new|next|pad|per|sep|sos|special|start"
    "|stop|text|think|unk|video|vision|visual)[_-]token$";

// "8 x NAME", sorted by name.
std::vector<std::string> Counted(const std::map<std::string, int>& devices) {
  std::vector<std::string> counted;
  for (const auto& [name, number] : devices) counted.push_back(Cat(number, " x ", name));
  return counted;
}

std::string Stripped(const std::string& text) { return std::string(absl::StripAsciiWhitespace(text)); }

// Counts the values of lines such as "Model: \t NVIDIA H100".
void CountValues(const std::string& path, std::string_view field, std::map<std::string, int>& devices) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos || Stripped(line.substr(0, colon)) != field) continue;
    ++devices[ToUtf8(Stripped(line.substr(colon + 1)))];
  }
}

// Calls `visit` with the path of each member of a directory that can be read.
template <typename Visit>
void VisitMembers(const std::string& directory, const Visit& visit) {
  std::error_code error;
  for (std::filesystem::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    visit(at->path());
  }
}

}  // namespace

bool MayBeShown(std::string_view name) {
  for (std::string_view word : kSecret) {
    if (name.find(word) != std::string_view::npos) return false;
  }
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames) ||
         std::any_of(std::begin(kFamilies), std::end(kFamilies),
                     [&](std::string_view family) { return name.starts_with(family); });
}

bool HoldsSecret(std::string_view value) {
  static const re2::RE2& url = *new re2::RE2(kSecretUrl, re2::RE2::Latin1);
  static const re2::RE2& given = *new re2::RE2(kGiven, re2::RE2::Latin1);
  static const re2::RE2& secret = *new re2::RE2(kSecretName, re2::RE2::Latin1);
  static const re2::RE2& of_tokenizers = *new re2::RE2(kOfTokenizers, re2::RE2::Latin1);
  const re2::StringPiece text(value.data(), value.size());
  if (re2::RE2::PartialMatch(text, url)) return true;
  re2::StringPiece found[4];  // all, dashes, name, sign
  for (size_t at = 0; given.Match(text, at, text.size(), re2::RE2::UNANCHORED, found, 4);
       at = static_cast<size_t>(found[2].data() + found[2].size() - text.data())) {
    if (found[1].empty() && found[3].empty()) continue;
    if (re2::RE2::PartialMatch(found[2], secret) && !re2::RE2::PartialMatch(found[2], of_tokenizers)) return true;
  }
  return false;
}

std::vector<std::pair<std::string, std::string>> ShownEnvironment(const char* const* environment) {
  std::vector<std::pair<std::string, std::string>> shown;
  for (; environment != nullptr && *environment != nullptr; ++environment) {
    const std::string_view variable = *environment;
    const size_t equals = variable.find('=');
    if (equals == std::string_view::npos || !MayBeShown(variable.substr(0, equals))) continue;
    const std::string_view value = variable.substr(equals + 1, kLongest / 3);  // a malformed byte becomes three
    if (HoldsSecret(value)) continue;
    shown.emplace_back(variable.substr(0, equals), ToUtf8(value));
  }
  std::sort(shown.begin(), shown.end());
  if (shown.size() > kMost) shown.resize(kMost);
  return shown;
}

std::vector<std::string> MachineDevices(const std::string& root) {
  std::map<std::string, int> accelerators, processors;
  VisitMembers(root + "/proc/driver/nvidia/gpus", [&](const std::filesystem::path& device) {
    CountValues((device / "information").string(), "Model", accelerators);
  });
  VisitMembers(root + "/dev", [&](const std::filesystem::path& device) {
    const std::string name = device.filename().string();
    constexpr std::string_view kNpu = "davinci";
    const bool numbered =
        name.size() > kNpu.size() && absl::ascii_isdigit(static_cast<unsigned char>(name[kNpu.size()]));
    if (name.starts_with(kNpu) && numbered) ++accelerators["Ascend NPU"];
  });
  CountValues(root + "/proc/cpuinfo", "model name", processors);
  std::vector<std::string> devices = Counted(accelerators);
  for (std::string& processor : Counted(processors)) devices.push_back(std::move(processor));
  return devices;
}

}  // namespace msprobe::core
