#include "server/format/storage/repeated_pass.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "server/format/cat.h"
#include "server/format/storage/scripted_block.h"

namespace msprobe::server {
namespace {

constexpr uint32_t kCallsAModule = 10;

// splitmix64, because the numbers of a standard library differ between libraries.
uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

float Unit(uint64_t bits) { return static_cast<float>(bits >> 40) / static_cast<float>(1 << 24); }

v1::Node::TensorSlot* AddTensor(v1::Node::Dict& dict, const std::string& key, v1::DType dtype) {
  v1::Node::Entry* entry = dict.add_entries();
  entry->set_key(key);
  v1::Node::TensorSlot* slot = entry->mutable_value()->mutable_list()->add_items()->mutable_tensor();
  slot->set_type("torch.Tensor");
  slot->set_dtype(dtype);
  slot->set_device("cpu");
  return slot;
}

v1::DType DTypeOf(uint32_t call, bool variety) {
  constexpr v1::DType kTypes[] = {v1::DTYPE_FLOAT32, v1::DTYPE_FLOAT64, v1::DTYPE_INT64,
                                  v1::DTYPE_BOOL,    v1::DTYPE_UINT64,  v1::DTYPE_BFLOAT16};
  return variety ? kTypes[call % std::size(kTypes)] : v1::DTYPE_FLOAT32;
}

class PassWriter {
 public:
  PassWriter(v1::Block& block, uint64_t seed, bool variety) : block_(block), seed_(seed), variety_(variety) {}

