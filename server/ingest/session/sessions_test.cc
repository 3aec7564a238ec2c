#include "server/ingest/session/sessions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "absl/time/clock.h"
#include "server/format/cat.h"
#include "server/ingest/scripted/scripted_agent.h"
#include "server/store/disk/scratch_directory.h"

namespace msprobe::server {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class Observed : public SessionObserver {
 public:
  void OnStepFinished(const std::string&, uint32_t step, v1::StepSummary::State state) override {
    Add("step " + std::to_string(step) + " " + v1::StepSummary::State_Name(state));
  }
  void OnExportRequested(const std::string&, uint32_t step) override { Add("export " + std::to_string(step)); }
  void OnExportAwaited(const std::string&, uint32_t step) override { Add("awaited " + std::to_string(step)); }
  void OnRankKnown(const std::string&, const v1::Rank& from, const v1::Rank& to) override {
    Add(RankName(from) + " is " + RankName(to));
  }
  void OnScalars(const std::string&, const std::vector<ScalarPoint>& points) override {
    for (const ScalarPoint& point : points) {
      Add(point.series + " " + std::to_string(point.step) + " " + std::to_string(point.value));
    }
  }
  std::vector<std::string> Take() {
    absl::MutexLock lock(&mu_);
    return std::exchange(events_, {});
  }

 private:
  void Add(std::string event) {
    absl::MutexLock lock(&mu_);
    events_.push_back(std::move(event));
  }
  absl::Mutex mu_;
  std::vector<std::string> events_ ABSL_GUARDED_BY(mu_);
};

Caller Named(const std::string& identity, bool is_admin = false) { return {identity, identity, is_admin}; }

class SessionsTest : public testing::Test {
 protected:
  void SetUp() override { Start(); }

  void Start() {
    StoreOptions options;
    options.directory = directory_ / "data";
    options.now = [this] { return now_; };
    auto store = Store::Open(options);
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    SessionsOptions sessions;
    sessions.check_process = [this](const v1::Hello&) {
      if (when_asked_) when_asked_();
      return process_;
    };
    sessions.capabilities = capabilities_;
    sessions_ = std::make_unique<Sessions>(store_.get(), &metrics_, &observed_, sessions);
    ASSERT_TRUE(sessions_->Recover().ok());
  }
  // As after kill -9 of the server: nothing in memory is kept. (Unsynced bytes of a killed process are in the system.)
  void Restart() {
    Settle();
    session_.reset();
    sessions_.reset();
    store_.reset();
    Start();
  }
  void Open(ScriptedAgent& agent) {
    session_.reset();
    auto session = sessions_->OpenSession(agent.hello());
    ASSERT_TRUE(session.ok()) << session.status();
    session_ = *session;
  }
  v1::PayloadVerdict Apply(const v1::Batch& batch) {
    auto verdict = session_->Apply(batch);
    EXPECT_TRUE(verdict.ok()) << verdict.status();
    return verdict.ok() ? *verdict : v1::PayloadVerdict();
  }
  // Everything applied is durable and everybody was told.
  void Settle() { ASSERT_TRUE(store_->database().AwaitDurable(absl::Seconds(20)).ok()); }
  std::vector<std::string> Events() {
    Settle();
    return observed_.Take();
  }
  std::vector<std::string> Names(uint32_t step, uint32_t rank = 0, bool process = false) {
    v1::Rank wanted;
    wanted.set_kind(process ? v1::Rank::PROCESS : v1::Rank::RANK);
    wanted.set_number(rank);
    auto reader = store_->steps().Open("run", step, wanted);
    if (!reader.ok()) return {std::string(reader.status().message())};
    std::vector<std::string> names;
    EXPECT_TRUE((*reader)
                    ->ForEachRecord([&](const v1::Record& record, uint64_t) {
                      names.push_back(record.full_name());
                      return absl::OkStatus();
                    })
                    .ok());
    return names;
  }
  // "loss 3=1.5 4=2", of the session with this epoch.
  std::vector<std::string> Scalars(uint32_t epoch = 0) {
    auto names = store_->scalars().ReadNames(1);
    EXPECT_TRUE(names.ok()) << names.status();
    std::vector<std::string> found;
    EXPECT_TRUE(store_->scalars()
                    .Read(1, epoch, *names, {},
                          [&](uint64_t id, const std::vector<SeriesPoint>& points) {
                            std::string text = names->at(id);
                            for (const SeriesPoint& point : points) text += Cat(" ", point.step, "=", point.value);
                            found.push_back(text);
                            return absl::OkStatus();
                          })
                    .ok());
    std::sort(found.begin(), found.end());
    return found;
  }
  std::vector<Steps::Step> AllSteps() {
    auto steps = store_->steps().Of(1);
    EXPECT_TRUE(steps.ok()) << steps.status();
    return steps.ok() ? *std::move(steps) : std::vector<Steps::Step>();
  }
  storage::StepRow StepRow(uint32_t step) {
    for (const auto& [key, row] : AllSteps()) {
      if (key.step == step) return row;
    }
    ADD_FAILURE() << "no step " << step;
    return {};
  }

  ScratchDirectory directory_;
  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1);
  ProcessState process_ = ProcessState::kUnknown;
  std::function<void()> when_asked_;  // of process_
  std::vector<std::string> capabilities_;
  Metrics metrics_;
  Observed observed_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<Sessions> sessions_;
  std::shared_ptr<Session> session_;
};

