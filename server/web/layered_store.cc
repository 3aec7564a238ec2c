// For tests: writes a data directory with one run of many steps and layers, one of which has a NaN.
//
//   layered_store DIRECTORY STEPS LAYERS NAN_STEP NAN_LAYER

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include "server/format/cat.h"
#include "server/format/storage/scripted_block.h"
#include "server/store/stored_pass.h"
#include "server/store/tiles/tiler.h"

namespace msprobe::server {
namespace {

constexpr int kNumbers = 5;  // of a leaf: max, min, mean, norm, variance

absl::Status Fill(const std::string& directory, uint32_t steps, uint32_t layers, uint32_t nan_step,
                  uint32_t nan_layer) {
  StoreOptions options;
  options.directory = directory;
  options.durability = v1::DURABILITY_OS;
  auto store = Store::Open(options);
  if (!store.ok()) return store.status();
  std::vector<v1::Definition> definitions;
  BlockScript script(0, 0);
  for (uint32_t layer = 0; layer < layers; ++layer) {
    const v1::Structure structure =
        TensorStructure(Cat("Module.layers.", layer, ".Linear"), v1::RECORD_MODULE, {"output"});
    definitions.emplace_back().set_structure(structure.SerializeAsString());
    definitions.back().set_id(IdOf(structure));
    script.Fragment(structure, 0, layer, v1::FRAGMENT_ENTER | v1::FRAGMENT_EXIT, {1});
  }
  if (absl::Status status = PutRun(**store, "large", definitions, "L0"); !status.ok()) return status;
  for (uint32_t step = 0; step < steps; ++step) {
    v1::Block block = script.block();
    block.set_step(step);
    for (uint32_t layer = 0; layer < layers; ++layer) {
      const double value = std::exp(std::sin(layer / 20.0) + 3.0 * step / steps) * (1 + 0.2 * std::sin(step / 50.0));
      for (int i = 0; i < kNumbers; ++i) {
        block.set_narrow(static_cast<int>(layer) * kNumbers + i, static_cast<float>(i == 1 ? -value : value));
      }
    }
    const StepKey key{1, 0, step, 0};
    if (step == nan_step) {
      for (int i = 0; i < kNumbers; ++i) {
        block.set_narrow(static_cast<int>(nan_layer) * kNumbers + i, std::numeric_limits<float>::quiet_NaN());
      }
      v1::NonFinite* counts = block.add_non_finite();
      counts->set_leaf(nan_layer);
      counts->set_nan_count(1);
    }
    if (absl::Status status = PutBlocks(**store, {block}, key); !status.ok()) return status;
    if (step != nan_step) continue;
    auto row = (*store)->database().Find<storage::StepRow>(key.Encode());
    if (!row.ok()) return row.status();
    (*row)->set_nan_tensors(1);
    ChangeSet changes;
    changes.PutMeta(key.Encode(), **row);
    if (absl::Status status = (*store)->database().Write(changes); !status.ok()) return status;
  }
  return Tiler(store->get()).RunOnce();
}

}  // namespace
}  // namespace msprobe::server

int main(int count, char** arguments) {
  if (count != 6) {
    std::fprintf(stderr, "usage: layered_store DIRECTORY STEPS LAYERS NAN_STEP NAN_LAYER\n");
    return 2;
  }
  const auto number = [&](int i) { return static_cast<uint32_t>(std::strtoul(arguments[i], nullptr, 10)); };
  const absl::Status status = msprobe::server::Fill(arguments[1], number(2), number(3), number(4), number(5));
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
