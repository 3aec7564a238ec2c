#include "server/ingest/stream/ingest_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "server/ingest/scripted/scripted_agent.h"
#include "server/store/disk/crash_disk.h"
#include "server/store/disk/scratch_directory.h"

namespace msprobe::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class IngestServiceTest : public testing::Test {
 protected:
  using ClientStream = grpc::ClientReaderWriter<v1::AgentMessage, v1::ServerMessage>;

  void SetUp() override { Start(); }
  void TearDown() override { Stop(); }

  void Start() {
    StoreOptions options;
    options.directory = directory_ / "data";
    options.env = env_;
    auto store = Store::Open(options);
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    SessionsOptions sessions;
    sessions.version = "test";
    sessions.shared_directories = {directory_.path()};
    sessions_ = std::make_unique<Sessions>(store_.get(), &metrics_, nullptr, sessions);
    ASSERT_TRUE(sessions_->Recover().ok());
    service_ = std::make_unique<IngestService>(sessions_.get(), &store_->database(), &metrics_, ingest_);
    grpc::ServerBuilder builder;
    builder.SetMaxReceiveMessageSize(16 << 20);
    builder.RegisterService(service_.get());
    server_ = builder.BuildAndStart();
    stub_ = v1::Ingest::NewStub(server_->InProcessChannel({}));
  }
  void Stop() {
    if (server_ == nullptr) return;
    server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
    server_->Wait();
    server_.reset();
    service_.reset();
    sessions_.reset();
    store_.reset();
  }

  // One stream of an agent; reads until what it is asked for has come.
  struct Stream {
    grpc::ClientContext context;
    std::unique_ptr<ClientStream> stream;
    uint64_t received = 0, durable = 0;
    std::vector<std::string> wanted, stored;
    v1::Welcome welcome;

    bool Read() {
      v1::ServerMessage message;
      if (!stream->Read(&message)) return false;
      if (message.has_welcome()) {
        welcome = message.welcome();
        durable = welcome.durable_through();
      }
      if (message.has_ack()) {
        EXPECT_GE(message.ack().durable_through(), durable) << "watermarks only grow";
        EXPECT_GE(message.ack().received_through(), received);
        EXPECT_GE(message.ack().received_through(), message.ack().durable_through());
        received = message.ack().received_through();
        durable = message.ack().durable_through();
      }
      for (const std::string& hash : message.payload_verdict().wanted()) wanted.push_back(hash);
      for (const std::string& hash : message.payload_verdict().stored()) stored.push_back(hash);
      return true;
    }
    bool ReadUntilDurable(uint64_t through) {
      while (durable < through) {
        if (!Read()) return false;
      }
      return true;
    }
    void Send(const v1::Batch& batch) {
      v1::AgentMessage message;
      *message.mutable_batch() = batch;
      stream->Write(message);
    }
    void Send(const v1::PayloadChunk& chunk) {
      v1::AgentMessage message;
      *message.mutable_payload_chunk() = chunk;
      stream->Write(message);
    }
    void Send(const std::vector<v1::PayloadChunk>& chunks) {
      v1::AgentMessage message;
      message.mutable_payload_chunks()->mutable_chunk()->Assign(chunks.begin(), chunks.end());
      stream->Write(message);
    }
    grpc::Status End() {
      stream->WritesDone();
      while (Read()) {
      }
      return stream->Finish();
    }
  };
  std::unique_ptr<Stream> SayHello(ScriptedAgent& agent) {
    auto stream = std::make_unique<Stream>();
    stream->context.set_deadline(std::chrono::system_clock::now() + std::chrono::minutes(2));  // rather than for ever
    stream->stream = stub_->Stream(&stream->context);
    v1::AgentMessage hello;
    *hello.mutable_hello() = agent.hello();
    stream->stream->Write(hello);
    return stream;
  }
  std::unique_ptr<Stream> Connect(ScriptedAgent& agent) {
    auto stream = SayHello(agent);
    EXPECT_TRUE(stream->Read()) << "no welcome";
    return stream;
  }

