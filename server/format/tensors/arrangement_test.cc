#include "server/format/tensors/arrangement.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "server/format/tensor_file/byte_source.h"

namespace msprobe::server {
namespace {

using Numbers = std::vector<uint16_t>;

Numbers Counted(size_t count) {
  Numbers numbers(count);
  for (size_t i = 0; i < count; ++i) numbers[i] = static_cast<uint16_t>(i + 1);  // 0 is the filling
  return numbers;
}

absl::StatusOr<std::pair<Numbers, std::vector<int64_t>>> Rearrange(const Numbers& numbers,
                                                                   const RearrangementRequest& request) {
  auto plan = PlanRearrangement(request);
  if (!plan.ok()) return plan.status();
  const std::string bytes(reinterpret_cast<const char*>(numbers.data()), numbers.size() * 2);
  MemoryBytes source(bytes);
  std::string out;
  absl::Status status = ReadRearranged(*plan, source, 0, 2, [&](std::string_view chunk) {
    out += chunk;
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  Numbers made(out.size() / 2);
  if (!out.empty()) std::memcpy(made.data(), out.data(), out.size());
  return std::pair(made, plan->to.shape);
}

TEST(ArrangementTest, AMatrixInBlocks) {
  // 3 rows and 5 columns, blocks of 4: K1 = 2, R1 = 1, R0 = 16.
  const Numbers matrix = Counted(15);
  auto blocks = Rearrange(matrix, {.from = "ND", .to = "NZ", .stored_shape = {3, 5}, .sizes = {}, .block = 4});
  ASSERT_TRUE(blocks.ok()) << blocks.status();
  EXPECT_EQ(blocks->second, (std::vector<int64_t>{2, 1, 16, 4}));
  for (size_t row = 0; row < 16; ++row) {
    for (size_t column = 0; column < 8; ++column) {
      const uint16_t expected = row < 3 && column < 5 ? matrix[row * 5 + column] : 0;
      EXPECT_EQ(blocks->first[column / 4 * 64 + row * 4 + column % 4], expected) << row << " " << column;
    }
  }
}

TEST(ArrangementTest, WeightsOfAConvolution) {
  // N 3, C 18, H 2, W 5 in blocks of 16.
  const Numbers weights = Counted(3 * 18 * 2 * 5);
  auto made = Rearrange(weights, {.from = "NCHW", .to = "FRACTAL_Z", .stored_shape = {3, 18, 2, 5}, .sizes = {}});
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(made->second, (std::vector<int64_t>{20, 1, 16, 16}));
  size_t at = 0;
  for (size_t c1 = 0; c1 < 2; ++c1) {
    for (size_t h = 0; h < 2; ++h) {
      for (size_t w = 0; w < 5; ++w) {
        for (size_t n = 0; n < 16; ++n) {
          for (size_t c0 = 0; c0 < 16; ++c0) {
            const size_t c = c1 * 16 + c0;
            const uint16_t expected = n < 3 && c < 18 ? weights[((n * 18 + c) * 2 + h) * 5 + w] : 0;
            ASSERT_EQ(made->first[at++], expected);
          }
        }
      }
    }
  }
}

TEST(ArrangementTest, ThereAndBack) {
  struct Case {
    std::string_view host, device;
    std::vector<int64_t> shape;
  };
  for (const Case& each :
       {Case{"NCHW", "NC1HWC0", {2, 33, 3, 5}}, Case{"NHWC", "NC1HWC0", {2, 3, 5, 33}},
        Case{"HWCN", "FRACTAL_Z", {3, 2, 17, 18}}, Case{"NCDHW", "NDC1HWC0", {2, 7, 3, 2, 4}},
        Case{"DHWCN", "FRACTAL_Z_3D", {2, 3, 1, 17, 18}}, Case{"ND", "NZ", {40}}, Case{"ND", "NZ", {2, 3, 20, 37}},
        Case{"ND", "NC1HWC0", {1, 4, 2, 2}}, Case{"ND", "NZ", {0, 5}}}) {
    size_t count = 1;
    for (int64_t size : each.shape) count *= static_cast<size_t>(size);
    const Numbers numbers = Counted(count);
    auto there = Rearrange(numbers, {.from = each.host, .to = each.device, .stored_shape = each.shape, .sizes = {}});
    ASSERT_TRUE(there.ok()) << there.status();
    auto back = Rearrange(there->first,
                          {.from = each.device, .to = each.host, .stored_shape = there->second, .sizes = each.shape});
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(back->second, each.shape) << each.device;
    EXPECT_EQ(back->first, numbers) << each.device;
  }
}

TEST(ArrangementTest, WithoutSizesTheFillingStays) {
  auto made = Rearrange(Counted(2 * 16 * 16), {.from = "NZ", .to = "ND", .stored_shape = {2, 1, 16, 16}, .sizes = {}});
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(made->second, (std::vector<int64_t>{16, 32}));
}

TEST(ArrangementTest, Refusals) {
  const auto plan = [](const RearrangementRequest& request) { return PlanRearrangement(request).status(); };
  EXPECT_TRUE(absl::IsFailedPrecondition(
      plan({.from = "FRACTAL_Z", .to = "NCHW", .stored_shape = {20, 1, 16, 16}, .sizes = {}})));
  for (const RearrangementRequest& wrong :
       {RearrangementRequest{
            .from = "FRACTAL_Z", .to = "NCHW", .stored_shape = {20, 1, 16, 16}, .sizes = {3, 18, 2, 6}},
        RearrangementRequest{.from = "NC1HWC0", .to = "NZ", .stored_shape = {1, 1, 1, 1, 16}, .sizes = {}},
        RearrangementRequest{.from = "NC1HWC0", .to = "NCHW", .stored_shape = {1, 1, 16}, .sizes = {}},
        RearrangementRequest{.from = "NC1HWC0", .to = "NCHW", .stored_shape = {1, 1, 1, 1, 0}, .sizes = {}},
        RearrangementRequest{.from = "NZ", .to = "ND", .stored_shape = {16, 16}, .sizes = {}},
        RearrangementRequest{.from = "NZ", .to = "ND", .stored_shape = {1, 1, 16, 16}, .sizes = {16, 17}},
        RearrangementRequest{.from = "ND", .to = "NZ", .stored_shape = {16, 16}, .sizes = {}, .block = 1 << 20},
        RearrangementRequest{.from = "ND", .to = "NZ", .stored_shape = {int64_t{1} << 62, 1 << 20, 2, 2}, .sizes = {}},
        RearrangementRequest{.from = "ND", .to = "ND", .stored_shape = {2}, .sizes = {}},
        RearrangementRequest{.from = "NZZ", .to = "ND", .stored_shape = {2}, .sizes = {}}}) {
    EXPECT_TRUE(absl::IsInvalidArgument(plan(wrong))) << wrong.from << " " << wrong.to;
  }
}

TEST(ArrangementTest, AnyShapeInAnyFormatIsReadOrRefused) {
  std::mt19937 random(1);
  const char* const names[] = {"ND",        "NCHW",       "NHWC",     "HWCN",        "NC1HWC0",
                               "FRACTAL_Z", "FRACTAL_NZ", "NDC1HWC0", "FRACTAL_Z_3D"};
  const int64_t values[] = {0, 1, 2, 3, 16, 17, -1, int64_t{1} << 40, int64_t{1} << 62};
  const auto drawn = [&] {
    std::vector<int64_t> shape(random() % 7);
    for (int64_t& size : shape) size = values[random() % std::size(values)];
    return shape;
  };
  const std::string bytes(4096, 'x');
  for (int i = 0; i < 20000; ++i) {
    RearrangementRequest request{.from = names[random() % std::size(names)],
                                 .to = names[random() % std::size(names)],
                                 .stored_shape = drawn(),
                                 .sizes = random() % 2 ? drawn() : std::vector<int64_t>()};
    auto plan = PlanRearrangement(request);
    if (!plan.ok()) continue;
    MemoryBytes source(bytes);
    size_t seen = 0;
    ReadRearranged(*plan, source, 0, 2, [&](std::string_view chunk) {
      seen += chunk.size();
      return seen > (1 << 20) ? absl::ResourceExhaustedError("enough") : absl::OkStatus();
    }).IgnoreError();
  }
}

}  // namespace
}  // namespace msprobe::server
