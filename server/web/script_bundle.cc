#include "server/web/script_bundle.h"

#include <set>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "server/format/cat.h"
#include "server/web/assets.h"

namespace msprobe::server {
namespace {

bool Take(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

// "/heat_map.js" is $heat_map.
std::string VariableOf(std::string_view path) {
  path.remove_prefix(1);
  return Cat("$", path.substr(0, path.rfind('.')));
}

std::string_view NameAt(std::string_view text) {
  size_t size = 0;
  const auto is_part = [](char c) {
    return c == '_' || c == '$' || absl::ascii_isalnum(static_cast<unsigned char>(c));
  };
  while (size < text.size() && is_part(text[size])) ++size;
  return text.substr(0, size);
}

class Bundle {
 public:
  Bundle(std::string_view path, std::string_view instead) : path_(path), instead_(instead) {}

  void Add(std::string_view path) {
    if (!added_.insert(std::string(path)).second) return;
    std::string body;
    std::vector<std::string> names;
    const std::string_view content = FindAsset(path)->content;
    for (const absl::string_view absl_line : absl::StrSplit(absl::string_view(content.data(), content.size()), '\n')) {
      std::string_view line(absl_line.data(), absl_line.size());
      if (Take(line, "import ")) {
        body += Imported(line);
        continue;
      }
      if (Take(line, "export ")) {
        std::string_view rest = line;
        Take(rest, "async ");
        for (const std::string_view kind : {"function ", "class ", "const "}) {
          if (Take(rest, kind)) break;
        }
        names.emplace_back(NameAt(rest));
      }
      body += Cat(line, "\n");
    }
    std::string exports;
    for (const std::string& name : names) exports += Cat(exports.empty() ? "" : ", ", name);
    script_ += Cat("const ", VariableOf(path), " = (() => {\n", body, "return { ", exports, " };\n})();\n");
  }

  std::string Take() { return std::move(script_); }

 private:
  // line: { a, b } from "/x.js";
  std::string Imported(std::string_view line) {
    const size_t from = line.find(" from \"");
    std::string_view path = line.substr(from + 7);
    path = path.substr(0, path.find('"'));
    if (path == path_) path = instead_;
    Add(path);
    return Cat("const ", line.substr(0, from), " = ", VariableOf(path), ";\n");
  }

  const std::string_view path_, instead_;
  std::set<std::string> added_;
  std::string script_;
};

}  // namespace

std::string BundledScript(std::string_view entry, std::string_view path, std::string_view instead) {
  Bundle bundle(path, instead);
  bundle.Add(entry);
  return bundle.Take();
}

}  // namespace msprobe::server