  ScratchDirectory directory_;
  Metrics metrics_;
  IngestOptions ingest_;  // of the next Start, and so is the env
  rocksdb::Env* env_ = nullptr;
  std::unique_ptr<Store> store_;
  std::unique_ptr<Sessions> sessions_;
  std::unique_ptr<IngestService> service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<v1::Ingest::Stub> stub_;
};

TEST_F(IngestServiceTest, WelcomesAndAcknowledges) {
  ScriptedAgent agent("a");
  auto stream = Connect(agent);
  EXPECT_EQ(stream->welcome.protocol(), 1u);
  EXPECT_EQ(stream->welcome.durability(), v1::DURABILITY_SYNC);
  EXPECT_EQ(stream->welcome.server_id(), store_->catalogue().server_id());
  EXPECT_EQ(stream->welcome.server_version(), "test");
  EXPECT_GT(stream->welcome.max_batch_bytes(), 0u);
  for (int i = 0; i < 50; ++i) stream->Send(agent.Call(0, "op" + std::to_string(i)).Take());
  EXPECT_TRUE(stream->ReadUntilDurable(50));
  EXPECT_TRUE(stream->End().ok());
  EXPECT_EQ(metrics_.Value(Metric::kIngestRecords), 50);
}

TEST_F(IngestServiceTest, ABatchIsAcknowledgedOnceAndOneThatCameTwiceAtOnce) {
  ScriptedAgent agent("a");
  auto stream = Connect(agent);
  const v1::Batch batch = agent.Call(0, "add").Take();
  for (int acks = 1; acks <= 3; ++acks) {
    stream->Send(batch);
    ASSERT_TRUE(stream->Read());
    EXPECT_EQ(stream->durable, 1u) << "the message " << acks << " was no acknowledgement of what is durable";
    EXPECT_EQ(metrics_.Value(Metric::kAcks), acks);
  }
  EXPECT_TRUE(stream->End().ok());
  EXPECT_EQ(metrics_.Value(Metric::kIngestRecords), 1);
}

TEST_F(IngestServiceTest, OneStreamTooManyOfAPeerIsRefused) {
  Stop();
  ingest_.max_streams_of_a_peer = 2;
  Start();
  ScriptedAgent a("a"), b("b"), c("c");
  auto first = Connect(a);
  {
    auto second = Connect(b);
    Stream third;
    third.stream = stub_->Stream(&third.context);
    const grpc::Status refused = third.End();
    EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_THAT(refused.error_message(), HasSubstr("--max_streams_per_peer"));
    EXPECT_TRUE(second->End().ok());
  }
  while (service_->streams() > 1) std::this_thread::yield();
  EXPECT_TRUE(Connect(c)->End().ok());
  EXPECT_TRUE(first->End().ok());
}

TEST_F(IngestServiceTest, AStreamThatBelongsElsewhereIsToldWhere) {
  Stop();
  ingest_.server_of = [](const v1::Hello& hello, const Caller&) -> absl::StatusOr<std::string> {
    return hello.rank().number() == 0 ? "" : "other:50051";
  };
  Start();
  ScriptedAgent mine("a", "job", 0), theirs("b", "job", 1);
  EXPECT_TRUE(Connect(mine)->End().ok());
  Stream stream;
  stream.stream = stub_->Stream(&stream.context);
  v1::AgentMessage hello;
  *hello.mutable_hello() = theirs.hello();
  stream.stream->Write(hello);
  v1::ServerMessage answer;
  ASSERT_TRUE(stream.stream->Read(&answer));
  EXPECT_EQ(answer.redirect().address(), "other:50051");
  const grpc::Status status = stream.End();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(status.error_message(), "rank1 of run \"job\" belongs to other:50051");
  EXPECT_EQ(metrics_.Value(Metric::kRedirects), 1);
  EXPECT_EQ(store_->catalogue().Sessions()->size(), 1u) << "nothing of it is left here";
}

