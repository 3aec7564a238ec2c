// Shared by the tests of capture: a recorder over a framework that is not torch, with a server that records what it
// gets. The framework has arrays of floats, and one call.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "agent/capture/recorder.h"
#include "agent/core/session_fixture.h"

namespace msprobe::capture {

// What arrays that are views of each other share. The values are each array's own.
struct ArrayStorage : std::enable_shared_from_this<ArrayStorage> {
  uint32_t version = 0;
  int weak = 0;
  std::shared_ptr<ArrayStorage> kept;  // while there are weak references

  static ArrayStorage* Of(const void* storage) { return static_cast<ArrayStorage*>(const_cast<void*>(storage)); }
};

inline constexpr WeakStorage kWeakArray = {
    .retain =
        [](const void* storage) {
          ArrayStorage* const of = ArrayStorage::Of(storage);
          if (of->weak++ == 0) of->kept = of->shared_from_this();
        },
    .release =
        [](const void* storage) {
          ArrayStorage* const of = ArrayStorage::Of(storage);
          if (--of->weak == 0) std::exchange(of->kept, nullptr).reset();
        },
    .expired = [](const void* storage) { return ArrayStorage::Of(storage)->kept.use_count() == 1; },
};

// An array of one dimension, which may be broken. A copy is a view.
struct Array {
  std::vector<float> values;
  bool is_broken = false;
  std::shared_ptr<ArrayStorage> storage = std::make_shared<ArrayStorage>();
};

class ArraySource final : public TensorSource {
 public:
  struct Log {
    int flushes = 0;
    int steps = 0;
    bool is_recompute = false;  // what BeginCall answers
    std::vector<core::RecordKind> calls;
  };
  explicit ArraySource(Log* log) : log_(log) {}

  std::string_view framework() const override { return "arrays"; }
  TensorReading Read(TensorRef tensor, bool save, const MemoryReader& memory) override {
    const auto& array = *static_cast<const Array*>(tensor.tensor);
    if (array.is_broken) throw std::runtime_error("the array is broken");
    TensorReading reading;
    reading.type = "arrays.Array";
    reading.device = "cpu";
    reading.dtype = static_cast<uint8_t>(stats::DType::kFloat32);
    const auto size = static_cast<int64_t>(array.values.size());
    const int64_t stride = 1;
    memory.Read({.data = array.values.data(),
                 .dtype = stats::DType::kFloat32,
                 .sizes = std::span(&size, 1),
                 .strides = std::span(&stride, 1)},
                save, reading);
    return reading;
  }
  GradientReading ReadGradient(TensorRef tensor, const core::GradProbeConfig& probe,
                               const MemoryReader& memory) override {
    const auto& array = *static_cast<const Array*>(tensor.tensor);
    if (array.is_broken) throw std::runtime_error("the array is broken");
    GradientReading reading;
    reading.gradient.type = "arrays.Array";
    reading.gradient.device = "cpu";
    reading.gradient.dtype = static_cast<uint8_t>(stats::DType::kFloat32);
    const auto size = static_cast<int64_t>(array.values.size());
    const int64_t stride = 1;
    reading.gradient.shape = {size};
    memory.ReadGradient({.data = array.values.data(),
                         .dtype = stats::DType::kFloat32,
                         .sizes = std::span(&size, 1),
                         .strides = std::span(&stride, 1)},
                        probe, reading);
    return reading;
  }
  TensorIdentity Identify(TensorRef tensor) override {
    const auto& array = *static_cast<const Array*>(tensor.tensor);
    TensorIdentity identity;
    identity.storage = StorageReference(array.storage.get(), &kWeakArray);
    identity.end = identity.layout = array.values.size();
    identity.version = array.storage->version;
    identity.has_version = true;
    return identity;
  }
  bool BeginCall(core::RecordKind kind) override {
    log_->calls.push_back(kind);
    return log_->is_recompute;
  }
  void Flush() override { ++log_->flushes; }
  void EndStep() override { ++log_->steps; }
  Counts counts() const override { return {}; }

 private:
  Log* const log_;
};

// A record as the server was told of it: its fragments joined.
struct Told {
  uint32_t flags = 0;
  uint64_t ordinal = 0;  // the last one
  std::string parent;
  std::string fields;  // "input_args[arrays.Array(3) max 3] output[...]"
  // "outside", or kind, name and leaf of the producer: "same Array.sum.0.forward 0"; of leaves whose edge is known.
  std::vector<std::string> edges;
};

// A point of a series as the server was told of it. Of a tensor the value is the first of its numbers.
struct ToldScalar {
  uint32_t step = 0;
  std::string structure;  // its name
  std::string name;
  double value = 0;
};

class RecorderTest : public core::SessionTest {
 protected:
  void Open(core::Config config = {}) {
    fake_.Set({.knows_edges = knows_edges_});
    fake_.Start();
    options_.settings.framework = "arrays";
    core::SessionTest::Open();
    config.level = config.level == core::Level::kL1 ? core::Level::kMix : config.level;
    recorder_ = std::make_shared<Recorder>(std::move(config),
                                           std::shared_ptr<core::Session>(std::shared_ptr<void>(), session_.get()),
                                           std::make_unique<ArraySource>(&log_));
    recorder_->step().Start(0);
  }
  ~RecorderTest() override { recorder_.reset(); }

  // One captured call: the sum of its arrays.
  OpenRecord Sum(const std::vector<const Array*>& arguments) {
    ThreadState& thread = ThreadState::Get();
    OpenRecord record = recorder_->opener().BeginApi(sum_, thread);
    EmitFields(record, core::kEnter, "input_args", arguments);
    Array result;  // a new one
    for (const Array* each : arguments) {
      result.values.push_back(std::accumulate(each->values.begin(), each->values.end(), 0.0F));
    }
    recorder_->opener().Recheck(record);
    EmitFields(record, core::kExit, "output", {&result});
    result_ = std::move(result);
    return record;
  }

