#pragma once

#include <string>
#include <string_view>

#include "rapidjson/stringbuffer.h"
#include "rapidjson/writer.h"

namespace msprobe::server {

// The shortest digits that give `value` back, as Python's repr writes them: 1.0, 1e-42, 3.0000000054977558e+38, NaN,
// Infinity, -Infinity.
std::string JsonNumber(double value);

// RapidJSON's writer with JsonNumber for doubles and ASCII escapes, as json.dump writes.
class JsonWriter : public rapidjson::Writer<rapidjson::StringBuffer, rapidjson::UTF8<>, rapidjson::ASCII<>> {
 public:
  // strict: NaN and the infinities, for which JSON has no number, become null.
  explicit JsonWriter(bool strict) : Writer(buffer_), strict_(strict) {}

  bool Double(double value);
  bool Text(std::string_view text);
  bool Name(std::string_view key) { return Text(key); }
  // JSON text (with bare NaN and Infinity allowed), written anew; null if JsonCursor refuses it.
  void Json(std::string_view text);

  // The text since the last Take.
  std::string Take();

 private:
  // Puts a value as it is: RapidJSON would decode and encode it byte by byte.
  bool Put(std::string_view value, rapidjson::Type type);

  rapidjson::StringBuffer buffer_;
  const bool strict_;
};

}  // namespace msprobe::server