TEST_F(IngestServiceTest, StreamsAreToldHowFastTheyMaySend) {
  ScriptedAgent a("a"), b("b");
  auto first = Connect(a);
  // A stream that begins while the limit changes may be told twice of the same one.
  const auto told = [](Stream& stream, uint64_t limit) {
    v1::ServerMessage message;
    while (stream.stream->Read(&message)) {
      if (message.has_throttle() && message.throttle().bytes_per_second() == limit) return true;
    }
    return false;
  };
  service_->Slow(5000);
  EXPECT_TRUE(told(*first, 5000));
  auto second = Connect(b);
  EXPECT_TRUE(told(*second, 5000)) << "also who comes later";
  EXPECT_EQ(metrics_.Value(Metric::kThrottleBytesPerSecond), 5000);
  service_->Slow(0);
  EXPECT_TRUE(told(*first, 0));
  EXPECT_TRUE(told(*second, 0));
  first->Send(a.Call(0, "add").Take());
  EXPECT_TRUE(first->ReadUntilDurable(1));
  EXPECT_TRUE(first->End().ok());
  EXPECT_TRUE(second->End().ok());
}

TEST_F(IngestServiceTest, FirstMessageMustBeHello) {
  ScriptedAgent agent("a");
  Stream stream;
  stream.stream = stub_->Stream(&stream.context);
  stream.Send(agent.Call(0, "add").Take());
  const grpc::Status status = stream.End();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("must be a hello"));
}

TEST_F(IngestServiceTest, MalformedBatchEndsTheStreamAndKeepsWhatWasAcknowledged) {
  ScriptedAgent agent("a");
  auto stream = Connect(agent);
  stream->Send(agent.Call(0, "add").Take());
  v1::Batch bad = agent.Call(0, "mul").Take();
  bad.mutable_items(0)->mutable_block()->clear_count();
  stream->Send(bad);
  const grpc::Status status = stream->End();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("batch 2: item 0: column count has 0 values, 1 are needed"));
  EXPECT_EQ(Connect(agent)->welcome.durable_through(), 1u);
  EXPECT_EQ(metrics_.Value(Metric::kIngestRefused, {"invalid_argument"}), 1);
}

TEST_F(IngestServiceTest, GapIsOutOfRange) {
  ScriptedAgent agent("a");
  auto stream = Connect(agent);
  agent.Take();
  stream->Send(agent.Call(0, "add").Take());
  EXPECT_EQ(stream->End().error_code(), grpc::StatusCode::OUT_OF_RANGE);
}

TEST_F(IngestServiceTest, PayloadIsWantedSentAndStoredOnce) {
  ScriptedAgent agent("a");
  auto stream = Connect(agent);
  const std::string content(300000, 'x');
  const std::string hash = agent.CallWithPayload(0, "add", content);
  stream->Send(agent.Take());
  while (stream->wanted.empty()) ASSERT_TRUE(stream->Read());
  EXPECT_THAT(stream->wanted, ElementsAre(hash));
  stream->Send(ScriptedAgent::Chunk(hash, 0, content.substr(0, 262144), false));
  stream->Send(agent.Call(0, "between").Take());
  stream->Send(ScriptedAgent::Chunk(hash, 262144, content.substr(262144), true));
  while (stream->stored.empty()) ASSERT_TRUE(stream->Read());
  EXPECT_THAT(stream->stored, ElementsAre(hash));
  agent.CallWithPayload(1, "add", content);
  stream->Send(agent.Take());
  while (stream->stored.size() < 2) ASSERT_TRUE(stream->Read());
  EXPECT_EQ(stream->wanted.size(), 1u);
  EXPECT_TRUE(stream->End().ok());
}

TEST_F(IngestServiceTest, WrongPayloadLeavesTheStreamAlone) {
  ScriptedAgent agent("a");
  auto stream = Connect(agent);
  const std::string hash = agent.CallWithPayload(0, "add", "01234567");
  stream->Send(agent.Take());
  stream->Send(ScriptedAgent::Chunk(hash, 0, "76543210", true));
  stream->Send(agent.Call(0, "mul").Take());
  EXPECT_TRUE(stream->ReadUntilDurable(2));
  EXPECT_TRUE(stream->End().ok());
  EXPECT_THAT(Connect(agent)->welcome.missing_payloads(), ElementsAre(hash));
}

