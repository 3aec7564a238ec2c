#include "agent/capture/gradient_probe.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "agent/capture/recorder_fixture.h"
#include "agent/stats/checksum.h"

namespace msprobe::capture {
namespace {

using Level = core::GradProbeConfig::GradLevel;
using ::testing::ElementsAre;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

class GradientProbeTest : public RecorderTest {
 protected:
  void OpenAt(Level level) {
    core::Config config;
    config.task = core::Task::kGradProbe;
    config.grad_probe.level = level;
    Open(std::move(config));
  }
  void Look(std::vector<GradientProbe::Gradient> gradients) { recorder_->gradients().Look(0, gradients); }

  // Payloads that the server has, as bytes.
  std::vector<std::vector<int>> Payloads() {
    std::vector<std::vector<int>> shown;
    for (const auto& [hash, bytes] : fake_.payloads()) {
      shown.emplace_back();
      for (const char byte : bytes) shown.back().push_back(static_cast<uint8_t>(byte));
    }
    return shown;
  }

  const Array mixed_{.values = {1, -1, 0, 2, -2, NAN, INFINITY, 3, 0.5F}};
};

TEST_F(GradientProbeTest, SendsOneBitAnElementBesideTheNumbers) {
  OpenAt(Level::kL1);
  Look({{.parameter = "fc.weight", .tensor = TensorRef{&twos_}},
        {.parameter = "fc.bias", .tensor = TensorRef{&mixed_}}});
  const std::map<std::string, Told> records = Records();
  ASSERT_EQ(records.size(), 2);
  const Told& weight = records.at("Parameter.fc.weight.parameters_grad.0");
  EXPECT_EQ(weight.ordinal, 1);
  EXPECT_EQ(weight.flags, core::kEnter | core::kExit);
  EXPECT_THAT(weight.fields, ::testing::StartsWith("grad[arrays.Array(2) max 2;]signs[arrays.Array(1)"));
  EXPECT_EQ(records.at("Parameter.fc.bias.parameters_grad.0").ordinal, 2);
  EXPECT_THAT(Payloads(), UnorderedElementsAre(ElementsAre(0b11), ElementsAre(0b11001001, 0b1)));
}

TEST_F(GradientProbeTest, CountsIntervalsAtLevelTwo) {
  OpenAt(Level::kL2);
  Look({{.parameter = "fc.bias", .tensor = TensorRef{&mixed_}}});
  EXPECT_THAT(Records().at("Parameter.fc.bias.parameters_grad.0").fields, ::testing::HasSubstr("intervals["));
  const auto count = [](int number) { return std::vector<int>{number, 0, 0, 0, 0, 0, 0, 0}; };
  std::vector<int> counts;
  for (const int each : {2, 1, 2, 4, 1}) {  // (-inf, -1], (-1, 0], (0, 1], (1, inf), =0
    const std::vector<int> bytes = count(each);
    counts.insert(counts.end(), bytes.begin(), bytes.end());
  }
  EXPECT_THAT(Payloads(), ::testing::Contains(counts));
}

TEST_F(GradientProbeTest, HasAChecksumAndNoBytesAtLevelNought) {
  OpenAt(Level::kL0);
  Look({{.parameter = "fc.weight", .tensor = TensorRef{&ones_}}});
  EXPECT_EQ(Records().at("Parameter.fc.weight.parameters_grad.0").fields, "grad[arrays.Array(3) max 1;]");
  EXPECT_TRUE(Payloads().empty());
  const int64_t size = 3, stride = 1;
  const uint32_t crc32 = stats::Crc32({.data = ones_.values.data(),
                                       .dtype = stats::DType::kFloat32,
                                       .sizes = std::span(&size, 1),
                                       .strides = std::span(&stride, 1)});
  bool found = false;
  for (const v1::Batch& batch : fake_.batches()) {
    for (const v1::Item& item : batch.items()) {
      for (const uint32_t told : item.block().crc32()) found |= told == crc32;
    }
  }
  EXPECT_TRUE(found);
}

TEST_F(GradientProbeTest, ABrokenGradientLeavesTheOthers) {
  OpenAt(Level::kL1);
  const Array broken{.values = {1}, .is_broken = true};
  Look({{.parameter = "a", .tensor = TensorRef{&broken}}, {.parameter = "b", .tensor = TensorRef{&ones_}}});
  EXPECT_EQ(Records().count("Parameter.b.parameters_grad.0"), 1);
  EXPECT_EQ(session_->counters().faults, 1);
}

}  // namespace
}  // namespace msprobe::capture
