// Runs a fuzz target without libFuzzer: every file of the corpus, then bytes of it changed at random. MSPROBE_SEED
// (default 1) draws the changes, the same ones each time; MSPROBE_FUZZ_SECONDS goes on for so long after CASES.
//
//   TARGET DIRECTORY [CASES]

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "tests/fuzz/fuzz_target.h"

namespace {

using Bytes = std::vector<uint8_t>;

std::vector<Bytes> Corpus(const char* directory) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  std::vector<Bytes> corpus;
  for (const std::filesystem::path& path : paths) {
    std::ifstream file(path, std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return corpus;
}

Bytes Changed(const std::vector<Bytes>& corpus, std::mt19937_64* draw) {
  const auto below = [&](size_t bound) { return static_cast<size_t>((*draw)() % std::max<size_t>(bound, 1)); };
  Bytes bytes = corpus[below(corpus.size())];
  for (size_t changes = 1 + below(8); changes > 0; --changes) {
    if (bytes.empty()) bytes.push_back(0);
    const size_t at = below(bytes.size());
    switch (below(6)) {
      case 0:
        bytes[at] ^= static_cast<uint8_t>(1u << below(8));
        break;
      case 1:
        bytes[at] = static_cast<uint8_t>((*draw)());
        break;
      case 2:
        bytes[at] = below(2) == 0 ? 0xFF : 0x00;
        break;
      case 3:
        bytes.resize(at);
        break;
      case 4:
        bytes.erase(bytes.begin() + static_cast<ptrdiff_t>(at),
                    bytes.begin() + static_cast<ptrdiff_t>(std::min(bytes.size(), at + 1 + below(16))));
        break;
      default: {
        const Bytes& other = corpus[below(corpus.size())];
        const size_t from = below(other.size());
        const size_t count = std::min(other.size() - std::min(from, other.size()), 1 + below(32));
        bytes.insert(bytes.begin() + static_cast<ptrdiff_t>(at), other.begin() + static_cast<ptrdiff_t>(from),
                     other.begin() + static_cast<ptrdiff_t>(from + count));
      }
    }
  }
  return bytes;
}

// An environment variable's number.
unsigned long Setting(const char* name, unsigned long otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoul(text, nullptr, 10);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s DIRECTORY [CASES]\n", argv[0]);
    return 2;
  }
  std::vector<Bytes> corpus = Corpus(argv[1]);
  if (corpus.empty()) {
    std::fprintf(stderr, "%s has no files\n", argv[1]);
    return 2;
  }
  for (const Bytes& bytes : corpus) LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  const unsigned long seed = Setting("MSPROBE_SEED", 1);
  std::printf("MSPROBE_SEED=%lu\n", seed);
  std::fflush(stdout);  // also where the target ends the program
  std::mt19937_64 draw(seed);
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(Setting("MSPROBE_FUZZ_SECONDS", 0));
  const long least = argc > 2 ? std::atol(argv[2]) : 0;
  long cases = 0;
  for (; cases < least || std::chrono::steady_clock::now() < until; ++cases) {
    const Bytes bytes = Changed(corpus, &draw);
    LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  }
  std::printf("%zu files and %ld cases\n", corpus.size(), cases);
  return 0;
}