  void Leaf(v1::DType dtype, uint64_t at, int64_t first_dimension) {
    const uint64_t noise = Mix(seed_ * 0x10001 + at);
    v1::Shape shape;
    shape.add_dims(first_dimension);
    shape.add_dims(64);
    uint32_t index = 0;
    while (index < static_cast<uint32_t>(block_.shapes_size()) &&
           !std::equal(shape.dims().begin(), shape.dims().end(), block_.shapes(static_cast<int>(index)).dims().begin(),
                       block_.shapes(static_cast<int>(index)).dims().end())) {
      ++index;
    }
    if (index == static_cast<uint32_t>(block_.shapes_size())) *block_.add_shapes() = shape;
    block_.add_shape(index);
    uint32_t flags = v1::LEAF_STATISTICS | v1::LEAF_CRC32;
    const bool odd = variety_ && noise % 7 == 0;
    if (odd) flags &= ~static_cast<uint32_t>(v1::LEAF_CRC32);
    if (variety_ && noise % 11 == 0) flags |= v1::LEAF_XOR;
    if (variety_ && noise % 13 == 0) flags |= v1::LEAF_PAYLOAD;
    if (variety_ && noise % 31 == 0) flags = v1::LEAF_NONE;
    if (flags & v1::LEAF_STATISTICS) Statistics(dtype, noise, flags);
    if (flags & v1::LEAF_CRC32) block_.add_crc32(static_cast<uint32_t>(noise));
    if (flags & v1::LEAF_XOR) block_.add_xor64(noise);
    if (flags & v1::LEAF_PAYLOAD) {
      block_.add_payload()->set_hash(std::string(16, static_cast<char>('a' + noise % 26)));
      block_.mutable_payload(block_.payload_size() - 1)->set_size(noise % 100'000);
    }
    block_.add_leaf_flags(flags);
  }

  void Scalars(uint64_t at) {
    const uint64_t noise = Mix(seed_ + at);
    block_.add_integers(noise % 3 == 0 ? std::numeric_limits<int64_t>::min() : static_cast<int64_t>(at));
    block_.add_floats(noise % 3 == 0 ? std::numeric_limits<double>::quiet_NaN() : 1e-5);
    block_.add_booleans(noise % 2 == 0);
    block_.add_strings(noise % 2 == 0 ? "mean" : "");
    block_.add_strings(Cat("{\"start\": ", noise % 5, "}"));
  }

 private:
  void Statistics(v1::DType dtype, uint64_t noise, uint32_t& flags) {
    const float value = Unit(noise);
    block_.add_zero_count(variety_ ? noise % 300 : 0);
    if (dtype == v1::DTYPE_INT64 || dtype == v1::DTYPE_UINT64 || dtype == v1::DTYPE_BOOL) {
      flags |= v1::LEAF_INTEGER;
      block_.add_integer_extremes(dtype == v1::DTYPE_BOOL ? static_cast<int64_t>(noise & 1)
                                                          : static_cast<int64_t>(noise | (uint64_t{1} << 60)));
      block_.add_integer_extremes(dtype == v1::DTYPE_BOOL ? 0 : (int64_t{1} << 53) + 1);
      for (double moment : {0.25 * value, std::numeric_limits<double>::quiet_NaN(), 1.0 / 3}) {
        block_.add_integer_moments(moment);
      }
    } else if (dtype == v1::DTYPE_FLOAT64) {
      flags |= v1::LEAF_WIDE;
      for (double number : {1.0 / 3 + value, -1e300, 0.1, std::bit_cast<double>(0x7ff8'0000'0000'1234), 4.9e-324}) {
        block_.add_wide(number);
      }
    } else {
      const bool broken = variety_ && noise % 17 == 0;
      const float max = broken ? std::numeric_limits<float>::infinity() : 3 + value;
      for (float number :
           {max, -3 - value, value - 0.5F, broken ? std::bit_cast<float>(0x7fc0'0001) : 10 * value, 1 + value / 8}) {
        block_.add_narrow(number);
      }
      if (!broken) return;
      v1::NonFinite* counts = block_.add_non_finite();
      counts->set_leaf(static_cast<uint32_t>(block_.shape_size() - 1));
      counts->set_nan_count(noise % 1000);
      counts->set_positive_inf_count(1);
      if (noise % 2 == 0) counts->set_finite_mean(value);
    }
  }

  v1::Block& block_;
  const uint64_t seed_;
  const bool variety_;
};

}  // namespace

RepeatedPass::RepeatedPass(const Options& options) : options_(options) {
  constexpr const char* kNames[] = {"Torch.matmul", "Functional.linear", "Tensor.__add__", "Functional.silu"};
  for (uint32_t i = 0; i < options_.calls; ++i) {
    const v1::DType dtype = DTypeOf(i, options_.variety);
    v1::Structure enter;
    enter.set_name(kNames[i % 4]);
    enter.set_kind(v1::RECORD_API);
    AddTensor(*enter.mutable_fields()->mutable_dict(), "input_args", dtype);
    if (options_.variety && i % 5 == 0) {
      v1::Node::Entry* kwargs = enter.mutable_fields()->mutable_dict()->add_entries();
      kwargs->set_key("input_kwargs");
      for (auto [key, slot] : {std::pair{"n", v1::Node::INTEGER},
                               {"eps", v1::Node::FLOAT},
                               {"flag", v1::Node::BOOLEAN},
                               {"mode", v1::Node::STRING},
                               {"slice", v1::Node::JSON},
                               {"none", v1::Node::NONE}}) {
        v1::Node::Entry* entry = kwargs->mutable_value()->mutable_dict()->add_entries();
        entry->set_key(key);
        entry->mutable_value()->set_slot(slot);
      }
    }
    v1::Structure exit;
    exit.set_name(enter.name());
    exit.set_kind(v1::RECORD_API);
    AddTensor(*exit.mutable_fields()->mutable_dict(), "output", dtype);
    const uint32_t entered = Define(enter);
    calls_.push_back({entered, Define(exit), i / 4});
    leaves_ += 2;
  }
  v1::Stack stack;
  v1::Frame* frame = stack.add_frames();
  frame->set_path("/model.py");
  frame->set_line(7);
  v1::Definition& definition = definitions_.emplace_back();
  definition.set_stack(stack.SerializeAsString());
  definition.set_id(stack_ = IdOf(definition.stack()));
}

uint32_t RepeatedPass::Define(const v1::Structure& structure) {
  const std::string bytes = structure.SerializeAsString();
  const uint64_t id = IdOf(bytes);
  const auto known = std::find(ids_.begin(), ids_.end(), id);
  if (known != ids_.end()) return static_cast<uint32_t>(known - ids_.begin());
  ids_.push_back(id);
  structures_.push_back(structure);
  definitions_.emplace_back().set_id(id);
  definitions_.back().set_structure(bytes);
  return static_cast<uint32_t>(ids_.size() - 1);
}

std::vector<v1::Block> RepeatedPass::Blocks(uint32_t step, uint32_t token, uint32_t calls_a_block) const {
  std::vector<v1::Block> blocks;
  const uint64_t seed = Mix(options_.seed + (uint64_t{step} << 20) + token);
  const int64_t first_dimension = options_.varying_shapes ? static_cast<int64_t>(1 + seed % 500) : 8;
  uint64_t ordinal = 0;
  int64_t last = 0;
  for (uint32_t first = 0; first < options_.calls; first += calls_a_block) {
    v1::Block& block = blocks.emplace_back();
    block.set_step(step);
    block.set_token(token);
    for (uint64_t id : ids_) block.add_structures(id);
    block.add_stacks(stack_);
    PassWriter writer(block, seed, options_.variety);
    last = 0;
    for (uint32_t i = first; i < std::min(first + calls_a_block, options_.calls); ++i) {
      if (i % kCallsAModule == 0 || i == first) {
        block.add_parents(Cat("Module.layers.", i / kCallsAModule, ".Layer.forward.", token));
      }
      for (bool entering : {true, false}) {
        block.add_structure(entering ? calls_[i].enter : calls_[i].exit);
        block.add_count(calls_[i].count + token * 10'000);
        block.add_ordinal_delta(static_cast<int64_t>(ordinal) - last);
        last = static_cast<int64_t>(ordinal++);
        block.add_fragment_flags(entering ? v1::FRAGMENT_ENTER : v1::FRAGMENT_EXIT);
        block.add_stack(entering ? 1 : 0);
        block.add_parent(static_cast<uint32_t>(block.parents_size()));
        writer.Leaf(DTypeOf(i, options_.variety), i * 2 + (entering ? 0 : 1), first_dimension);
        if (entering && options_.variety && i % 5 == 0) writer.Scalars(i);
      }
    }
  }
  return blocks;
}

}  // namespace msprobe::server
