#include "agent/core/transport/stream/fake_ingest.h"

#include <unistd.h>

#include <chrono>
#include <fstream>
#include <span>
#include <utility>

#include "agent/core/content_hash.h"
#include "agent/core/payload/shared_file.h"
#include "agent/core/str_cat.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server_builder.h"

namespace msprobe::core {

void FakeIngest::Start() {
  unlink(socket_path_.c_str());
  grpc::ServerBuilder builder;
  builder.AddListeningPort(address(), grpc::InsecureServerCredentials());
  builder.RegisterService(this);
  server_ = builder.BuildAndStart();
}

void FakeIngest::Stop() {
  if (server_ == nullptr) return;
  server_->Shutdown(std::chrono::system_clock::now());
  server_->Wait();
  server_.reset();
  MutexLock lock(&mu_);
  partial_.clear();
}

void FakeIngest::Forget() {
  MutexLock lock(&mu_);
  batches_.clear();
  durable_ = 0;
  definitions_.clear();
  payloads_.clear();
  announced_.clear();
}

void FakeIngest::Set(const Behavior& behavior) {
  MutexLock lock(&mu_);
  behavior_ = behavior;
}

std::vector<v1::Batch> FakeIngest::batches() const {
  MutexLock lock(&mu_);
  return batches_;
}
std::map<std::string, std::string> FakeIngest::payloads() const {
  MutexLock lock(&mu_);
  return payloads_;
}
std::vector<v1::Hello> FakeIngest::hellos() const {
  MutexLock lock(&mu_);
  return hellos_;
}
std::vector<std::string> FakeIngest::violations() const {
  MutexLock lock(&mu_);
  return violations_;
}
int FakeIngest::streams() const {
  MutexLock lock(&mu_);
  return streams_;
}
int FakeIngest::clean_ends() const {
  MutexLock lock(&mu_);
  return clean_ends_;
}
uint64_t FakeIngest::chunks() const {
  MutexLock lock(&mu_);
  return chunks_;
}
uint64_t FakeIngest::shared_chunks() const {
  MutexLock lock(&mu_);
  return shared_chunks_;
}

uint64_t FakeIngest::chunk_messages() const {
  MutexLock lock(&mu_);
  return chunk_messages_;
}

void FakeIngest::CheckBlock(const v1::Block& block) {
  for (uint64_t id : block.structures()) {
    if (!definitions_.contains(id)) violations_.push_back("a structure was not defined");
  }
  for (uint64_t id : block.stacks()) {
    if (!definitions_.contains(id)) violations_.push_back("a stack was not defined");
  }
}

grpc::Status FakeIngest::TakeBatch(const v1::Batch& batch, Replies* replies) {
  if (batch.batch_sequence() <= durable_) return grpc::Status::OK;
  if (batch.batch_sequence() != durable_ + 1) {
    violations_.push_back(Cat("batch ", batch.batch_sequence(), " after ", durable_));
    return {grpc::StatusCode::OUT_OF_RANGE, "gap"};
  }
  for (const v1::Definition& definition : batch.definitions()) {
    const std::string& content = definition.has_stack() ? definition.stack() : definition.structure();
    if (DefinitionHash(content) != definition.id()) violations_.push_back("a definition's id is not its hash");
    v1::Structure structure;
    if (definition.has_structure() && structure.ParseFromString(content) && !behavior_.refuse_structure.empty() &&
        structure.name() == behavior_.refuse_structure) {
      return {grpc::StatusCode::INVALID_ARGUMENT, "malformed"};
    }
    definitions_.insert(definition.id());
  }
  v1::PayloadVerdict verdict;
  for (const v1::Item& item : batch.items()) {
    if (!item.has_block()) continue;
    CheckBlock(item.block());
    for (const v1::PayloadRef& reference : item.block().payload()) {
      announced_.insert(reference.hash());
      const bool have = payloads_.contains(reference.hash()) || !behavior_.want_payloads;
      *(have ? verdict.add_stored() : verdict.add_wanted()) = reference.hash();
    }
  }
  durable_ = batch.batch_sequence() + std::exchange(behavior_.overtaken, 0);
  batches_.push_back(batch);
  if (!behavior_.alarm_over.empty()) {
    v1::AlarmRaised* const alarm = replies->emplace_back().mutable_alarm();
    alarm->set_number(3);
    alarm->set_rule("not-finite");
    alarm->set_step(7);
    alarm->set_series(behavior_.alarm_over);
    alarm->set_why("it is nan");
  }
  v1::ServerMessage ack;
  ack.mutable_ack()->set_received_through(durable_);
  ack.mutable_ack()->set_durable_through(durable_);
  replies->push_back(ack);
  if (verdict.wanted_size() + verdict.stored_size() > 0) {
    *replies->emplace_back().mutable_payload_verdict() = verdict;
  }
  for (const v1::Item& item : batch.items()) {
    if (!behavior_.exports || !item.marker().has_step_end()) continue;
    v1::StepExported* const exported = replies->emplace_back().mutable_step_exported();
    exported->set_step(item.marker().step_end().step());
    exported->set_path(Cat("/dump/step", exported->step()));
  }
  return grpc::Status::OK;
}

void FakeIngest::ReadMemory(v1::PayloadChunk* chunk) {
  if (chunk->shared_size() == 0) return;
  ++shared_chunks_;
  if (!behavior_.reads_memory) violations_.push_back("a chunk in memory that nobody said he reads");
  std::ifstream file(Cat(SharedFile::kDirectory, "/", hellos_.back().shared_file()));
  file.seekg(static_cast<std::streamoff>(chunk->shared_offset()));
  chunk->mutable_content()->resize(chunk->shared_size());
  file.read(chunk->mutable_content()->data(), chunk->shared_size());
  if (!file) violations_.push_back("a chunk that is not in the shared file");
  if (behavior_.misreads_memory) chunk->mutable_content()->front() ^= 1;
}

void FakeIngest::TakeChunk(const v1::PayloadChunk& chunk, Replies* replies) {
  ++chunks_;
  if (!announced_.contains(chunk.hash())) violations_.push_back("a chunk of a payload that was not announced");
  std::string& content = partial_[chunk.hash()];
  if (chunk.offset() == 0) content.clear();
  if (chunk.offset() != content.size()) violations_.push_back("a chunk out of order");
  content += chunk.content();
  if (!chunk.last()) return;
  const PayloadDigest found = PayloadHash(std::as_bytes(std::span(content)));
  if (chunk.hash() != std::string_view(found.data(), found.size())) {
    if (chunk.shared_size() == 0) violations_.push_back("a payload is not its hash");
    replies->emplace_back().mutable_payload_verdict()->add_wanted(chunk.hash());
    return;
  }
  payloads_[chunk.hash()] = std::move(content);
  partial_.erase(chunk.hash());
  replies->emplace_back().mutable_payload_verdict()->add_stored(chunk.hash());
}

grpc::Status FakeIngest::Stream(grpc::ServerContext*,
                                grpc::ServerReaderWriter<v1::ServerMessage, v1::AgentMessage>* stream) {
  v1::AgentMessage message;
  if (!stream->Read(&message) || !message.has_hello()) return {grpc::StatusCode::INVALID_ARGUMENT, "no hello"};
  int taken = 0;
  {
    v1::ServerMessage answer;
    v1::Welcome* const welcome = answer.mutable_welcome();
    {
      MutexLock lock(&mu_);
      ++streams_;
      hellos_.push_back(message.hello());
      if (!behavior_.redirect_to.empty()) {
        answer.mutable_redirect()->set_address(behavior_.redirect_to);
        stream->Write(answer);
        return {grpc::StatusCode::FAILED_PRECONDITION, "belongs elsewhere"};
      }
      partial_.clear();
      welcome->set_protocol(1);
      welcome->set_durable_through(durable_);
      if (durable_ < message.hello().freed_through()) durable_ = message.hello().freed_through();
      if (behavior_.exports || behavior_.export_waits) welcome->add_capabilities("export");
      if (behavior_.reads_memory) welcome->add_capabilities("shared_memory");
      if (behavior_.knows_edges) welcome->add_capabilities("edges");
      if (behavior_.knows_scalars) welcome->add_capabilities("scalars");
      if (behavior_.knows_responses) welcome->add_capabilities("responses");
      if (behavior_.takes_chunks || behavior_.reads_memory) welcome->add_capabilities("payload_chunks");
      for (const std::string& hash : announced_) {
        if (behavior_.want_payloads && !payloads_.contains(hash)) welcome->add_missing_payloads(hash);
      }
    }
    MutexLock lock(&mu_);
    if (behavior_.bytes_per_second > 0) {
      v1::ServerMessage throttle;
      throttle.mutable_throttle()->set_bytes_per_second(behavior_.bytes_per_second);
      stream->Write(throttle);
    }
    stream->Write(answer);
  }
  while (stream->Read(&message)) {
    Replies replies;
    bool end = false;
    {
      MutexLock lock(&mu_);
      if (message.has_batch() && behavior_.acknowledge) {
        if (grpc::Status status = TakeBatch(message.batch(), &replies); !status.ok()) return status;
      }
      chunk_messages_ += message.has_payload_chunk() || message.has_payload_chunks();
      if (message.has_payload_chunk()) TakeChunk(message.payload_chunk(), &replies);
      if (message.has_payload_chunks() && !behavior_.takes_chunks && !behavior_.reads_memory) {
        violations_.push_back("several chunks in one message, which nobody said he takes");
      }
      for (v1::PayloadChunk& chunk : *message.mutable_payload_chunks()->mutable_chunk()) {
        ReadMemory(&chunk);
        TakeChunk(chunk, &replies);
      }
      end = behavior_.end_stream_after > 0 && ++taken >= behavior_.end_stream_after;
    }
    // Ending before the answers is what a crash after the write looks like.
    if (end) return {grpc::StatusCode::UNAVAILABLE, "ended by the test"};
    for (const v1::ServerMessage& reply : replies) stream->Write(reply);
  }
  MutexLock lock(&mu_);
  ++clean_ends_;
  return grpc::Status::OK;
}

}  // namespace msprobe::core
