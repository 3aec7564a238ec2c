#include "agent/core/transport/awaited_exports.h"

#include <optional>
#include <string>
#include <vector>

#include "agent/core/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace msprobe::core {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

v1::Marker StepEnd(uint32_t step) {
  v1::Marker marker;
  marker.mutable_step_end()->set_step(step);
  return marker;
}

v1::Marker ExportOpenStep(uint32_t step) {
  v1::Marker marker;
  marker.mutable_export_open_step()->set_step(step);
  return marker;
}

v1::StepExported At(uint32_t step, const std::string& path) {
  v1::StepExported exported;
  exported.set_step(step);
  exported.set_path(path);
  return exported;
}

class AwaitedExportsTest : public ::testing::Test {
 protected:
  AwaitedExportsTest() { exports_.Welcomed(true, {}, 0); }

  // Each entry is a batch of its own.
  void Packed(const v1::Marker& marker, std::optional<uint32_t> open_step, uint64_t entry) {
    exports_.Packed(marker, open_step, {.entry = entry, .batch = entry});
  }

  std::vector<uint32_t> InHello() const {
    v1::Hello hello;
    hello.add_awaited_exports(99);  // of an earlier stream
    exports_.AddTo(&hello);
    return {hello.awaited_exports().begin(), hello.awaited_exports().end()};
  }

  std::vector<std::string> lines_;
  const Log log_{[this](Log::Severity, std::string_view text) { lines_.emplace_back(text); }};
  AwaitedExports exports_{&log_};
};

TEST_F(AwaitedExportsTest, AStepThatEndedIsAwaitedUntilItsFilesAreReported) {
  Packed(StepEnd(3), 3, 10);
  Packed(StepEnd(4), 4, 20);
  EXPECT_THAT(exports_.Missing(9), IsEmpty()) << "whoever waits for earlier entries does not wait for the step";
  EXPECT_THAT(exports_.Missing(10), ElementsAre(3));
  EXPECT_THAT(exports_.Missing(20), ElementsAre(3, 4));
  EXPECT_THAT(InHello(), ElementsAre(3, 4));
  exports_.Exported(At(3, "/dump/step3"));
  exports_.Exported(At(3, "/dump/step3"));
  EXPECT_THAT(exports_.Missing(20), ElementsAre(4));
  exports_.Exported(At(4, ""));
  EXPECT_THAT(exports_.Missing(20), IsEmpty());
  EXPECT_THAT(lines_, ElementsAre("dump.json is at /dump/step3. ")) << "of a step without files nothing is said";
}

TEST_F(AwaitedExportsTest, OfAServerThatDoesNotExportNothingIsKept) {
  AwaitedExports exports(&log_);
  exports.Packed(StepEnd(1), 1, {.entry = 1, .batch = 1});  // before it is known
  exports.Welcomed(false, {}, 1);
  for (uint32_t step = 2; step < 5; ++step) exports.Packed(StepEnd(step), step, {.entry = step, .batch = step});
  v1::Hello hello;
  exports.AddTo(&hello);
  EXPECT_THAT(hello.awaited_exports(), IsEmpty());
  EXPECT_FALSE(exports.any());
  EXPECT_THAT(exports.ServerLost(0, 4), IsEmpty());
}

TEST_F(AwaitedExportsTest, TheDirectoryOfGradientsIsSaidOnce) {
  for (uint32_t step = 0; step < 4; ++step) {
    Packed(StepEnd(step), step, step);
    exports_.Exported(At(step, Cat(step < 3 ? "/dump" : "/other", "/rank0/grad_summary_", step, ".csv")));
  }
  EXPECT_THAT(lines_, ElementsAre("gradients are in /dump/rank0. ", "gradients are in /other/rank0. "));
}

TEST_F(AwaitedExportsTest, AStepWithoutRecordsIsNotAwaited) {
  Packed(StepEnd(3), std::nullopt, 10);
  Packed(ExportOpenStep(4), 5, 11);
  EXPECT_THAT(exports_.Missing(20), IsEmpty());
}

TEST_F(AwaitedExportsTest, ASessionThatEndsCleanlyEndsItsOpenStep) {
  v1::Marker end;
  end.mutable_session_end()->set_clean(false);
  Packed(end, 3, 10);
  EXPECT_THAT(exports_.Missing(10), IsEmpty());
  end.mutable_session_end()->set_clean(true);
  Packed(end, 3, 11);
  EXPECT_THAT(exports_.Missing(11), ElementsAre(3));
}

TEST_F(AwaitedExportsTest, WhatAnOpenStepHoldsIsExportedWithoutEndingTheStep) {
  Packed(ExportOpenStep(3), 3, 10);
  EXPECT_THAT(InHello(), IsEmpty());
  v1::StepExported part = At(3, "/dump/step3");
  part.set_incomplete(true);
  Packed(StepEnd(3), 3, 20);
  exports_.Exported(part);
  EXPECT_THAT(exports_.Missing(20), ElementsAre(3)) << "those files are from before the end of the step";
  exports_.Exported(At(3, "/dump/step3"));
  EXPECT_THAT(exports_.Missing(20), IsEmpty());
}

TEST_F(AwaitedExportsTest, AnExportThatFailedIsSaidAndNotAwaited) {
  Packed(StepEnd(3), 3, 10);
  v1::StepExported failed;
  failed.set_step(3);
  failed.set_error("the disk is full");
  exports_.Exported(failed);
  EXPECT_THAT(exports_.Missing(10), IsEmpty());
  EXPECT_THAT(lines_, ElementsAre("msprobe: step 3 could not be exported: the disk is full"));
}

