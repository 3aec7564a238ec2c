#include "server/ingest/stream/answers.h"

#include <utility>

namespace msprobe::server {

void Answers::Open(v1::ServerMessage first_word) {
  waiting_.push_front(std::move(first_word));
  open_ = true;
}

void Answers::Add(v1::ServerMessage message) { waiting_.push_back(std::move(message)); }

void Answers::Clear() {
  waiting_.clear();
  acknowledge_ = false;
}

std::optional<v1::ServerMessage> Answers::Next(const Session* session) {
  if (!open_) return std::nullopt;
  v1::ServerMessage next;
  if (!waiting_.empty()) {
    next = std::move(waiting_.front());
    waiting_.pop_front();
    return next;
  }
  if (session == nullptr || !acknowledge_) return std::nullopt;
  acknowledge_ = false;
  // In this order: what is durable was received before.
  next.mutable_ack()->set_durable_through(session->durable_through());
  next.mutable_ack()->set_received_through(session->received_through());
  return next;
}

}  // namespace msprobe::server
