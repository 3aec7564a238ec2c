#include "agent/capture/faults.h"

#include "agent/capture/recorder_fixture.h"

namespace msprobe::capture {
namespace {

using ::testing::ElementsAre;

class FaultsTest : public RecorderTest {
 protected:
  std::vector<std::string> Reported() {
    EXPECT_TRUE(session_->Wait(absl::Seconds(20)).ok());
    std::vector<std::string> faults;
    for (const v1::Marker& marker : core::Markers(fake_.batches())) {
      if (marker.has_fault()) faults.push_back(marker.fault().where() + ": " + marker.fault().message());
    }
    return faults;
  }
};

TEST_F(FaultsTest, CountsWhatTheSourceThrowsAsAFaultOfTheRecord) {
  Open();
  const Array broken{.values = {1}, .is_broken = true};
  Sum({&broken});
  Sum({&ones_});
  EXPECT_EQ(Records().at("Array.sum.1.forward").fields,
            "input_args[arrays.Array(3) max 1;]output[arrays.Array(1) max 3;]");
  EXPECT_THAT(Reported(), ElementsAre("Array.sum.0.forward: the array is broken"));
}

TEST_F(FaultsTest, ContainsWhatIsNoException) {
  Open();
  OpenRecord nameless;
  recorder_->faults().Contain(nameless, [] { throw 1; });
  recorder_->faults().Contain(nameless, [] {});
  recorder_->EndStep(0, true);
  EXPECT_THAT(Reported(), ElementsAre(": unknown exception"));
}

}  // namespace
}  // namespace msprobe::capture
