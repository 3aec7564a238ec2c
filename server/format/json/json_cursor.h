#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace msprobe::server {

// Walks JSON text from front to back without building anything: what a dump.json of tens of thousands of entries is
// read with. Bare NaN, Infinity and -Infinity are values, as mindstudio-probe writes them.
//
// Errors stick: after the first one every question is answered with an end, and status() says where and what.
// Threads: one at a time. Ownership: the text outlives the cursor and what Number() gives.
class JsonCursor {
 public:
  enum class Type { kObject, kArray, kString, kNumber, kTrue, kFalse, kNull, kNaN, kInfinity, kMinusInfinity, kEnd };

  explicit JsonCursor(std::string_view text) : begin_(text.data()), at_(begin_), end_(begin_ + text.size()) {}

  // What comes next, without taking it. kEnd: the end of the text, or an error.
  Type Peek();

  // Take the opening bracket; then Next... until it says that there is no more.
  bool EnterObject();
  bool EnterArray();
  // Takes the next key and its colon. The key is valid until the next string is taken.
  bool NextKey(std::string_view& key);
  bool NextItem();

  // Valid until the next string or key is taken.
  std::string_view String();
  // The digits as they stand.
  std::string_view Number();
  // Takes true, false, null, NaN, Infinity or -Infinity.
  void Literal();
  // Takes whatever comes next.
  void Skip();

  // For going back: an offset, and the same state again.
  size_t offset() const { return static_cast<size_t>(at_ - begin_); }
  void Return(size_t offset) {
    at_ = begin_ + offset;
    first_ = false;
  }

  bool ok() const { return error_.empty(); }
  // InvalidArgument: "line 3, column 7: what is wrong".
  absl::Status status() const;
  void Fail(std::string_view what);
  // Nothing but white space is left.
  void ExpectEnd();

 private:
  void SkipSpace() {
    while (at_ != end_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\r' || *at_ == '\t')) ++at_;
  }
  bool Separator(char close);
  std::string_view EscapedString(const char* start);
  void TakeWord(std::string_view word);

  const char* const begin_;
  const char* at_;
  const char* const end_;
  bool first_ = false;  // the next item is the first of its list: no comma before it
  std::string scratch_;
  std::string error_;
  size_t error_offset_ = 0;
};

// Whether the text is well-formed UTF-8.
bool IsUtf8(std::string_view text);

}  // namespace msprobe::server