  void EmitFields(OpenRecord& record, uint32_t flags, std::string_view key, const std::vector<const Array*>& arrays) {
    if (!record.wanted) return recorder_->emitter().EmitConstructOnly(record);
    recorder_->faults().Contain(record, [&] {
      FragmentBuilder& builder = ThreadState::Get().builder;
      FragmentEmitter::Start(record, builder);
      builder.Key(key);
      builder.BeginList();
      for (const Array* array : arrays) builder.Tensor(recorder_->Read(TensorRef{array}, record.save));
      builder.End();
      recorder_->emitter().Emit(record, builder, flags);
    });
  }

  // Ends the step and gives what the server has of it, by full name.
  std::map<std::string, Told> Records() {
    recorder_->EndStep(recorder_->step().number(), true);
    EXPECT_TRUE(session_->Wait(absl::Seconds(20)).ok());
    std::map<uint64_t, v1::Structure> structures;
    std::map<std::string, Told> records;
    given_out_.clear();
    for (const v1::Batch& batch : fake_.batches()) {
      for (const v1::Definition& definition : batch.definitions()) {
        if (definition.has_structure()) structures[definition.id()].ParseFromString(definition.structure());
      }
      for (const v1::Item& item : batch.items()) Join(item.block(), structures, &records);
    }
    return records;
  }

  // The points that the server has, in their order.
  std::vector<ToldScalar> Scalars() {
    EXPECT_TRUE(session_->Wait(absl::Seconds(20)).ok());
    std::map<uint64_t, v1::Structure> structures;
    std::vector<ToldScalar> scalars;
    for (const v1::Batch& batch : fake_.batches()) {
      for (const v1::Definition& definition : batch.definitions()) {
        structures[definition.id()].ParseFromString(definition.structure());
      }
      for (const v1::Item& item : batch.items()) {
        const v1::Block& block = item.scalars();
        int numbers = 0, leaves = 0;
        for (const uint32_t index : block.structure()) {
          const v1::Structure& structure = structures.at(block.structures(static_cast<int>(index)));
          EXPECT_EQ(structure.kind(), v1::RECORD_SCALARS);
          for (const v1::Node::Entry& entry : structure.fields().dict().entries()) {
            const double value = entry.value().has_tensor() ? block.narrow(5 * leaves++) : block.floats(numbers++);
            scalars.push_back({block.step(), structure.name(), entry.key(), value});
          }
        }
      }
    }
    return scalars;
  }

  void Join(const v1::Block& block, const std::map<uint64_t, v1::Structure>& structures,
            std::map<std::string, Told>* records) {
    uint64_t ordinal = 0;
    int leaf = 0;
    int edge = 0;
    for (int i = 0; i < block.count_size(); ++i) {
      ordinal += static_cast<uint64_t>(block.ordinal_delta(i));
      const v1::Structure& structure = structures.at(block.structures(static_cast<int>(block.structure(i))));
      OpenRecord record;
      std::string name = structure.name();
      if (const size_t mark = name.find('#'); mark != std::string::npos) {
        record.pass = static_cast<uint32_t>(std::stoi(name.substr(mark + 1)));
        name.resize(mark);
      }
      record.name = std::make_shared<const std::string>(name);
      record.kind = static_cast<core::RecordKind>(structure.kind());
      record.direction = static_cast<core::Direction>(structure.direction());
      record.count = block.count(i);
      Told& told = (*records)[record.FullName()];
      told.flags |= block.fragment_flags(i);
      told.ordinal = ordinal;
      told.parent = block.parent(i) == 0 ? "" : block.parents(static_cast<int>(block.parent(i)) - 1);
      for (const v1::Node::Entry& field : structure.fields().dict().entries()) {
        told.fields += field.key() + "[";
        for (const v1::Node& node : field.value().list().items()) {
          if (!node.has_tensor()) {
            told.fields += "null;";
            continue;
          }
          const v1::Shape& shape = block.shapes(static_cast<int>(block.shape(leaf)));
          const bool has_numbers = leaf * 5 < block.narrow_size();
          told.fields += core::Cat(node.tensor().type(), "(", shape.dims(0), ")",
                                   has_numbers ? core::Cat(" max ", block.narrow(leaf * 5)) : "", ";");
          if (leaf < block.edge_size() && block.edge(leaf) == v1::EDGE_OUTSIDE) told.edges.emplace_back("outside");
          if (leaf < block.edge_size() && block.edge(leaf) >= v1::EDGE_SAME) {
            const std::string kind = v1::EdgeKind_Name(static_cast<v1::EdgeKind>(block.edge(leaf))).substr(5);
            const uint64_t producer = ordinal - static_cast<uint64_t>(block.edge_distance(edge));
            told.edges.push_back(core::Cat(kind, " ", given_out_[producer], " ", block.edge_leaf(edge++)));
          }
          ++leaf;
        }
        told.fields += "]";
      }
      if ((block.fragment_flags(i) & v1::FRAGMENT_EXIT) != 0) given_out_[ordinal] = record.FullName();
    }
  }

  bool knows_edges_ = true;  // the server
  ArraySource::Log log_;
  Array result_;                               // of the last Sum
  std::map<uint64_t, std::string> given_out_;  // names of records that ended, by ordinal
  std::shared_ptr<Recorder> recorder_;
  const Api sum_ = [] {
    Api api;
    api.name = "Array.sum";
    return api;
  }();
  const Array ones_{.values = {1, 1, 1}};
  const Array twos_{.values = {2, 2}};
};

}  // namespace msprobe::capture
