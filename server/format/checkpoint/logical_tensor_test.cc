#include "server/format/checkpoint/logical_tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <numeric>

namespace msprobe::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A file of 0, 1, 2, ... as int32.
class LogicalTensorTest : public testing::Test {
 protected:
  LogicalTensorTest() : path_(testing::TempDir() + "/counted") {
    std::vector<int32_t> numbers(24);
    std::iota(numbers.begin(), numbers.end(), 0);
    std::ofstream(path_, std::ios::binary).write(reinterpret_cast<const char*>(numbers.data()), 96);
  }

  LogicalTensor Plain(std::vector<int64_t> shape, int64_t first) const {
    return PlainTensor(v1::DTYPE_INT32, std::move(shape), path_, static_cast<uint64_t>(first) * 4);
  }

  // Read `step` elements at a time.
  static std::vector<int32_t> Elements(const LogicalTensor& tensor, uint64_t step) {
    EXPECT_TRUE(CheckTensor(tensor).ok()) << CheckTensor(tensor);
    std::vector<int32_t> elements(tensor.elements());
    LogicalReader reader(tensor);
    for (uint64_t at = 0; at < elements.size(); at += step) {
      const uint64_t count = std::min<uint64_t>(step, elements.size() - at);
      EXPECT_TRUE(reader.Read(reinterpret_cast<char*>(&elements[at]), count).ok());
    }
    return elements;
  }

  const std::string path_;
};

TEST_F(LogicalTensorTest, JoinsPartsAlongEitherDimension) {
  for (uint64_t step : {1, 3, 100}) {
    EXPECT_THAT(Elements(*JoinTensors({Plain({1, 2}, 4), Plain({2, 2}, 0)}, 0), step), ElementsAre(4, 5, 0, 1, 2, 3));
    EXPECT_THAT(Elements(*JoinTensors({Plain({2, 1}, 8), Plain({2, 2}, 0)}, 1), step), ElementsAre(8, 0, 1, 9, 2, 3));
  }
}

TEST_F(LogicalTensorTest, SlicesWhatWasJoined) {
  const LogicalTensor joined = *JoinTensors({Plain({2, 2}, 0), Plain({2, 2}, 10)}, 1);  // 0 1 10 11, 2 3 12 13
  EXPECT_THAT(Elements(SliceTensor(joined, 1, 1, 3), 1), ElementsAre(1, 10, 3, 12));
  EXPECT_THAT(Elements(SliceTensor(joined, 0, 1, 2), 3), ElementsAre(2, 3, 12, 13));
}

TEST_F(LogicalTensorTest, ReadsATransposedPiece) {
  LogicalTensor transposed = Plain({3, 2}, 0);
  transposed.pieces[0].strides = {4, 12};
  for (uint64_t step : {1, 4, 100}) EXPECT_THAT(Elements(transposed, step), ElementsAre(0, 3, 1, 4, 2, 5));
}

TEST_F(LogicalTensorTest, RefusesHolesAndOverlaps) {
  LogicalTensor hole = Plain({2, 2}, 0);
  hole.pieces[0].shape = {1, 2};
  EXPECT_THAT(CheckTensor(hole).message(), HasSubstr("its pieces hold 2 of its 4 elements"));
  LogicalTensor overlap = hole;
  overlap.pieces.push_back(overlap.pieces[0]);
  EXPECT_THAT(CheckTensor(overlap).message(), HasSubstr("pieces 0 and 1 overlap"));
  LogicalTensor outside = Plain({2, 2}, 0);
  outside.pieces[0].begin = {1, 0};
  EXPECT_THAT(CheckTensor(outside).message(), HasSubstr("outside"));
}

TEST_F(LogicalTensorTest, SaysThatAFileEndsTooEarly) {
  const LogicalTensor beyond = Plain({8}, 20);
  std::vector<int32_t> elements(8);
  EXPECT_EQ(LogicalReader(beyond).Read(reinterpret_cast<char*>(elements.data()), 8).code(),
            absl::StatusCode::kOutOfRange);
}

TEST_F(LogicalTensorTest, ReadsNothingOfAnEmptyTensor) {
  const LogicalTensor empty = Plain({0, 3}, 0);
  EXPECT_THAT(Elements(empty, 1), ElementsAre());
  EXPECT_THAT(Elements(*JoinTensors({empty, Plain({1, 3}, 0)}, 0), 2), ElementsAre(0, 1, 2));
}

}  // namespace
}  // namespace msprobe::server
