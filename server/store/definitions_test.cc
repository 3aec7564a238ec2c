#include "server/store/definitions.h"

#include <gtest/gtest.h>

#include "server/store/store_fixture.h"

namespace msprobe::server {
namespace {

class DefinitionsTest : public StoreTest {
 protected:
  void SetUp() override {
    StoreTest::SetUp();
    v1::Structure structure;
    structure.set_kind(v1::RECORD_API);
    structure.set_name("Torch.add");
    v1::Stack stack;
    stack.add_frames()->set_path("inner.py");
    stack.add_frames()->set_path("outer.py");
    ChangeSet changes;
    changes.Put(Family::kMeta, DefinitionKey(1, 7),
                EncodeDefinition(DefinitionKind::kStructure, structure.SerializeAsString()));
    changes.Put(Family::kMeta, DefinitionKey(1, 8),
                EncodeDefinition(DefinitionKind::kStack, stack.SerializeAsString()));
    ASSERT_TRUE(store_->database().Write(changes).ok());
  }
};

TEST_F(DefinitionsTest, AreReadBackAsWhatTheyAre) {
  const auto structure = store_->definitions().Structure(1, 7);
  ASSERT_TRUE(structure.ok()) << structure.status();
  EXPECT_EQ((*structure)->summary.name, "Torch.add");
  const auto frames = store_->definitions().Stack(1, 8);
  ASSERT_TRUE(frames.ok()) << frames.status();
  ASSERT_EQ(frames->size(), 2u);
  EXPECT_EQ(frames->front().path(), "inner.py");
}

TEST_F(DefinitionsTest, OneOfAnotherKindOrAnotherRunIsAnError) {
  EXPECT_TRUE(absl::IsDataLoss(store_->definitions().Structure(1, 8).status()));
  EXPECT_TRUE(absl::IsDataLoss(store_->definitions().Stack(1, 7).status()));
  EXPECT_TRUE(absl::IsNotFound(store_->definitions().Structure(2, 7).status()));
  EXPECT_TRUE(absl::IsNotFound(store_->definitions().Find(1, 9).status()));
}

}  // namespace
}  // namespace msprobe::server