TEST_F(AwaitedExportsTest, WhatTheServerLostIsNotAwaitedAndIsKnownUntilItIsForgotten) {
  for (uint32_t step = 1; step <= 4; ++step) Packed(StepEnd(step), step, 10 * uint64_t{step});
  EXPECT_THAT(exports_.ServerLost(10, 30), ElementsAre(2, 3)) << "1 is there, and 4 is on its way";
  exports_.Welcomed(true, {}, 10);
  EXPECT_THAT(InHello(), ElementsAre(1, 4));
  EXPECT_THAT(exports_.Missing(40), ElementsAre(1, 4));
  exports_.Exported(At(1, "/dump/step1"));
  exports_.Exported(At(4, "/dump/step4"));
  EXPECT_FALSE(exports_.any()) << "there is no cause to connect any more";
  EXPECT_THAT(exports_.Lost(19), IsEmpty());
  EXPECT_THAT(exports_.Lost(20), ElementsAre(2));
  EXPECT_THAT(exports_.Lost(40), ElementsAre(2, 3));
  exports_.ForgetLost(20);
  EXPECT_THAT(exports_.Lost(40), ElementsAre(3));
}

TEST_F(AwaitedExportsTest, AStepThatGoesOnAfterALossIsAwaitedAgain) {
  Packed(ExportOpenStep(3), 3, 10);
  EXPECT_THAT(exports_.ServerLost(0, 10), ElementsAre(3));
  EXPECT_FALSE(exports_.any());
  Packed(StepEnd(3), 3, 20);
  EXPECT_THAT(exports_.Missing(20), ElementsAre(3));
  EXPECT_THAT(exports_.Lost(20), IsEmpty()) << "its end is exported";
}

TEST_F(AwaitedExportsTest, AServerThatDoesNotExportLosesNoFiles) {
  exports_.Welcomed(false, {}, 0);
  Packed(StepEnd(3), 3, 10);
  EXPECT_THAT(exports_.ServerLost(0, 10), IsEmpty());
  EXPECT_THAT(exports_.Lost(10), IsEmpty());
  EXPECT_THAT(InHello(), IsEmpty());
}

TEST_F(AwaitedExportsTest, OfALeftSessionWhatTheNextServerDoesNotNameIsLost) {
  exports_.AskServer();
  exports_.Welcomed(true, {2, 3}, 7);
  EXPECT_THAT(exports_.ServerLost(0, 7), ElementsAre(2, 3));
  exports_.Welcomed(true, {3}, 0);
  EXPECT_THAT(exports_.Missing(0), ElementsAre(3));
  EXPECT_THAT(exports_.Lost(0), ElementsAre(2));
}

TEST_F(AwaitedExportsTest, NothingIsAwaitedOfAServerThatDoesNotExport) {
  exports_.Welcomed(false, {}, 0);
  Packed(StepEnd(3), 3, 10);
  EXPECT_THAT(exports_.Missing(10), IsEmpty());
}

TEST_F(AwaitedExportsTest, OfALeftSessionThoseInItsBatchesAreAwaited) {
  v1::Batch batch;
  batch.add_items()->mutable_block()->set_step(3);
  *batch.add_items()->mutable_marker() = StepEnd(3);
  *batch.add_items()->mutable_marker() = StepEnd(4);  // which has no record
  batch.add_items()->mutable_block()->set_step(5);
  EXPECT_EQ(exports_.Held(batch, std::nullopt), 5);
  EXPECT_THAT(exports_.Missing(0), ElementsAre(3));
  v1::Batch next;
  *next.add_items()->mutable_marker() = StepEnd(5);
  EXPECT_EQ(exports_.Held(next, 5), std::nullopt);
  EXPECT_THAT(exports_.Missing(0), ElementsAre(3, 5));
}

TEST_F(AwaitedExportsTest, OfALeftSessionTheServerSaysWhetherAStepThatOnlyEndsHereHasRecords) {
  exports_.AskServer();
  v1::Batch batch;
  *batch.add_items()->mutable_marker() = StepEnd(3);  // its records were freed
  *batch.add_items()->mutable_marker() = StepEnd(4);  // it has none
  EXPECT_EQ(exports_.Held(batch, std::nullopt), std::nullopt);
  EXPECT_THAT(InHello(), ElementsAre(3, 4));
  exports_.Welcomed(true, {2, 3}, 0);
  EXPECT_THAT(exports_.Missing(0), ElementsAre(2, 3));
  Packed(StepEnd(5), std::nullopt, 10);
  EXPECT_THAT(exports_.Missing(10), ElementsAre(2, 3)) << "from now on it is known what is open";
}

TEST_F(AwaitedExportsTest, OfALeftSessionTheServerNamesThem) {
  EXPECT_FALSE(exports_.unknown());
  exports_.AskServer();
  EXPECT_TRUE(exports_.unknown());
  Packed(StepEnd(7), 7, 10);
  exports_.Welcomed(true, {5, 7}, 0);
  EXPECT_FALSE(exports_.unknown());
  EXPECT_THAT(exports_.Missing(0), ElementsAre(5)) << "and 7 when its marker is durable";
  EXPECT_THAT(exports_.Missing(10), ElementsAre(5, 7));
  v1::StepExported cut_short = At(5, "/dump/step5");
  cut_short.set_incomplete(true);
  exports_.Exported(cut_short);
  EXPECT_THAT(exports_.Missing(10), ElementsAre(7));
}

}  // namespace
}  // namespace msprobe::core
