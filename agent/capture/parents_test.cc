#include "agent/capture/parents.h"

#include "agent/core/session_fixture.h"

namespace msprobe::capture {
namespace {

constexpr core::RecordKind kApi = core::RecordKind::kApi, kModule = core::RecordKind::kModule;

class ParentsTest : public core::SessionTest {
 protected:
  ParentsTest() { Open(); }

  static OpenRecord Module(const std::string& name) {
    OpenRecord record;
    record.kind = kModule;
    record.name = std::make_shared<const std::string>(name);
    return record;
  }

  ThreadState thread_{0};
  OpenRecord outer_ = Module("Module.outer"), inner_ = Module("Module.inner");
};

TEST_F(ParentsTest, TheInnermostOpenModuleIsTheParent) {
  Parents parents(session_.get());
  EXPECT_EQ(parents.Of(kApi, thread_), 0u);
  parents.Push(thread_, nullptr, outer_);
  parents.Push(thread_, nullptr, inner_);
  EXPECT_EQ(inner_.self, session_->DefineParent("Module.inner.forward.0"));
  EXPECT_EQ(parents.Of(kApi, thread_), inner_.self);
  EXPECT_EQ(parents.Of(kModule, thread_), inner_.self);
  parents.Pop(thread_, inner_);
  EXPECT_EQ(parents.Of(kApi, thread_), outer_.self);
}

TEST_F(ParentsTest, AModuleMayEndBeforeOneInsideIt) {
  Parents parents(session_.get());
  parents.Push(thread_, nullptr, outer_);
  parents.Push(thread_, nullptr, inner_);
  parents.Pop(thread_, outer_);
  EXPECT_EQ(parents.Of(kApi, thread_), inner_.self);
  parents.Pop(thread_, inner_);
  EXPECT_EQ(parents.Of(kApi, thread_), 0u);
}

TEST_F(ParentsTest, APhaseIsTheParentOfApisAlone) {
  Parents parents(session_.get());
  parents.Push(thread_, nullptr, outer_);
  parents.SetPhase("optimizer");
  EXPECT_EQ(parents.Of(kApi, thread_), session_->DefineParent("optimizer"));
  EXPECT_EQ(parents.Of(kModule, thread_), outer_.self);
  parents.SetPhase("");
  EXPECT_EQ(parents.Of(kApi, thread_), outer_.self);
}

TEST_F(ParentsTest, OtherThreadsAndLaterRecordersSeeNoneOfIt) {
  Parents parents(session_.get());
  parents.Push(thread_, nullptr, outer_);
  EXPECT_EQ(parents.Of(kApi, ThreadState(1)), 0u);
  Parents later(session_.get());
  EXPECT_EQ(later.Of(kApi, thread_), 0u);
  later.Push(thread_, nullptr, inner_);
  later.Pop(thread_, inner_);
  EXPECT_EQ(later.Of(kApi, thread_), 0u);
}

}  // namespace
}  // namespace msprobe::capture
