#include "server/web/http_target.h"

#include <charconv>
#include <utility>

namespace msprobe::server {
namespace {

std::optional<std::string> Decoded(std::string_view text, bool plus_is_space) {
  std::string decoded;
  decoded.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (plus_is_space && text[i] == '+') {
      decoded += ' ';
    } else if (text[i] != '%') {
      decoded += text[i];
    } else {
      const std::string_view digits = text.substr(i + 1, 2);
      uint8_t byte = 0;
      const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), byte, 16);
      if (digits.size() != 2 || error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
      decoded += static_cast<char>(byte);
      i += 2;
    }
  }
  return decoded;
}

}  // namespace

std::optional<HttpTarget> ParseTarget(std::string_view target) {
  if (!target.starts_with('/')) return std::nullopt;
  const size_t question = target.find('?');
  std::optional<std::string> path = Decoded(target.substr(0, question), false);
  if (!path.has_value()) return std::nullopt;
  HttpTarget parsed{*std::move(path), {}};
  std::string_view rest = question == std::string_view::npos ? std::string_view() : target.substr(question + 1);
  while (!rest.empty()) {
    const std::string_view pair = rest.substr(0, rest.find('&'));
    rest.remove_prefix(std::min(pair.size() + 1, rest.size()));
    if (pair.empty()) continue;
    const size_t equals = pair.find('=');
    std::optional<std::string> name = Decoded(pair.substr(0, equals), true);
    std::optional<std::string> value =
        Decoded(equals == std::string_view::npos ? std::string_view() : pair.substr(equals + 1), true);
    if (!name.has_value() || !value.has_value()) return std::nullopt;
    parsed.query.emplace(*std::move(name), *std::move(value));
  }
  return parsed;
}

}  // namespace msprobe::server