// An agent whose payloads lie in a file that the server can open.
class SharedMemoryTest : public IngestServiceTest {
 protected:
  static constexpr char kName[] = "msprobe-00112233445566778899aabbccddeeff";

  void SetUp() override {
    std::string boot_id;
    std::ifstream("/proc/sys/kernel/random/boot_id") >> boot_id;
    agent_.hello().set_boot_id(boot_id);
    agent_.hello().set_shared_file(kName);
    std::ofstream(directory_ / kName) << std::string(100, '-') << content_;
    Start();
  }

  std::unique_ptr<Stream> Announce() {
    auto stream = Connect(agent_);
    hash_ = agent_.CallWithPayload(0, "add", content_);
    stream->Send(agent_.Take());
    while (stream->wanted.empty() && stream->Read()) {
    }
    stream->wanted.clear();
    return stream;
  }
  v1::PayloadChunk Chunk(uint64_t offset, uint32_t size) {
    v1::PayloadChunk chunk = ScriptedAgent::Chunk(hash_, offset, "", offset + size == content_.size());
    chunk.set_shared_offset(100 + offset);
    chunk.set_shared_size(size);
    return chunk;
  }

  ScriptedAgent agent_{"a"};
  const std::string content_ = std::string(200000, 'x') + std::string(100000, 'y');
  std::string hash_;
};

TEST_F(SharedMemoryTest, PayloadIsReadAndStored) {
  auto stream = Announce();
  EXPECT_THAT(stream->welcome.capabilities(),
              ElementsAre("payload_chunks", "digests", "edges", "scalars", "responses", "shared_memory"));
  stream->Send(Chunk(0, 262144));
  stream->Send(Chunk(262144, 37856));
  while (stream->stored.empty()) ASSERT_TRUE(stream->Read());
  EXPECT_THAT(stream->stored, ElementsAre(hash_));
  EXPECT_TRUE(stream->End().ok());
  EXPECT_EQ(metrics_.Value(Metric::kSharedBytes), 300000);
  EXPECT_EQ(metrics_.Value(Metric::kPayloadBytes), 300000);
}

TEST_F(SharedMemoryTest, ChunksInMemoryAndInMessagesMakeOnePayload) {
  auto stream = Announce();
  stream->Send(Chunk(0, 100000));
  stream->Send(ScriptedAgent::Chunk(hash_, 100000, content_.substr(100000, 100000), false));
  stream->Send(Chunk(200000, 100000));
  while (stream->stored.empty()) ASSERT_TRUE(stream->Read());
  EXPECT_TRUE(stream->End().ok());
  EXPECT_EQ(metrics_.Value(Metric::kSharedBytes), 200000);
}

TEST_F(SharedMemoryTest, SeveralChunksInOneMessageAreTakenInTurn) {
  auto stream = Announce();
  const std::string small = "small", broken = "broken";
  const std::string small_hash = agent_.CallWithPayload(0, "add", small);
  const std::string broken_hash = agent_.CallWithPayload(0, "add", broken);
  stream->Send(agent_.Take());
  while (stream->wanted.size() < 2) ASSERT_TRUE(stream->Read());
  stream->wanted.clear();
  std::vector<v1::PayloadChunk> chunks = {Chunk(0, 100000), Chunk(100000, 100000), Chunk(200000, 100000),
                                          ScriptedAgent::Chunk(broken_hash, 0, "hacked", true),
                                          ScriptedAgent::Chunk(small_hash, 0, small, true)};
  stream->Send(chunks);
  while (stream->stored.size() < 2) ASSERT_TRUE(stream->Read());
  EXPECT_THAT(stream->stored, ElementsAre(hash_, small_hash)) << "and the one between is to blame alone";
  stream->Send(std::vector<v1::PayloadChunk>(257, ScriptedAgent::Chunk(broken_hash, 0, broken, true)));
  const grpc::Status status = stream->End();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("payload_chunks has 257 chunks, at most 256"));
  EXPECT_EQ(metrics_.Value(Metric::kPayloadBytes), 300005);
}

