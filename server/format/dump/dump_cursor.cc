#include "server/format/dump/dump_cursor.h"

#include "server/format/cat.h"
#include "server/format/json/json_value.h"

namespace msprobe::server {

bool EnterFile(JsonCursor& json, std::string_view text) {
  if (const size_t good = Utf8Prefix(text); good != text.size()) {
    json.Fail("the text is not UTF-8", text.data() + good);
    return false;
  }
  if (json.Peek() == JsonType::kObject) return json.EnterObject();
  const JsonText other = json.Take();
  if (json.ok()) json.Fail(Cat("a JSON object is expected, not ", Describe(other)), other.text.data());
  return false;
}

bool DumpCursor::NextEntry(std::string& name) {
  if (state_ == State::kBefore) state_ = EnterFile(json_, text_) ? State::kTop : State::kAfter;
  while (true) {
    if (state_ == State::kData) {
      std::string_view key;
      const char* const begin = json_.place().at;
      if (json_.NextKey(key)) {
        name = key;
        if (names_.Add(key)) return true;
        json_.Fail(Cat("data has the entry ", name, " twice; leave one of them"), begin);
      }
      state_ = State::kTop;
    }
    if (state_ == State::kAfter || !NextMember()) return false;
  }
}

// Of the outermost object. False: there are no more.
bool DumpCursor::NextMember() {
  std::string_view key;
  if (!json_.NextKey(key)) {
    state_ = State::kAfter;
    if (json_.ok()) json_.ExpectEnd();
    return false;
  }
  if (key == "data") {
    data_.type = json_.Peek();
    if (!data_.is_object()) {
      data_ = json_.Take();
    } else if (json_.EnterObject()) {
      state_ = State::kData;
    }
  } else if (key == "task") {
    task_ = json_.Take();
  } else if (key == "level") {
    level_ = json_.Take();
  } else if (key == "framework") {
    framework_ = json_.Take();
  } else {
    json_.Skip();
  }
  return true;
}

}  // namespace msprobe::server