TEST_F(SessionsTest, StepIsCompleteWhenItsEndIsDurable) {
  ScriptedAgent agent("a");
  Open(agent);
  Apply(agent.Call(0, "add").Call(0, "mul").Take());
  EXPECT_THAT(Events(), IsEmpty());
  EXPECT_EQ(StepRow(0).state(), v1::StepSummary::OPEN);
  Apply(agent.StepEnd(0).Take());
  EXPECT_THAT(Events(), ElementsAre("step 0 COMPLETE"));
  EXPECT_THAT(Names(0), ElementsAre("Torch.add.0.forward", "Torch.mul.0.forward"));
  EXPECT_EQ(StepRow(0).records(), 2u);
  EXPECT_EQ(StepRow(0).tensors(), 4u);
  EXPECT_EQ(session_->received_through(), 2u);
  EXPECT_EQ(session_->durable_through(), 2u);
}

TEST_F(SessionsTest, StepsThatAHelloAwaitsArePassedOn) {
  ScriptedAgent agent("a");
  v1::Hello hello = agent.hello();
  hello.add_awaited_exports(2);
  hello.add_awaited_exports(5);
  ASSERT_TRUE(sessions_->OpenSession(hello).ok());
  EXPECT_THAT(Events(), ElementsAre("awaited 2", "awaited 5"));
}

TEST_F(SessionsTest, WhoeverSendsALeftSessionHearsOfEveryStepWhoseFilesAreToCome) {
  capabilities_ = {"export"};
  Restart();
  ScriptedAgent agent("a");
  Open(agent);
  const std::string hash = agent.CallWithPayload(0, "add", "01234567");
  Apply(agent.StepEnd(0).Take());  // it lacks the payload
  Apply(agent.Call(1, "mul").StepEnd(1).Take());
  Apply(agent.Call(2, "sub").Take());  // its end was left
  Apply(agent.Call(3, "div").Take());  // it has not ended
  Restart();
  v1::Hello left = agent.hello();
  left.add_capabilities("left");
  left.add_awaited_exports(2);
  left.add_awaited_exports(7);  // of which nothing was captured
  auto session = sessions_->OpenSession(left);
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_THAT((*session)->welcome().unexported_steps(), ElementsAre(0, 1, 2));
  EXPECT_THAT((*session)->welcome().missing_payloads(), ElementsAre(hash));
}

TEST_F(SessionsTest, DuplicateHasNoEffectAndGapIsRefused) {
  ScriptedAgent agent("a");
  Open(agent);
  const v1::Batch first = agent.Call(0, "add").Take();
  Apply(first);
  const uint64_t bytes = StepRow(0).row_bytes();
  EXPECT_EQ(Apply(first).ByteSizeLong(), 0u);
  EXPECT_EQ(StepRow(0).row_bytes(), bytes);
  agent.Call(0, "lost").Take();
  absl::Status status = session_->Apply(agent.Call(0, "third").Take()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(status.message()), HasSubstr("is 3, the next one is 2"));
  EXPECT_THAT(Names(0), ElementsAre("Torch.add.0.forward"));
  EXPECT_EQ(metrics_.Value(Metric::kIngestDuplicates), 1);
}

TEST_F(SessionsTest, AUserThatIsReplacedChangesNothingMoreAndItsSuccessorIsToldEverything) {
  ScriptedAgent agent("a");
  auto former = sessions_->OpenSession(agent.hello());
  ASSERT_TRUE(former.ok()) << former.status();
  const std::string hash = agent.CallWithPayload(0, "add", "01234567");
  ASSERT_TRUE((*former)->Apply(agent.Take()).ok());  // its answer is lost
  ASSERT_TRUE((*former)->AddPayload(ScriptedAgent::Chunk(hash, 0, "0123", false)).ok());
  Open(agent);
  EXPECT_EQ(session_->welcome().durable_through(), 1u);
  EXPECT_THAT(session_->welcome().missing_payloads(), ElementsAre(hash));
  // Were it taken from the former, who would be told that its payload is wanted?
  agent.CallWithPayload(0, "mul", "89abcdef");
  const v1::Batch second = agent.StepEnd(0).Take();
  EXPECT_EQ((*former)->Apply(second).status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ((*former)->AddPayload(ScriptedAgent::Chunk(hash, 4, "4567", true)).status().code(),
            absl::StatusCode::kAborted);
  EXPECT_EQ(session_->received_through(), 1u);
  EXPECT_EQ(Apply(second).wanted_size(), 1);
  ASSERT_TRUE(session_->AddPayload(ScriptedAgent::Chunk(hash, 0, "01234567", true)).ok());
  EXPECT_THAT(Names(0), ElementsAre("Torch.add.0.forward", "Torch.mul.0.forward"));
}

TEST_F(SessionsTest, EveryPrefixSurvivesARestartWithoutHoleOrDuplicate) {
  ScriptedAgent agent("a");
  std::vector<v1::Batch> batches;
  for (int i = 0; i < 12; ++i) batches.push_back(agent.Call(i / 4, "op" + std::to_string(i)).Take());
  size_t applied = 0;
  for (size_t stop : {3, 5, 6, 12}) {
    Open(agent);
    EXPECT_EQ(session_->welcome().durable_through(), applied);
    // An agent that does not know what arrived sends from the start.
    for (size_t i = 0; i < stop; ++i) Apply(batches[i]);
    applied = stop;
    Restart();
    uint64_t records = 0;
    for (const auto& [key, row] : AllSteps()) records += row.records();
    EXPECT_EQ(records, applied);
  }
  EXPECT_THAT(Names(2), ElementsAre("Torch.op8.0.forward", "Torch.op9.0.forward", "Torch.op10.0.forward",
                                    "Torch.op11.0.forward"));
}

TEST_F(SessionsTest, RecordsAreCountedOnceAcrossBatchesAndRestarts) {
  ScriptedAgent agent("a");
  Open(agent);
  Apply(agent.Enter(0, "add").Take());
  Restart();
  Open(agent);
  Apply(agent.Call(0, "add").Take());  // the ENTER again and its EXIT
  EXPECT_EQ(StepRow(0).records(), 1u);
}

struct Malformed {
  const char* name;
  std::function<void(v1::Batch&)> damage;
  const char* words;
};

class MalformedBatch : public SessionsTest, public testing::WithParamInterface<Malformed> {};

TEST_P(MalformedBatch, IsRefusedWhole) {
  ScriptedAgent agent("a");
  Open(agent);
  v1::Batch batch = agent.Call(0, "add").Take();
  GetParam().damage(batch);
  absl::Status status = session_->Apply(batch).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(GetParam().words));
  EXPECT_EQ(session_->received_through(), 0u);
  EXPECT_TRUE(store_->steps().Of(1)->empty()) << "nothing of it is stored";
  // The session goes on.
  ScriptedAgent again("a");
  Apply(again.Call(0, "add").Take());
  EXPECT_THAT(Names(0), ElementsAre("Torch.add.0.forward"));
}