TEST_F(SharedMemoryTest, WhatHasAnotherHashIsAskedForInMessages) {
  auto stream = Announce();
  v1::PayloadChunk wrong = Chunk(0, 300000);
  wrong.set_shared_offset(0);
  stream->Send(wrong);
  while (stream->wanted.empty()) ASSERT_TRUE(stream->Read());
  EXPECT_THAT(stream->wanted, ElementsAre(hash_));
  EXPECT_THAT(stream->stored, testing::IsEmpty());
  stream->Send(ScriptedAgent::Chunk(hash_, 0, content_, true));
  while (stream->stored.empty()) ASSERT_TRUE(stream->Read());
  EXPECT_TRUE(stream->End().ok());
}

TEST_F(SharedMemoryTest, AFileThatIsTooShortEndsTheStreamAlone) {
  auto stream = Announce();
  stream->Send(Chunk(0, 100000));
  std::filesystem::resize_file(directory_ / kName, 150000);
  stream->Send(Chunk(100000, 100000));
  const grpc::Status status = stream->End();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(),
              HasSubstr("at byte 100000: the shared file has 49900 of 100000 bytes at offset 100100"));
  auto again = Connect(agent_);
  EXPECT_THAT(again->welcome.missing_payloads(), ElementsAre(hash_));
  again->Send(ScriptedAgent::Chunk(hash_, 0, content_, true));
  while (again->stored.empty()) ASSERT_TRUE(again->Read());
  EXPECT_TRUE(again->End().ok());
}

