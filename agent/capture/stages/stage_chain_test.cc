#include "agent/capture/stages/stage_chain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <functional>

// The interpreter of this test has one kind of object: a number.
struct _object {
  double value;
};

namespace msprobe::capture {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Place = StageChain::Place;

class StageChainTest : public ::testing::Test {
 protected:
  StageChainTest() {
    record_.name = std::make_shared<const std::string>("Number.square");
    record_.count = 1;
  }

  PyObject* Number(double value) { return &objects_.emplace_back(PyObject{value}); }

  // A stage that does `run` with the calls of one record, or of all.
  class Stage final : public CallStage {
   public:
    using Does = std::function<PyObject*(PyObject* argument, RestOfCall rest)>;
    explicit Stage(Does does, std::string only = {}) : does_(std::move(does)), only_(std::move(only)) {}
    bool Touches(const OpenRecord& record) const override { return only_.empty() || only_ == record.FullName(); }
    PyObject* Run(const OpenRecord&, PyObject* arguments, PyObject*, RestOfCall rest) override {
      return does_(arguments, rest);
    }

   private:
    const Does does_;
    const std::string only_;
  };
  void Set(std::string_view name, Place place, Stage::Does does, std::string only = {}) {
    chain_.Set(name, place, std::make_shared<Stage>(std::move(does), std::move(only)));
  }
  Stage::Does Doubling() {
    return [this](PyObject* argument, RestOfCall rest) { return rest(Number(argument->value * 2), nullptr); };
  }

  // Calls the function, x * x, through the chain.
  double Square(double x) {
    PyObject* result = chain_.Run(
        record_, Number(x), nullptr,
        [&](PyObject* argument, PyObject* keywords, RestOfCall rest) {
          recorded_.push_back(argument->value);
          PyObject* given = rest(argument, keywords);
          if (given != nullptr) recorded_.push_back(given->value);
          return given;
        },
        [&](PyObject* argument, PyObject*) {
          ++runs_;
          return argument->value < 0 ? nullptr : Number(argument->value * argument->value);
        });
    return result == nullptr ? -1 : result->value;
  }

  OpenRecord record_;
  StageChain chain_;
  std::deque<PyObject> objects_;
  std::vector<double> recorded_;  // what the observer saw: arguments and results
  int runs_ = 0;                  // of the function
};

TEST_F(StageChainTest, ByDefaultTheObserverStandsAlone) {
  EXPECT_FALSE(chain_.Touches(record_));
  EXPECT_EQ(Square(3), 9);
  EXPECT_THAT(recorded_, ElementsAre(3, 9));
}

TEST_F(StageChainTest, AStageBeforeTheObserverDoublesTheInputThatIsRecorded) {
  Set("double", Place::kBeforeObserver, Doubling());
  EXPECT_TRUE(chain_.Touches(record_));
  EXPECT_EQ(Square(3), 36);
  EXPECT_THAT(recorded_, ElementsAre(6, 36));
}

TEST_F(StageChainTest, AStageBehindTheObserverDoublesTheInputUnseen) {
  Set("double", Place::kBehindObserver, Doubling());
  EXPECT_EQ(Square(3), 36);
  EXPECT_THAT(recorded_, ElementsAre(3, 36));
}

TEST_F(StageChainTest, AStageReplacesTheOutput) {
  const Stage::Does ignore = [this](PyObject* argument, RestOfCall rest) {
    rest(argument, nullptr);
    return Number(0.5);
  };
  Set("zero", Place::kBeforeObserver, ignore);
  EXPECT_EQ(Square(3), 0.5);
  EXPECT_THAT(recorded_, ElementsAre(3, 9));
  recorded_.clear();
  Set("zero", Place::kBehindObserver, ignore);
  EXPECT_EQ(Square(3), 0.5);
  EXPECT_THAT(recorded_, ElementsAre(3, 0.5));
}

TEST_F(StageChainTest, ACallThatIsRunAgainIsRecordedOnce) {
  Set("twice", Place::kBeforeObserver, [this](PyObject* argument, RestOfCall rest) {
    const double first = rest(argument, nullptr)->value;
    return Number(first + rest(Number(argument->value + 1), nullptr)->value);
  });
  EXPECT_EQ(Square(3), 9 + 16);
  EXPECT_EQ(runs_, 2);
  EXPECT_THAT(recorded_, ElementsAre(3, 9));
}

TEST_F(StageChainTest, AStageAnswersByItself) {
  Set("answer", Place::kBeforeObserver, [this](PyObject*, RestOfCall) { return Number(7); });
  EXPECT_EQ(Square(3), 7);
  EXPECT_EQ(runs_, 0);
  EXPECT_THAT(recorded_, IsEmpty());
}

TEST_F(StageChainTest, StagesRunInTheOrderInWhichTheyWereSet) {
  Set("inner", Place::kBehindObserver, Doubling());
  Set("double", Place::kBeforeObserver, Doubling());
  Set("add", Place::kBeforeObserver,
      [this](PyObject* argument, RestOfCall rest) { return rest(Number(argument->value + 1), nullptr); });
  EXPECT_EQ(Square(3), 14 * 14);
  EXPECT_THAT(recorded_, ElementsAre(7, 14 * 14));
}

TEST_F(StageChainTest, AStageIsLeftOutOfTheCallsThatItDoesNotTouch) {
  Set("double", Place::kBeforeObserver, Doubling(), "Number.square.0.forward");
  EXPECT_FALSE(chain_.Touches(record_));
  EXPECT_EQ(Square(3), 9);
  record_.count = 0;
  EXPECT_TRUE(chain_.Touches(record_));
  EXPECT_EQ(Square(3), 36);
}

TEST_F(StageChainTest, AStageIsReplacedAndTakenOutByItsName) {
  Set("double", Place::kBeforeObserver, Doubling());
  Set("add", Place::kBeforeObserver,
      [this](PyObject* argument, RestOfCall rest) { return rest(Number(argument->value + 1), nullptr); });
  Set("double", Place::kBeforeObserver,
      [this](PyObject* argument, RestOfCall rest) { return rest(Number(argument->value * 3), nullptr); });
  EXPECT_EQ(Square(3), 100);
  chain_.Set("double", Place::kBeforeObserver, nullptr);
  EXPECT_EQ(Square(3), 16);
  chain_.Set("add", Place::kBeforeObserver, nullptr);
  EXPECT_FALSE(chain_.Touches(record_));
}

TEST_F(StageChainTest, AnErrorOfTheFunctionGoesOnToTheCaller) {
  Set("double", Place::kBeforeObserver, Doubling());
  EXPECT_EQ(Square(-1), -1);
  EXPECT_THAT(recorded_, ElementsAre(-2));
}

}  // namespace
}  // namespace msprobe::capture