INSTANTIATE_TEST_SUITE_P(
    Batches, MalformedBatch,
    testing::Values(
        Malformed{"OtherSession", [](v1::Batch& b) { b.set_session("x"); }, "the stream's session"},
        Malformed{"WrongId", [](v1::Batch& b) { b.mutable_definitions(0)->set_id(1); }, "the hash of its bytes"},
        Malformed{"Rubbish",
                  [](v1::Batch& b) {
                    b.mutable_definitions(0)->set_structure("\xff\xff");
                    b.mutable_definitions(0)->set_id(IdOf("\xff\xff"));
                  },
                  "definition 0: its bytes are not a Structure"},
        Malformed{"RubbishStack",
                  [](v1::Batch& b) {
                    b.mutable_definitions(0)->set_stack("\xff\xff");
                    b.mutable_definitions(0)->set_id(IdOf("\xff\xff"));
                  },
                  "not a Stack"},
        Malformed{"EmptyDefinition", [](v1::Batch& b) { b.mutable_definitions(0)->clear_structure(); }, "definition 0"},
        Malformed{"UnknownStructure", [](v1::Batch& b) { b.clear_definitions(); }, "was never defined"},
        Malformed{"EmptyItem", [](v1::Batch& b) { b.add_items(); }, "item 2: neither a block nor a marker"},
        Malformed{"EmptyMarker", [](v1::Batch& b) { b.add_items()->mutable_marker(); }, "marker of unknown kind"},
        Malformed{"WrongColumn", [](v1::Batch& b) { b.mutable_items(1)->mutable_block()->clear_narrow(); },
                  "item 1: column narrow"},
        Malformed{"LateBlock",
                  [](v1::Batch& b) {
                    b.add_items()->mutable_marker()->mutable_step_end()->set_step(0);
                    *b.add_items() = b.items(0);
                  },
                  "a block of step 0, which step_end has ended"},
        Malformed{"AfterEnd",
                  [](v1::Batch& b) {
                    b.add_items()->mutable_marker()->mutable_session_end()->set_clean(true);
                    *b.add_items() = b.items(0);
                  },
                  "item 3 comes after session_end"},
        Malformed{"RankTooLarge",
                  [](v1::Batch& b) {
                    b.add_items()->mutable_marker()->mutable_rank_known()->mutable_rank()->set_number(0x80000000u);
                  },
                  "rank_known.rank.number"}),
    [](const testing::TestParamInfo<Malformed>& info) { return info.param.name; });

