// For tests and benches: writes a data directory with two runs of one step of many calls in nested modules, a
// transformer as captured at level mix. From one call on, the values of the run "nested" differ from those of "golden".
//
//   nested_store DIRECTORY LAYERS CALLS
//
// A layer has two modules of CALLS API calls each. The first call that differs is in the middle.

#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include "server/format/cat.h"
#include "server/format/storage/scripted_block.h"
#include "server/store/stored_pass.h"

namespace msprobe::server {
namespace {

constexpr uint32_t kWhole = v1::FRAGMENT_ENTER | v1::FRAGMENT_EXIT;
constexpr char kModel[] = "Module.model.Model";

class Writer {
 public:
  Writer(uint32_t layers, uint32_t calls, bool differs)
      : block_(0, 0), wrong_from_(differs ? uint64_t{layers} * calls : std::numeric_limits<uint64_t>::max()) {
    for (uint32_t layer = 0; layer < layers; ++layer) AddLayer(Cat("Module.model.layers.", layer), calls);
    AddModule(kModel, "");
  }

  std::vector<v1::Definition> definitions_;
  const v1::Block& block() const { return block_.block(); }

 private:
  void AddLayer(const std::string& layer, uint32_t calls) {
    const std::string around = layer + ".Layer";
    for (const char* part : {"attention.Attention", "mlp.MLP"}) {
      const std::string module = Cat(layer, ".", part);
      for (uint32_t i = 0; i < calls; ++i) {
        wrong_ = wrong_ || calls_ == wrong_from_;
        Add(TensorStructure("Torch.add", v1::RECORD_API, {"output"}), calls_, module + ".forward.0");
        ++calls_;
      }
      AddModule(module, around + ".forward.0");
    }
    AddModule(around, Cat(kModel, ".forward.0"));
  }

  void AddModule(const std::string& name, const std::string& parent) {
    Add(TensorStructure(name, v1::RECORD_MODULE, {"output"}), 0, parent);
  }

  void Add(const v1::Structure& structure, uint32_t count, const std::string& parent) {
    const uint64_t id = IdOf(structure);
    if (count == 0) {
      definitions_.emplace_back().set_structure(structure.SerializeAsString());
      definitions_.back().set_id(id);
    }
    const float value = 1 + static_cast<float>(ordinal_ % 977);
    block_.Fragment(structure, count, ordinal_++, kWhole, {wrong_ ? 2 * value : value});
    if (!parent.empty()) block_.Parent(parent);
  }

  BlockScript block_;
  const uint64_t wrong_from_;
  bool wrong_ = false;
  uint64_t ordinal_ = 0;
  uint32_t calls_ = 0;
};

absl::Status Fill(const std::string& directory, uint32_t layers, uint32_t calls) {
  StoreOptions options;
  options.directory = directory;
  options.durability = v1::DURABILITY_OS;
  auto store = Store::Open(options);
  if (!store.ok()) return store.status();
  uint32_t number = 0;
  for (const char* run : {"golden", "nested"}) {
    const Writer writer(layers, calls, ++number == 2);
    if (absl::Status status = PutRun(**store, run, writer.definitions_, "mix"); !status.ok()) return status;
    if (absl::Status status = PutBlocks(**store, {writer.block()}, {number, 0, 0, 0}); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace msprobe::server

int main(int count, char** arguments) {
  if (count != 4) {
    std::fprintf(stderr, "usage: nested_store DIRECTORY LAYERS CALLS\n");
    return 2;
  }
  const auto number = [&](int i) { return static_cast<uint32_t>(std::strtoul(arguments[i], nullptr, 10)); };
  const absl::Status status = msprobe::server::Fill(arguments[1], number(2), number(3));
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