TEST_F(SharedMemoryTest, NothingIsSharedWithoutAFileThatCanBeOpened) {
  agent_.hello().set_shared_file("msprobe-ffffffffffffffffffffffffffffffff");
  auto stream = Announce();
  EXPECT_THAT(stream->welcome.capabilities(),
              ElementsAre("payload_chunks", "digests", "edges", "scalars", "responses"));
  stream->Send(Chunk(0, 100000));
  EXPECT_EQ(stream->End().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(SharedMemoryTest, ChunksAreNoLargerThanInMessages) {
  auto stream = Announce();
  stream->Send(Chunk(0, (1 << 20) + 1));
  const grpc::Status status = stream->End();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("at most 1048576"));
}

TEST_F(IngestServiceTest, BrokenStreamGoesOnWhereItWas) {
  ScriptedAgent agent("a");
  std::vector<v1::Batch> batches;
  for (int i = 0; i < 30; ++i) batches.push_back(agent.Call(0, "op" + std::to_string(i)).Take());
  uint64_t durable = 0;
  while (durable < batches.size()) {
    auto stream = Connect(agent);
    durable = stream->welcome.durable_through();
    for (uint64_t i = durable; i < std::min<uint64_t>(durable + 7, batches.size()); ++i) stream->Send(batches[i]);
    stream->ReadUntilDurable(std::min<uint64_t>(durable + 4, batches.size()));
    stream->context.TryCancel();
    stream->stream->Finish();
  }
  EXPECT_EQ(store_->steps().Of(1)->front().second.records(), 30u);
}

TEST_F(IngestServiceTest, SurvivesARestartOfTheServer) {
  ScriptedAgent agent("a");
  {
    auto stream = Connect(agent);
    stream->Send(agent.Call(0, "add").Take());
    EXPECT_TRUE(stream->ReadUntilDurable(1));
    stream->context.TryCancel();
    stream->stream->Finish();
  }
  Stop();
  Start();
  auto stream = Connect(agent);
  EXPECT_EQ(stream->welcome.durable_through(), 1u);
  stream->Send(agent.Call(0, "mul").StepEnd(0).Take());
  EXPECT_TRUE(stream->ReadUntilDurable(2));
  EXPECT_EQ(store_->steps().Of(1)->front().second.state(), v1::StepSummary::COMPLETE);
  EXPECT_TRUE(stream->End().ok());
}

TEST_F(IngestServiceTest, LaterStreamOfASessionTakesOver) {
  ScriptedAgent agent("a");
  auto first = Connect(agent);
  auto second = Connect(agent);
  EXPECT_EQ(first->End().error_code(), grpc::StatusCode::ABORTED);
  second->Send(agent.Call(0, "add").Take());
  EXPECT_TRUE(second->ReadUntilDurable(1));
  EXPECT_TRUE(second->End().ok());
}

TEST_F(IngestServiceTest, AStreamThatIsReplacedEndsThoughWhatItSentIsNotDurable) {
  Stop();
  CrashDisk disk(directory_.path(), 1);
  env_ = disk.env();
  Start();
  ScriptedAgent agent("a");
  auto first = Connect(agent);
  disk.HoldLogSyncs(true);
  first->Send(agent.Call(0, "add").Take());
  while (metrics_.Value(Metric::kIngestBatches) < 1) std::this_thread::yield();
  auto second = SayHello(agent);
  while (first->Read()) {
  }
  EXPECT_EQ(first->stream->Finish().error_code(), grpc::StatusCode::ABORTED)
      << "or its agent would wait on it for ever";
  EXPECT_EQ(first->durable, 0u);
  disk.HoldLogSyncs(false);
  ASSERT_TRUE(second->Read());
  EXPECT_EQ(second->welcome.durable_through(), 1u);
  EXPECT_TRUE(second->End().ok());
  Stop();
}

TEST_F(IngestServiceTest, DrainAcknowledgesAndSaysUnavailable) {
  ScriptedAgent agent("a");
  auto stream = Connect(agent);
  stream->Send(agent.Call(0, "add").Take());
  EXPECT_TRUE(stream->ReadUntilDurable(1));
  sessions_->Drain();
  bool ended = false;
  std::thread end([&] { ended = service_->EndStreams(absl::Seconds(20)); });
  while (stream->Read()) {
  }
  EXPECT_EQ(stream->stream->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  end.join();
  EXPECT_TRUE(ended);
  ScriptedAgent late("late");
  Stream refused;
  refused.stream = stub_->Stream(&refused.context);
  v1::AgentMessage hello;
  *hello.mutable_hello() = late.hello();
  refused.stream->Write(hello);
  EXPECT_EQ(refused.End().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(IngestServiceTest, ManySessionsAtOnceKeepTheirOrder) {
  constexpr int kSessions = 16, kBatches = 100;
  std::vector<std::thread> threads;
  for (int s = 0; s < kSessions; ++s) {
    threads.emplace_back([this, s] {
      ScriptedAgent agent("session" + std::to_string(s), "run", static_cast<uint32_t>(s));
      auto stream = Connect(agent);
      std::thread reader([&] { EXPECT_TRUE(stream->ReadUntilDurable(kBatches)); });
      for (int i = 0; i < kBatches; ++i) stream->Send(agent.Call(0, "op" + std::to_string(i)).Take());
      reader.join();
      EXPECT_TRUE(stream->End().ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  auto steps = store_->steps().Of(1);
  ASSERT_EQ(steps->size(), static_cast<size_t>(kSessions));
  for (const auto& [key, row] : *steps) EXPECT_EQ(row.records(), static_cast<uint64_t>(kBatches));
}

TEST_F(IngestServiceTest, OneStreamTooManyIsRefusedAndCounted) {
  IngestService narrow(sessions_.get(), &store_->database(), &metrics_,
                       IngestOptions{.max_streams = 1, .server_of = {}});
  grpc::ServerBuilder builder;
  builder.RegisterService(&narrow);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  const auto stub = v1::Ingest::NewStub(server->InProcessChannel({}));
  {
    grpc::ClientContext first_context, second_context;
    ScriptedAgent agent("a");
    const auto first = stub->Stream(&first_context);
    v1::AgentMessage hello;
    *hello.mutable_hello() = agent.hello();
    first->Write(hello);
    v1::ServerMessage welcome;
    ASSERT_TRUE(first->Read(&welcome));
    const auto second = stub->Stream(&second_context);
    v1::ServerMessage none;
    EXPECT_FALSE(second->Read(&none));
    EXPECT_EQ(second->Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_EQ(metrics_.Value(Metric::kIngestRefused, {"resource_exhausted"}), 1);
    first->WritesDone();
    while (first->Read(&none)) {
    }
    EXPECT_TRUE(first->Finish().ok());
  }
  server->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
  server->Wait();
}

}  // namespace
}  // namespace msprobe::server
