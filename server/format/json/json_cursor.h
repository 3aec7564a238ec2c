#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace msprobe::server {

enum class JsonType : uint8_t {
  kObject,
  kArray,
  kString,
  kNumber,
  kTrue,
  kFalse,
  kNull,
  kNaN,
  kInfinity,
  kMinusInfinity,
  kEnd
};

// One value as it stands in a text, brackets and quotes included. Borrows the text. kEnd: there is no value.
struct JsonText {
  JsonType type = JsonType::kEnd;
  std::string_view text;

  explicit operator bool() const { return type != JsonType::kEnd; }
  bool is_null() const { return type == JsonType::kNull; }
  bool is_bool() const { return type == JsonType::kTrue || type == JsonType::kFalse; }
  bool is_string() const { return type == JsonType::kString; }
  bool is_array() const { return type == JsonType::kArray; }
  bool is_object() const { return type == JsonType::kObject; }
  // NaN and the infinities are numbers.
  bool is_number() const {
    return type == JsonType::kNumber || type == JsonType::kNaN || type == JsonType::kInfinity ||
           type == JsonType::kMinusInfinity;
  }
};

// Limits of a text beyond the rules of JSON.
struct JsonLimits {
  // How many lists and objects may lie inside the outermost one, each within the other. The default is about as deep
  // as mindstudio-probe reads.
  int max_depth = 400;
  // Refuses values that no text and no double can hold: half of a surrogate pair, a number beyond the largest double.
  // Without it the first is read as U+FFFD, and the second stays the reader's business, as in Python.
  bool exact = false;
};

// The one parser of JSON in the server: walks a text from front to back and builds nothing, which is how a dump.json
// of tens of thousands of entries is read. Bare NaN, Infinity and -Infinity are values, as mindstudio-probe writes
// them; all else that Python's json module refuses is refused.
//
// The reader asks for what it expects. Errors stick: after the first one every question is answered with an end, and
// status() says where and what. Whether the text is UTF-8 is not looked at; see Utf8Prefix.
// Threads: one at a time. Ownership: the text outlives the cursor and everything that borrows it.
class JsonCursor {
 public:
  using Type = JsonType;

  explicit JsonCursor(std::string_view text, JsonLimits limits = {})
      : limits_(limits), begin_(text.data()), at_(begin_), end_(begin_ + text.size()) {}

  // The type of the next value, which is not taken. kEnd: the end of the text, or an error.
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
  // Takes whatever comes next.
  void Skip() { Skip(Peek()); }
  // The same, and gives it. No value after an error.
  JsonText Take();

  // For going back to a value that was looked at.
  struct Place {
    const char* at;
    int depth;
  };
  Place place() const { return {at_, depth_}; }
  // Only to the beginning of a value.
  void Return(const Place& place) {
    at_ = place.at;
    depth_ = place.depth;
    first_ = false;
  }

  bool ok() const { return error_.empty(); }
  // InvalidArgument: "line 3, column 7: what is wrong".
  absl::Status status() const;
  void Fail(std::string_view what) { Fail(what, at_); }
  // `where` points into the text.
  void Fail(std::string_view what, const char* where);
  // Nothing but white space is left.
  void ExpectEnd();

 private:
  void SkipSpace() {
    while (at_ != end_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\r' || *at_ == '\t')) ++at_;
  }
  bool Enter();
  bool Separator(char close);
  std::string_view EscapedString(const char* start);
  uint32_t EscapedPoint();
  void TakeWord(std::string_view word);
  std::string_view Digits();
  // Takes the value that was peeked at.
  void Skip(Type type);
  void SkipNested(Type outermost);

  const JsonLimits limits_;
  const char* const begin_;
  const char* at_;
  const char* const end_;
  int depth_ = 0;       // of open brackets
  bool first_ = false;  // the next item is the first of its list: no comma before it
  std::string scratch_;
  std::string error_;
  size_t error_offset_ = 0;
};

// How many bytes from the front are well-formed UTF-8.
size_t Utf8Prefix(std::string_view text);
inline bool IsUtf8(std::string_view text) { return Utf8Prefix(text) == text.size(); }

}  // namespace msprobe::server
