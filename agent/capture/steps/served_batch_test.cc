#include "agent/capture/steps/served_batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <tuple>

#include "agent/core/session_fixture.h"

namespace msprobe::capture {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// (pass, request, first position, last position, first row, whether it was counted)
using Span = std::tuple<uint32_t, std::string, uint64_t, uint64_t, uint64_t, bool>;

class ServedBatchTest : public core::SessionTest {
 protected:
  ServedBatchTest() {
    fake_.Start();
    Open();
  }

  std::vector<Span> Noted() {
    session_->EndStep(0);
    EXPECT_TRUE(session_->Wait(absl::Seconds(20)).ok());
    std::vector<Span> spans;
    for (const v1::Marker& marker : core::Markers(fake_.batches())) {
      if (!marker.has_token_span()) continue;
      const v1::Marker::TokenSpan& span = marker.token_span();
      spans.emplace_back(span.token(), span.request(), span.first_position(), span.last_position(), span.first_row(),
                         span.counted());
    }
    return spans;
  }

  // A microbatch on a device: rows `begin` and on of a batch of `capacity`.
  static Positions Microbatch(int64_t size, int64_t begin, int64_t capacity) {
    return {.size = size, .place = Positions::Place{.begin = begin, .capacity = capacity}};
  }

  ServedBatch batch_;
};

TEST_F(ServedBatchTest, CountsPositionsThatNobodyGave) {
  batch_.Set({{"a", 3}, {"b", 1}});
  batch_.NotePass(*session_, 0, 0, nullptr);
  batch_.Set({{"b", 1}, {"a", 1}});
  batch_.NotePass(*session_, 0, 1, nullptr);
  EXPECT_THAT(Noted(), ElementsAre(Span(0, "a", 0, 2, 0, true), Span(0, "b", 0, 0, 3, true),
                                   Span(1, "b", 1, 1, 0, true), Span(1, "a", 3, 3, 1, true)));
}

TEST_F(ServedBatchTest, ReadsPositionsInHostMemory) {
  const std::array<int64_t, 5> positions = {7, 8, 9, 40, 0};  // padded
  batch_.Set({{"a", 3}, {"b", 1}});
  const Positions wide{.size = 5, .host = positions.data()};
  batch_.NotePass(*session_, 0, 0, &wide);
  const std::array<int32_t, 8> spread = {1, 0, 2, 0, 3, 0, -1, 0};
  const Positions narrow{.size = 4, .host = spread.data(), .stride = 2, .is_wide = false};
  batch_.NotePass(*session_, 0, 1, &narrow);
  EXPECT_THAT(Noted(), ElementsAre(Span(0, "a", 7, 9, 0, false), Span(0, "b", 40, 40, 3, false),
                                   Span(1, "a", 1, 3, 0, false), Span(1, "b", 0, 0, 3, false)));
}

TEST_F(ServedBatchTest, FindsTheRowsOfAMicrobatchByItsPlaceInTheBatch) {
  batch_.Set({{"a", 3}, {"b", 2}});
  const Positions second = Microbatch(3, 2, 5), first = Microbatch(2, 0, 5);
  batch_.NotePass(*session_, 0, 0, &second);
  batch_.NotePass(*session_, 0, 1, &first);
  EXPECT_THAT(Noted(),
              ElementsAre(Span(0, "a", 2, 2, 0, true), Span(0, "b", 0, 1, 1, true), Span(1, "a", 0, 1, 0, true)));
}

TEST_F(ServedBatchTest, NotesNothingWhereRowsAreNotKnown) {
  batch_.Set({{"a", 4}});
  const Positions elsewhere{.size = 2}, small = Microbatch(2, 0, 3), first = Microbatch(2, 0, 4);
  batch_.NotePass(*session_, 0, 0, &elsewhere);
  batch_.NotePass(*session_, 0, 1, &small);
  batch_.NotePass(*session_, 0, 2, &first);
  batch_.NotePass(*session_, 0, 3, &first);  // these rows were another microbatch's
  EXPECT_THAT(Noted(), ElementsAre(Span(2, "a", 0, 1, 0, true)));
}

TEST_F(ServedBatchTest, NotesNothingWithoutRequests) {
  batch_.NotePass(*session_, 0, 0, nullptr);
  EXPECT_THAT(Noted(), IsEmpty());
}

}  // namespace
}  // namespace msprobe::capture
