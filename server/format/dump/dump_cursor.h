#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "server/format/dump/unique_names.h"
#include "server/format/json/json_cursor.h"

namespace msprobe::server {

// The one reader of dump.json and debug.json: walks the entries of "data" in their order, without a document in
// between.
//
//   DumpCursor dump(text);
//   std::string name;
//   while (dump.NextEntry(name)) {
//     // dump.json() stands before the entry's value: NextDumpValue() says what it is; the whole of it must be taken.
//   }
//   // dump.status(), and then what stands beside the entries.
//
// Whatever the entries may be used for, a text that is not UTF-8 or not JSON is refused, and one with two entries of a
// name: no reader could tell which is meant.
// Threads: one at a time. Ownership: the text outlives the cursor and all values that it gave.
class DumpCursor {
 public:
  explicit DumpCursor(std::string_view text, JsonLimits limits = {}) : text_(text), json_(text, limits) {}

  // False: there are no more, or the text is refused.
  bool NextEntry(std::string& name);
  JsonCursor& json() { return json_; }

  // InvalidArgument: "line 3, column 7: what is wrong".
  absl::Status status() const { return json_.status(); }

  // Once NextEntry has said false: the members beside the entries. No value: there is no such member.
  const JsonText& task() const { return task_; }
  const JsonText& level() const { return level_; }
  const JsonText& framework() const { return framework_; }
  // Only its type where it is an object.
  const JsonText& data() const { return data_; }

 private:
  enum class State : uint8_t { kBefore, kTop, kData, kAfter };

  bool NextMember();

  const std::string_view text_;
  JsonCursor json_;
  State state_ = State::kBefore;
  UniqueNames names_{text_};  // of the entries
  JsonText task_, level_, framework_, data_;
};

// Opens the object that a file of a dump is. False: it is refused, and the cursor says why.
bool EnterFile(JsonCursor& json, std::string_view text);

}  // namespace msprobe::server
