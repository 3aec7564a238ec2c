#include "server/query/query_service.h"

#include <memory>
#include <utility>

#include "server/ingest/stream/caller_of.h"
#include "server/ingest/stream/ingest_service.h"
#include "server/query/answer_query.h"

namespace msprobe::server {
namespace {

// An answer of one message, which is what a point read gets, goes with its status: one packet, and its reader wakes
// once. A second message sends the first on, and those that follow go as they come.
template <typename Message>
class AnswerWriter {
 public:
  explicit AnswerWriter(grpc::ServerWriter<Message>* writer) : writer_(writer) {}
  ~AnswerWriter() {
    if (first_ != nullptr) writer_->WriteLast(*first_, grpc::WriteOptions());
  }

  Send<Message> send() {
    return [this](const Message& message) { return Write(message); };
  }

 private:
  bool Write(const Message& message) {
    if (std::exchange(begun_, true)) {
      const std::unique_ptr<const Message> first = std::move(first_);
      return (first == nullptr || writer_->Write(*first)) && writer_->Write(message);
    }
    first_ = std::make_unique<const Message>(message);
    return true;
  }

  grpc::ServerWriter<Message>* const writer_;
  bool begun_ = false;
  std::unique_ptr<const Message> first_;
};

}  // namespace

grpc::Status QueryService::ListRuns(grpc::ServerContext* call, const v1::ListRunsRequest*,
                                    v1::ListRunsResponse* response) {
  return AnswerQuery(context_, call, [&](const QueryContext& context) { return server::ListRuns(context, *response); });
}

grpc::Status QueryService::ListSteps(grpc::ServerContext* call, const v1::ListStepsRequest* request,
                                     grpc::ServerWriter<v1::StepSummary>* writer) {
  AnswerWriter answers(writer);
  return AnswerQuery(context_, call,
                     [&](const QueryContext& context) { return server::ListSteps(context, *request, answers.send()); });
}

grpc::Status QueryService::ReadRecords(grpc::ServerContext* call, const v1::ReadRecordsRequest* request,
                                       grpc::ServerWriter<v1::Record>* writer) {
  AnswerWriter answers(writer);
  return AnswerQuery(context_, call, [&](const QueryContext& context) {
    return server::ReadRecords(context, *request, answers.send());
  });
}

grpc::Status QueryService::ReadTensor(grpc::ServerContext* call, const v1::ReadTensorRequest* request,
                                      grpc::ServerWriter<v1::FileChunk>* writer) {
  AnswerWriter answers(writer);
  return AnswerQuery(context_, call, [&](const QueryContext& context) {
    return server::ReadTensor(context, *request, answers.send());
  });
}

grpc::Status QueryService::Export(grpc::ServerContext* call, const v1::ExportRequest* request,
                                  grpc::ServerWriter<v1::FileChunk>* writer) {
  AnswerWriter answers(writer);
  return AnswerQuery(context_, call, [&](const QueryContext& context) {
    return server::Export(
        context, *request, [call] { return call->IsCancelled(); }, answers.send());
  });
}

grpc::Status QueryService::Import(grpc::ServerContext* call, grpc::ServerReader<v1::ImportChunk>* reader,
                                  v1::ImportResponse* response) {
  return AnswerQuery(context_, call, [&](const QueryContext& context) {
    return server::Import(
        context, CallerOf(*call), [reader](v1::ImportChunk& chunk) { return reader->Read(&chunk); }, *response);
  });
}

grpc::Status QueryService::DeleteRun(grpc::ServerContext* call, const v1::DeleteRunRequest* request,
                                     v1::DeleteRunResponse* response) {
  return AnswerQuery(context_, call,
                     [&](const QueryContext& context) { return server::DeleteRun(context, *request, *response); });
}

}  // namespace msprobe::server
