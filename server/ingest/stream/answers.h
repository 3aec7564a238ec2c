#pragma once

#include <deque>
#include <optional>

#include "msprobe/v1/ingest.pb.h"
#include "server/ingest/session/session.h"

namespace msprobe::server {

// The messages that a stream still has for its agent, in their order.
//
// 1. Nothing goes out before the first word, a Welcome or a Redirect. Whatever was added earlier follows it.
// 2. An acknowledgement goes out when no message waits, and says how far the session is at that moment. So one
//    acknowledgement stands for all that were asked for since the last one.
// Threads: one at a time.
class Answers {
 public:
  // Says the first word, and from now on the others.
  void Open(v1::ServerMessage first_word);
  void Add(v1::ServerMessage message);
  void Acknowledge() { acknowledge_ = true; }
  // Forgets everything that waits.
  void Clear();

  // The next message; nothing where none may go out now. `session`: null while the stream has none.
  std::optional<v1::ServerMessage> Next(const Session* session);

 private:
  std::deque<v1::ServerMessage> waiting_;
  bool open_ = false;
  bool acknowledge_ = false;
};

}  // namespace msprobe::server
