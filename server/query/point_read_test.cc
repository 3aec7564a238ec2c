// A question does not wait for what agents wait for.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "server/ingest/scripted/scripted_agent.h"
#include "server/ingest/stream/ingest_service.h"
#include "server/query/query_service.h"
#include "server/store/disk/crash_disk.h"
#include "server/store/disk/scratch_directory.h"

namespace msprobe::server {
namespace {

constexpr size_t kStreams = 32;  // more than gRPC and the service have threads, on any machine of the tests
constexpr std::chrono::seconds kPatience(30);

class PointReadTest : public testing::Test {
 protected:
  struct Stream {
    explicit Stream(const std::string& name) : agent(name, "job") {}
    ScriptedAgent agent;
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReaderWriter<v1::AgentMessage, v1::ServerMessage>> stream;

    bool Send() {
      v1::AgentMessage message;
      *message.mutable_batch() = agent.Take();
      return stream->Write(message);
    }
    bool ReadUntilDurable(uint64_t through) {
      v1::ServerMessage message;
      while (stream->Read(&message)) {
        if (message.ack().durable_through() >= through) return true;
      }
      return false;
    }
  };

  void SetUp() override {
    StoreOptions options;
    options.directory = directory_ / "data";
    options.env = disk_.env();
    auto store = Store::Open(options);
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    sessions_ = std::make_unique<Sessions>(store_.get(), &metrics_, nullptr, SessionsOptions());
    ingest_ = std::make_unique<IngestService>(sessions_.get(), &store_->database(), &metrics_,
                                              IngestOptions{.max_streams = kStreams, .server_of = {}});
    query_ = std::make_unique<QueryService>(
        QueryContext{store_.get(), sessions_.get(), &metrics_, &activity_, directory_ / "incoming"});
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(ingest_.get());
    builder.RegisterService(query_.get());
    server_ = builder.BuildAndStart();
    address_ = "127.0.0.1:" + std::to_string(port);
    agents_ = v1::Ingest::NewStub(grpc::CreateChannel(address_, grpc::InsecureChannelCredentials()));
  }
  void TearDown() override {
    disk_.HoldLog(false);
    for (auto& stream : streams_) stream->context.TryCancel();
    streams_.clear();
    server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
    server_->Wait();
    server_.reset();
    ingest_.reset();
    sessions_.reset();
    store_.reset();
  }

  std::unique_ptr<Stream> Connect(const std::string& name) {
    auto stream = std::make_unique<Stream>(name);
    stream->context.set_deadline(std::chrono::system_clock::now() + 4 * kPatience);  // who waits is told, not held
    stream->stream = agents_->Stream(&stream->context);
    v1::AgentMessage hello;
    *hello.mutable_hello() = stream->agent.hello();
    stream->stream->Write(hello);
    return stream;
  }

  // Of the first agent's step.
  grpc::Status ReadRecord(std::string* name) {
    auto stub = v1::Query::NewStub(grpc::CreateChannel(address_, grpc::InsecureChannelCredentials()));
    v1::ReadRecordsRequest request;
    request.set_run("job");
    request.set_step(0);
    *request.mutable_rank() = streams_[0]->agent.hello().rank();
    request.set_name_glob("*add*");
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kPatience);
    auto records = stub->ReadRecords(&context, request);
    v1::Record record;
    while (records->Read(&record)) *name = record.full_name();
    return records->Finish();
  }

  ScratchDirectory directory_;
  CrashDisk disk_{directory_ / "data", 1};
  Metrics metrics_;
  Activity activity_{absl::Now()};
  std::unique_ptr<Store> store_;
  std::unique_ptr<Sessions> sessions_;
  std::unique_ptr<IngestService> ingest_;
  std::unique_ptr<QueryService> query_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
  std::unique_ptr<v1::Ingest::Stub> agents_;
  std::vector<std::unique_ptr<Stream>> streams_;
};

TEST_F(PointReadTest, AReadAnswersWhileEveryAgentWaitsForTheLog) {
  for (size_t i = 0; i < kStreams; ++i) {
    streams_.push_back(Connect("agent" + std::to_string(i)));
    streams_[i]->agent.Call(0, "add").StepEnd(0);
    ASSERT_TRUE(streams_[i]->Send());
    ASSERT_TRUE(streams_[i]->ReadUntilDurable(1));
  }
  disk_.HoldLog(true);
  for (auto& stream : streams_) {
    stream->agent.Call(1, "mul").StepEnd(1);
    ASSERT_TRUE(stream->Send());
  }
  while (disk_.waiting() == 0) absl::SleepFor(absl::Milliseconds(1));  // between two looks at what threads of gRPC do

  for (int i = 0; i < 20; ++i) {
    std::string name;
    const grpc::Status status = ReadRecord(&name);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_THAT(name, testing::HasSubstr("add"));
  }
  // The threads of gRPC that carry the agents' messages are free, too: they turn away one stream too many.
  auto refused = Connect("too many");
  v1::ServerMessage message;
  EXPECT_FALSE(refused->stream->Read(&message));
  EXPECT_EQ(refused->stream->Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_GT(disk_.waiting(), 0u) << "the log was free: nothing is shown";

  disk_.HoldLog(false);
  for (auto& stream : streams_) EXPECT_TRUE(stream->ReadUntilDurable(2));
}

}  // namespace
}  // namespace msprobe::server
