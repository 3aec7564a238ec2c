// Values of dump.json as cells, and as Python prints them.

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <limits>
#include <string>

#include "server/analysis/table/dump_table.h"
#include "server/format/json/json_writer.h"

namespace msprobe::server {
namespace {

using Type = JsonCursor::Type;

double RealOf(std::string_view digits) {
  double value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error == std::errc::result_out_of_range) {
    // Underflow or overflow: what strtod says.
    return std::strtod(std::string(digits).c_str(), nullptr);
  }
  return value;
}

}  // namespace

void AppendPythonRepr(std::string_view text, std::string& out) {
  const bool twice = text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos;
  const char quote = twice ? '"' : '\'';
  out += quote;
  const bool plain = std::none_of(text.begin(), text.end(), [&](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return c == quote || c == '\\' || byte < 0x20 || byte == 0x7F;
  });
  if (plain) {
    out += text;
    out += quote;
    return;
  }
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == quote || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (byte < 0x20 || byte == 0x7F) {
      constexpr char kHex[] = "0123456789abcdef";
      out += "\\x";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    } else {
      out += c;
    }
  }
  out += quote;
}

Cell DumpTableBuilder::CellOf(JsonCursor& json) {
  switch (json.Peek()) {
    case Type::kNumber: {
      const std::string_view digits = json.Number();
      if (digits.find_first_of(".eE") == std::string_view::npos) {
        int64_t value = 0;
        const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
        if (error == std::errc()) return Cell::Integer(value);
        return Cell::Text(table_->arena.Add(digits));
      }
      return Cell::Real(RealOf(digits));
    }
    case Type::kTrue:
      json.Literal();
      return Cell::Boolean(true);
    case Type::kFalse:
      json.Literal();
      return Cell::Boolean(false);
    case Type::kNull:
      json.Literal();
      return Cell();
    case Type::kNaN:
      json.Literal();
      return Cell::Real(std::numeric_limits<double>::quiet_NaN());
    case Type::kInfinity:
      json.Literal();
      return Cell::Real(std::numeric_limits<double>::infinity());
    case Type::kMinusInfinity:
      json.Literal();
      return Cell::Real(-std::numeric_limits<double>::infinity());
    case Type::kString:
      return Cell::Text(table_->arena.Add(json.String()));
    default: {
      const size_t start = json.offset();
      json.Skip();  // bounds the depth
      if (!json.ok()) return Cell();
      const size_t end = json.offset();
      json.Return(start);
      const Cell cell = Cell::Text(table_->arena.Add(PythonText(json, false)));
      json.Return(end);
      return cell;
    }
  }
}

uint32_t DumpTableBuilder::ShapeOf(JsonCursor& json) {
  shape_.assign(1, '[');
  if (!json.EnterArray()) return 0;
  while (json.NextItem()) {
    if (shape_.size() > 1) shape_ += ", ";
    shape_ += json.Number();
  }
  shape_ += ']';
  return table_->Intern(shape_);
}

std::string DumpTableBuilder::PythonText(JsonCursor& json, bool repr) {
  switch (json.Peek()) {
    case Type::kString: {
      if (!repr) return std::string(json.String());
      std::string text;
      AppendPythonRepr(json.String(), text);
      return text;
    }
    case Type::kArray: {
      std::string text = "[";
      if (!json.EnterArray()) return text;
      while (json.NextItem()) {
        if (text.size() > 1) text += ", ";
        text += PythonText(json, true);
      }
      text += ']';
      return text;
    }
    case Type::kObject: {
      std::string text = "{";
      if (!json.EnterObject()) return text;
      std::string_view key;
      while (json.NextKey(key)) {
        if (text.size() > 1) text += ", ";
        AppendPythonRepr(key, text);
        text += ": ";
        text += PythonText(json, true);
      }
      text += '}';
      return text;
    }
    case Type::kTrue:
      json.Literal();
      return "True";
    case Type::kFalse:
      json.Literal();
      return "False";
    case Type::kNull:
      json.Literal();
      return "None";
    case Type::kNumber: {
      const std::string_view digits = json.Number();
      if (digits.find_first_of(".eE") == std::string_view::npos) return std::string(digits);
      return JsonNumber(RealOf(digits));
    }
    case Type::kNaN:
      json.Literal();
      return "nan";
    case Type::kInfinity:
      json.Literal();
      return "inf";
    case Type::kMinusInfinity:
      json.Literal();
      return "-inf";
    default:
      json.Fail("a value is expected");
      return "";
  }
}

}  // namespace msprobe::server