TEST_F(SessionsTest, BlockOfAnEndedStepIsRefusedInALaterBatchToo) {
  ScriptedAgent agent("a");
  Open(agent);
  Apply(agent.Call(0, "add").StepEnd(0).Take());
  Restart();
  Open(agent);
  EXPECT_EQ(session_->Apply(agent.Call(0, "late").Take()).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(SessionsTest, HelloIsChecked) {
  auto refused = [&](const std::function<void(v1::Hello&)>& change) {
    ScriptedAgent agent("a");
    change(agent.hello());
    return sessions_->OpenSession(agent.hello()).status();
  };
  EXPECT_EQ(refused([](v1::Hello& h) { h.set_protocol(2); }).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused([](v1::Hello& h) { h.set_session("x"); }).message()), HasSubstr("hello.session"));
  EXPECT_THAT(std::string(refused([](v1::Hello& h) { h.clear_run(); }).message()), HasSubstr("hello.run"));
  EXPECT_THAT(std::string(refused([](v1::Hello& h) { h.mutable_rank()->set_number(0xffffffffu); }).message()),
              HasSubstr("hello.rank.number"));
  sessions_->Drain();
  EXPECT_EQ(refused([](v1::Hello&) {}).code(), absl::StatusCode::kUnavailable);
}

TEST_F(SessionsTest, AgentThatFreedMoreGoesOnFromThere) {
  ScriptedAgent agent("a");
  agent.hello().set_freed_through(7);
  Open(agent);
  EXPECT_EQ(session_->durable_through(), 7u);
  for (int i = 0; i < 7; ++i) agent.Take();
  Apply(agent.Call(3, "add").Take());
  EXPECT_THAT(Names(3), ElementsAre("Torch.add.0.forward"));
}

// Nothing else tells the agent that there is a gap, and that definitions are to be sent again.
TEST_F(SessionsTest, AWelcomeSaysWhatIsHeldUntilABatchFollowsTheGap) {
  ScriptedAgent agent("a");
  Open(agent);
  Apply(agent.Call(3, "add").Take());
  agent.hello().set_freed_through(4);
  for (int i = 1; i < 4; ++i) agent.Take();
  Open(agent);
  EXPECT_EQ(session_->welcome().durable_through(), 1u);
  Open(agent);
  EXPECT_EQ(session_->welcome().durable_through(), 1u) << "it may not have come";
  Restart();
  Open(agent);
  EXPECT_EQ(session_->welcome().durable_through(), 1u);
  EXPECT_EQ(session_->durable_through(), 4u);
  Apply(agent.Call(3, "mul").Take());
  Open(agent);
  EXPECT_EQ(session_->welcome().durable_through(), 5u);
  EXPECT_THAT(Names(3), ElementsAre("Torch.add.0.forward", "Torch.mul.0.forward"));
}

TEST_F(SessionsTest, PayloadCompletesItsStep) {
  ScriptedAgent agent("a");
  Open(agent);
  const std::string content = "0123456789abcdef";
  const std::string hash = agent.CallWithPayload(0, "add", content);
  const v1::PayloadVerdict verdict = Apply(agent.StepEnd(0).Take());
  EXPECT_THAT(verdict.wanted(), ElementsAre(hash));
  EXPECT_THAT(Events(), IsEmpty());
  EXPECT_EQ(StepRow(0).state(), v1::StepSummary::OPEN);
  EXPECT_EQ(session_->AddPayload(ScriptedAgent::Chunk(hash, 0, content.substr(0, 10), false))->stored_size(), 0);
  EXPECT_THAT(session_->AddPayload(ScriptedAgent::Chunk(hash, 10, content.substr(10), true))->stored(),
              ElementsAre(hash));
  EXPECT_THAT(Events(), ElementsAre("step 0 COMPLETE"));
  std::string read;
  ASSERT_TRUE(store_->payloads()
                  .Read(hash,
                        [&](std::string_view chunk) {
                          read += chunk;
                          return absl::OkStatus();
                        })
                  .ok());
  EXPECT_EQ(read, content);
  // Announced again: it is there.
  agent.CallWithPayload(1, "add", content);
  EXPECT_THAT(Apply(agent.Take()).stored(), ElementsAre(hash));
}

TEST_F(SessionsTest, PayloadsThatCameWholeAreStoredTogetherUpToOneThatIsNot) {
  ScriptedAgent agent("a");
  Open(agent);
  const std::vector<std::string> contents = {"zero", "one", "two", "three", "four"};
  std::vector<std::string> hashes;
  for (const std::string& content : contents) hashes.push_back(agent.CallWithPayload(0, "add", content));
  Apply(agent.StepEnd(0).Take());
  ASSERT_TRUE(session_->AddPayload(ScriptedAgent::Chunk(hashes[0], 0, "zero", true)).ok());
  ASSERT_TRUE(session_->AddPayload(ScriptedAgent::Chunk(hashes[3], 0, "th", false)).ok());
  std::vector<Session::WholePayload> payloads;
  for (size_t i = 0; i < contents.size(); ++i) payloads.push_back({hashes[i], contents[i]});

  v1::PayloadVerdict verdict;
  EXPECT_EQ(*session_->AddWhole(payloads, verdict), 3u) << "the fourth has begun otherwise";
  EXPECT_THAT(verdict.stored(), testing::UnorderedElementsAre(hashes[0], hashes[1], hashes[2]));
  EXPECT_THAT(Events(), IsEmpty());
  const std::vector<Session::WholePayload> wrong = {{hashes[4], "FOUR"}};
  EXPECT_EQ(*session_->AddWhole(wrong, verdict), 0u);
  const std::vector<Session::WholePayload> unknown = {{std::string_view("0123456789abcdef"), "x"}};
  EXPECT_EQ(*session_->AddWhole(unknown, verdict), 0u);
  EXPECT_EQ(verdict.stored_size(), 3);

  ASSERT_TRUE(session_->AddPayload(ScriptedAgent::Chunk(hashes[3], 2, "ree", true)).ok());
  EXPECT_EQ(*session_->AddWhole(std::span(payloads).last(1), verdict), 1u);
  EXPECT_THAT(Events(), ElementsAre("step 0 COMPLETE"));
  for (size_t i = 0; i < contents.size(); ++i) {
    std::string read;
    absl::Status status = store_->payloads().Read(hashes[i], [&](std::string_view chunk) {
      read += chunk;
      return absl::OkStatus();
    });
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(read, contents[i]);
  }
  EXPECT_EQ(metrics_.Value(Metric::kPayloadBytes), 19);
}

TEST_F(SessionsTest, WrongBytesAreRefusedAndThePayloadStaysMissing) {
  ScriptedAgent agent("a");
  Open(agent);
  const std::string hash = agent.CallWithPayload(0, "add", "01234567");
  Apply(agent.StepEnd(0).Take());
  EXPECT_EQ(session_->AddPayload(ScriptedAgent::Chunk(hash, 0, "76543210", true)).status().code(),
            absl::StatusCode::kDataLoss);
  EXPECT_EQ(session_->AddPayload(ScriptedAgent::Chunk(hash, 0, "0123", true)).status().code(),
            absl::StatusCode::kDataLoss);
  EXPECT_THAT(Events(), IsEmpty());
  EXPECT_TRUE(absl::IsNotFound(store_->payloads().Read(hash, [](std::string_view) { return absl::OkStatus(); })));
  EXPECT_EQ(metrics_.Value(Metric::kPayloadsRefused), 2);
  Open(agent);
  EXPECT_THAT(session_->welcome().missing_payloads(), ElementsAre(hash));
  EXPECT_EQ(session_->AddPayload(ScriptedAgent::Chunk(hash, 0, "01234567", true))->stored_size(), 1);
  EXPECT_THAT(Events(), ElementsAre("step 0 COMPLETE"));
}

TEST_F(SessionsTest, ChunksOutOfOrderOrTooLongAreRefused) {
  ScriptedAgent agent("a");
  Open(agent);
  const std::string hash = agent.CallWithPayload(0, "add", "01234567");
  Apply(agent.Take());
  for (const v1::PayloadChunk& chunk :
       {ScriptedAgent::Chunk(hash, 4, "4567", true), ScriptedAgent::Chunk(hash, 0, "0123456789", true),
        ScriptedAgent::Chunk("short", 0, "", true), ScriptedAgent::Chunk(std::string(16, 'u'), 0, "x", true),
        ScriptedAgent::Chunk(hash, 0, std::string((1 << 20) + 1, 'x'), false)}) {
    EXPECT_EQ(session_->AddPayload(chunk).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST_F(SessionsTest, MissingPayloadsAreNamedAfterARestartAndSentFromTheirFirstByte) {
  ScriptedAgent agent("a");
  Open(agent);
  const std::string hash = agent.CallWithPayload(0, "add", "01234567");
  Apply(agent.StepEnd(0).Take());
  ASSERT_TRUE(session_->AddPayload(ScriptedAgent::Chunk(hash, 0, "0123", false)).ok());
  Restart();
  Open(agent);
  EXPECT_THAT(session_->welcome().missing_payloads(), ElementsAre(hash));
  EXPECT_EQ(session_->AddPayload(ScriptedAgent::Chunk(hash, 4, "4567", true)).status().code(),
            absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(session_->AddPayload(ScriptedAgent::Chunk(hash, 0, "01234567", true)).ok());
  EXPECT_THAT(Events(), ElementsAre("step 0 COMPLETE"));
}

TEST_F(SessionsTest, PayloadOfOneSessionServesAnother) {
  ScriptedAgent first("a", "run", 0), second("b", "run", 1);
  auto one = sessions_->OpenSession(first.hello()), two = sessions_->OpenSession(second.hello());
  const std::string hash = first.CallWithPayload(0, "add", "01234567");
  second.CallWithPayload(0, "add", "01234567");
  ASSERT_TRUE((*one)->Apply(first.StepEnd(0).Take()).ok());
  ASSERT_TRUE((*two)->Apply(second.StepEnd(0).Take()).ok());
  ASSERT_TRUE((*one)->AddPayload(ScriptedAgent::Chunk(hash, 0, "01234567", true)).ok());
  EXPECT_THAT(Events(), ElementsAre("step 0 COMPLETE", "step 0 COMPLETE"));
  EXPECT_THAT((*sessions_->OpenSession(second.hello()))->welcome().missing_payloads(), IsEmpty());
}

TEST_F(SessionsTest, SizeOfAPayloadMustBeOne) {
  ScriptedAgent agent("a");
  Open(agent);
  agent.CallWithPayload(0, "add", "01234567");
  agent.batch().mutable_items(0)->mutable_block()->mutable_payload(0)->set_size(9);
  Apply(agent.Take());
  agent.CallWithPayload(0, "mul", "01234567");
  EXPECT_THAT(std::string(session_->Apply(agent.Take()).status().message()), HasSubstr("8 bytes and known with 9"));
}

TEST_F(SessionsTest, DiscardedStepIsForgottenAndItsNumberMayComeAgain) {
  ScriptedAgent agent("a");
  Open(agent);
  Apply(agent.Call(0, "stored").Fault(0, "w", "m").Take());
  Apply(agent.Call(0, "same_batch").Discard(0).Call(0, "after").Take());
  EXPECT_THAT(Names(0), ElementsAre("Torch.after.0.forward"));
  EXPECT_EQ(StepRow(0).records(), 1u);
  EXPECT_EQ(StepRow(0).faults(), 0u);
  Apply(agent.Discard(0).Take());
  EXPECT_TRUE(store_->steps().Of(1)->empty());
}

TEST_F(SessionsTest, RankKnownMovesEverythingOfTheSession) {
  ScriptedAgent agent("a"), other("b");
  for (ScriptedAgent* a : {&agent, &other}) {
    a->hello().mutable_rank()->set_kind(v1::Rank::PROCESS);
    a->hello().mutable_rank()->set_number(77);
  }
  Open(other);
  Apply(other.Call(0, "other").Take());
  Open(agent);
  Apply(agent.Call(0, "before").Fault(0, "w", "m").StepEnd(0).Take());
  Apply(agent.Call(1, "same_batch").RankKnown(3).Call(1, "after").Take());
  Apply(agent.Call(1, "next_batch").Take());
  EXPECT_THAT(Events(), ElementsAre("step 0 COMPLETE", "proc77 is rank3"));
  EXPECT_THAT(Names(0, 3), ElementsAre("Torch.before.0.forward"));
  EXPECT_THAT(Names(1, 3),
              ElementsAre("Torch.same_batch.0.forward", "Torch.after.0.forward", "Torch.next_batch.0.forward"));
  EXPECT_THAT(Names(0, 77, true), ElementsAre("Torch.other.0.forward")) << "the other session of that process id stays";
  v1::Rank rank;
  rank.set_kind(v1::Rank::RANK);
  rank.set_number(3);
  EXPECT_EQ((*store_->steps().Open("run", 0, rank))->faults().size(), 1u);
}

TEST_F(SessionsTest, GapsAndFaultsStandWithTheStep) {
  ScriptedAgent agent("a");
  Open(agent);
  Apply(agent.Call(0, "add").Gap(0, 12, v1::Marker::Gap::DROPPED).Fault(0, "Torch.add.0.forward", "why").Take());
  v1::Rank rank;
  rank.set_kind(v1::Rank::RANK);
  auto reader = store_->steps().Open("run", 0, rank);
  ASSERT_EQ((*reader)->gaps().size(), 1u);
  EXPECT_EQ((*reader)->gaps()[0].fragments(), 12u);
  ASSERT_EQ((*reader)->faults().size(), 1u);
  EXPECT_EQ((*reader)->faults()[0].message(), "why");
  EXPECT_EQ(metrics_.Value(Metric::kGaps, {"dropped"}), 12);
}

TEST_F(SessionsTest, StepOfWhichNothingWasCapturedLeavesNoTrace) {
  ScriptedAgent agent("a");
  Open(agent);
  Apply(agent.StepEnd(0).End().Take());
  EXPECT_THAT(Events(), IsEmpty());
  EXPECT_TRUE(store_->steps().Of(1)->empty());
}

TEST_F(SessionsTest, CleanEndCompletesTheOpenStepAndAnUncleanOneDoesNot) {
  ScriptedAgent clean("a"), unclean("b");
  Open(clean);
  Apply(clean.Call(4, "add").Take());
  Apply(clean.End(true).Take());
  EXPECT_THAT(Events(), ElementsAre("step 4 COMPLETE"));
  Open(unclean);
  Apply(unclean.Call(5, "add").End(false).Take());
  EXPECT_THAT(Events(), ElementsAre("step 5 INCOMPLETE"));
}

TEST_F(SessionsTest, SessionIsLostAtOnceWhenItsProcessIsGone) {
  ScriptedAgent agent("a");
  Open(agent);
  Apply(agent.Call(0, "done").StepEnd(0).Call(1, "open").Take());
  process_ = ProcessState::kGone;
  sessions_->Tick();
  EXPECT_EQ(Events().size(), 1u) << "a stream is there: nobody is lost";
  session_.reset();
  sessions_->Tick();
  EXPECT_THAT(Events(), ElementsAre("step 1 INCOMPLETE"));
  EXPECT_THAT(Names(1), ElementsAre("Torch.open.0.forward")) << "what came is kept";
  sessions_->Tick();
  EXPECT_EQ(sessions_->active(), 0u);
}

TEST_F(SessionsTest, SessionThatSomebodyTakesUpWhileItsProcessIsAskedForIsNotLost) {
  ScriptedAgent agent("a");
  Open(agent);
  Apply(agent.Call(1, "open").Take());
  session_.reset();
  process_ = ProcessState::kGone;
  when_asked_ = [&] { Open(agent); };
  sessions_->Tick();
  Apply(agent.StepEnd(1).Take());
  EXPECT_THAT(Events(), ElementsAre("step 1 COMPLETE"));
}

TEST_F(SessionsTest, SessionOfAnUnknownProcessIsLostAfterTheGraceAndComesBack) {
  ScriptedAgent agent("a");
  Open(agent);
  Apply(agent.Call(1, "open").Take());
  session_.reset();
  now_ += absl::Seconds(59);
  sessions_->Tick();
  EXPECT_THAT(Events(), IsEmpty());
  now_ += absl::Seconds(1);
  sessions_->Tick();
  EXPECT_THAT(Events(), ElementsAre("step 1 INCOMPLETE"));
  Open(agent);
  EXPECT_EQ(StepRow(1).state(), v1::StepSummary::OPEN);
  Apply(agent.Call(1, "more").StepEnd(1).Take());
  EXPECT_THAT(Events(), ElementsAre("step 1 COMPLETE"));
  EXPECT_EQ(StepRow(1).records(), 2u);
}

TEST_F(SessionsTest, LivingProcessIsWaitedFor) {
  ScriptedAgent agent("a");
  Open(agent);
  Apply(agent.Call(1, "open").Take());
  session_.reset();
  process_ = ProcessState::kAlive;
  now_ += absl::Hours(1);
  sessions_->Tick();
  EXPECT_THAT(Events(), IsEmpty());
  EXPECT_EQ(sessions_->active(), 1u);
}

TEST_F(SessionsTest, OpenSessionsAreFoundAgainAfterARestart) {
  ScriptedAgent agent("a");
  Open(agent);
  Apply(agent.Call(1, "open").Take());
  Restart();
  process_ = ProcessState::kGone;
  sessions_->Tick();
  EXPECT_THAT(Events(), ElementsAre("step 1 INCOMPLETE"));
}

TEST_F(SessionsTest, EndedSessionThatOwesPayloadsLosesItsStepAndGetsItBack) {
  ScriptedAgent agent("a");
  Open(agent);
  const std::string hash = agent.CallWithPayload(0, "add", "01234567");
  Apply(agent.StepEnd(0).End().Take());
  session_.reset();
  process_ = ProcessState::kGone;
  sessions_->Tick();
  EXPECT_THAT(Events(), ElementsAre("step 0 INCOMPLETE"));
  Open(agent);
  ASSERT_TRUE(session_->AddPayload(ScriptedAgent::Chunk(hash, 0, "01234567", true)).ok());
  EXPECT_THAT(Events(), ElementsAre("step 0 COMPLETE"));
}

TEST_F(SessionsTest, LostStepWhoseLastPayloadCameFromAnotherSessionIsCompleteWhenItsSessionComesBack) {
  ScriptedAgent agent("a", "run", 0), other("b", "run", 1);
  Open(agent);
  const std::string hash = agent.CallWithPayload(0, "add", "01234567");
  Apply(agent.StepEnd(0).Take());
  session_.reset();
  process_ = ProcessState::kGone;
  sessions_->Tick();
  EXPECT_THAT(Events(), ElementsAre("step 0 INCOMPLETE"));
  ASSERT_TRUE(sessions_->FindOrLoad(agent.hello().session()).ok());  // as when the files of the lost step are written
  auto second = sessions_->OpenSession(other.hello());
  other.CallWithPayload(0, "add", "01234567");
  ASSERT_TRUE((*second)->Apply(other.Take()).ok());
  ASSERT_TRUE((*second)->AddPayload(ScriptedAgent::Chunk(hash, 0, "01234567", true)).ok());
  sessions_->Tick();
  Open(agent);
  EXPECT_THAT(Events(), ElementsAre("step 0 COMPLETE"));
  EXPECT_THAT(session_->welcome().missing_payloads(), IsEmpty());
}

TEST_F(SessionsTest, OneSessionTooManyIsRefusedUntilAnotherEnds) {
  SessionsOptions options;
  options.max_open = 1;
  Sessions narrow(store_.get(), &metrics_, nullptr, options);
  ScriptedAgent first("first"), second("second");
  {
    auto session = narrow.OpenSession(first.hello());
    ASSERT_TRUE(session.ok()) << session.status();
    const absl::Status refused = narrow.OpenSession(second.hello()).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(refused.ToString(), HasSubstr("--max_sessions"));
    auto again = narrow.OpenSession(first.hello());
    ASSERT_TRUE(again.ok()) << "the same again is none more: " << again.status();
    ASSERT_TRUE((*again)->Apply(first.End().Take()).ok());
    ASSERT_TRUE((*again)->AwaitDurable(absl::Seconds(30)).ok());
  }
  // Whoever syncs holds the session a moment longer than AwaitDurable waits for.
  const absl::Time deadline = absl::Now() + absl::Seconds(30);
  absl::Status opened;
  do {
    narrow.Tick();
    opened = narrow.OpenSession(second.hello()).status();
  } while (!opened.ok() && absl::Now() < deadline);
  EXPECT_TRUE(opened.ok()) << opened;
}

TEST_F(SessionsTest, OneRankTooManyOfARunIsRefused) {
  SessionsOptions options;
  options.max_ranks = 2;
  Sessions narrow(store_.get(), &metrics_, nullptr, options);
  ScriptedAgent first("r0", "job", 0), again("r0 again", "job", 0), second("r1", "job", 1), third("r2", "job", 2);
  ScriptedAgent other("r2 of another", "other", 2);
  EXPECT_TRUE(narrow.OpenSession(first.hello()).ok());
  EXPECT_TRUE(narrow.OpenSession(second.hello()).ok());
  EXPECT_TRUE(narrow.OpenSession(again.hello()).ok()) << "the same rank, restarted";
  const absl::Status refused = narrow.OpenSession(third.hello()).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(refused.ToString(), HasSubstr("run \"job\" has 2 ranks on this server"));
  EXPECT_THAT(refused.ToString(), HasSubstr("--max_ranks"));
  EXPECT_TRUE(narrow.OpenSession(other.hello()).ok());
  Sessions restarted(store_.get(), &metrics_, nullptr, options);
  EXPECT_TRUE(absl::IsResourceExhausted(restarted.OpenSession(third.hello()).status())) << "what is stored counts";
}

TEST_F(SessionsTest, TextsOfAHelloAreBounded) {
  ScriptedAgent agent("a");
  agent.hello().set_program(std::string(4096, 'x'));
  EXPECT_TRUE(sessions_->OpenSession(agent.hello()).ok());
  agent.hello().set_program(std::string(4097, 'x'));
  EXPECT_THAT(sessions_->OpenSession(agent.hello()).status().ToString(), HasSubstr("hello.program has 4097 bytes"));
  agent.hello().clear_program();
  agent.hello().mutable_settings()->set_config_json(std::string((1 << 20) + 1, 'x'));
  EXPECT_THAT(sessions_->OpenSession(agent.hello()).status().ToString(), HasSubstr("settings.config_json"));
  agent.hello().mutable_settings()->clear_config_json();
  for (const size_t bytes : {1 << 19, 1 << 19, 1}) {
    agent.hello().mutable_settings()->add_compiled_cells(std::string(bytes, 'x'));
  }
  EXPECT_THAT(sessions_->OpenSession(agent.hello()).status().ToString(),
              HasSubstr("settings.compiled_cells has 1048577 bytes"));
  agent.hello().clear_settings();
  agent.hello().add_environment()->set_value(std::string((1 << 18) + 1, 'x'));
  EXPECT_THAT(sessions_->OpenSession(agent.hello()).status().ToString(), HasSubstr("hello.environment"));
  agent.hello().clear_environment();
  for (int i = 0; i <= 1024; ++i) agent.hello().add_devices("");
  EXPECT_THAT(sessions_->OpenSession(agent.hello()).status().ToString(), HasSubstr("hello.devices 1025"));
}

TEST(StructureLimitsTest, NamesAndNestingAreBounded) {
  v1::Structure structure;
  structure.set_name(std::string(4096, 'n'));
  structure.set_kind(v1::RECORD_API);
  v1::Node* node = structure.mutable_fields()->mutable_dict()->add_entries()->mutable_value();
  for (int depth = 1; depth < 32; ++depth) node = node->mutable_list()->add_items();
  node->set_slot(v1::Node::NONE);
  EXPECT_TRUE(Summarize(structure).ok()) << Summarize(structure).status();
  v1::Structure deeper = structure;
  node->clear_kind();
  node->mutable_list()->add_items()->mutable_list()->add_items()->set_slot(v1::Node::NONE);
  EXPECT_THAT(Summarize(structure).status().ToString(), HasSubstr("more than 32 deep"));
  deeper.set_name(std::string(4097, 'n'));
  EXPECT_THAT(Summarize(deeper).status().ToString(), HasSubstr("4097 bytes"));
}

TEST_F(SessionsTest, ARunIsItsMakersAlone) {
  const v1::Hello first = ScriptedAgent("first", "job").hello();
  ASSERT_TRUE(sessions_->OpenStream(first, {}, Named("token one")).ok());
  EXPECT_EQ(store_->catalogue().FindRun("job")->owner(), "token one");
  // The same rank, another one, and the very session: nothing of the run is shown as anybody else wants.
  const v1::Hello same = ScriptedAgent("same", "job").hello(), other = ScriptedAgent("other", "job", 7).hello();
  for (const Caller& stranger : {Named("token two"), Named("uid 7"), Named("")}) {
    for (const v1::Hello& hello : {same, other, first}) {
      const auto refused = sessions_->OpenStream(hello, {}, stranger);
      EXPECT_EQ(refused.status().code(), absl::StatusCode::kPermissionDenied);
      EXPECT_THAT(std::string(refused.status().message()),
                  AllOf(HasSubstr("run \"job\" belongs to token one"), HasSubstr("choose another name")));
    }
  }
  EXPECT_EQ(store_->catalogue().Sessions()->size(), 1u) << "what is refused leaves no trace";
  EXPECT_TRUE(sessions_->OpenStream(first, {}, Named("token one")).ok()) << "it comes back";
  EXPECT_TRUE(sessions_->OpenStream(other, {}, Named("token one")).ok()) << "a further rank";
  EXPECT_TRUE(sessions_->OpenStream(same, {}, Named("token three", /*is_admin=*/true)).ok()) << "an admin";
  EXPECT_EQ(store_->catalogue().FindRun("job")->owner(), "token one");
}

TEST_F(SessionsTest, ARunThatNobodyInParticularMadeIsEverybodys) {
  ASSERT_TRUE(sessions_->OpenSession(ScriptedAgent("first", "job").hello()).ok());
  EXPECT_EQ(store_->catalogue().FindRun("job")->owner(), "");
  EXPECT_TRUE(sessions_->OpenStream(ScriptedAgent("second", "job").hello(), {}, Named("token one")).ok());
  EXPECT_EQ(store_->catalogue().FindRun("job")->owner(), "");
}

TEST_F(SessionsTest, ScalarsAreStoredOnceAndOpenNoStep) {
  ScriptedAgent agent("a");
  agent.Log(3, {{"loss", 1.5}, {"lr", 0.25}}).Log(4, {{"loss", 2}});
  const v1::Batch batch = agent.Take();
  Open(agent);
  Apply(batch);
  Apply(batch);
  EXPECT_THAT(Scalars(), ElementsAre("loss 3=1.5 4=2", "lr 3=0.25"));
  EXPECT_THAT(AllSteps(), IsEmpty());
  EXPECT_THAT(Events(), ElementsAre("loss 3 1.500000", "lr 3 0.250000", "loss 4 2.000000"));
  Restart();
  Open(agent);
  Apply(batch);
  EXPECT_THAT(Scalars(), ElementsAre("loss 3=1.5 4=2", "lr 3=0.25"));
}

TEST_F(SessionsTest, ScalarsOfManyBatchesBecomeTilesAndStay) {
  ScriptedAgent agent("a");
  Open(agent);
  std::string all = "loss";
  for (uint32_t step = 0; step < 300; ++step) {
    Apply(agent.Log(step, {{"loss", step}}).Take());
    all += Cat(" ", step, "=", step);
  }
  EXPECT_THAT(Scalars(), ElementsAre(all));
  EXPECT_EQ(store_->scalars().CountRows(1, 0).value_or(0), 44U);
  Restart();
  Open(agent);
  Apply(agent.Log(300, {{"loss", 1}}).End().Take());
  EXPECT_THAT(Scalars(), ElementsAre(all + " 300=1"));
  EXPECT_EQ(store_->scalars().CountRows(1, 0).value_or(9), 0U);
}

TEST_F(SessionsTest, ScalarsOfAStepThatHasEndedOrIsDiscardedStay) {
  ScriptedAgent agent("a");
  Open(agent);
  Apply(agent.Call(0, "add").StepEnd(0).Log(0, {{"eval", 1}}).Call(1, "add").Log(1, {{"eval", 2}}).Discard(1).Take());
  EXPECT_THAT(Scalars(), ElementsAre("eval 0=1 1=2"));
}

TEST_F(SessionsTest, ScalarsAmongRecordsAndRecordsAmongScalarsAreRefused) {
  ScriptedAgent agent("a");
  Open(agent);
  v1::Batch batch = agent.Log(0, {{"loss", 1}}).Take();
  v1::Block block = batch.items(0).scalars();
  *batch.mutable_items(0)->mutable_block() = block;
  EXPECT_THAT(session_->Apply(batch).status().message(), HasSubstr("scalars among the records"));
  ScriptedAgent other("b");
  Open(other);
  batch = other.Call(0, "add").Take();
  block = batch.items(0).block();
  *batch.mutable_items(0)->mutable_scalars() = block;
  EXPECT_THAT(session_->Apply(batch).status().message(), HasSubstr("among scalars"));
}

}  // namespace
}  // namespace msprobe::server
