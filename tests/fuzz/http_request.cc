// What comes to the ports of the page and of the metrics: a request in pieces, as the server's parser takes it, its
// Host, its address, and names on their way to a line of the log. The first byte is the size of the pieces.

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http.hpp>
#include <cstdlib>
#include <string>

#include "agent/core/utf8.h"
#include "server/access/listen_address.h"
#include "server/web/http_target.h"
#include "tests/fuzz/fuzz_target.h"

namespace {

using msprobe::server::HostPort;
using msprobe::server::ParseHostPort;

// What is loopback is so however it is written again, and what is visible stays as it is.
void CheckText(std::string_view text) {
  if (const std::optional<HostPort> host = ParseHostPort(text); host.has_value() && IsLoopback(*host)) {
    const bool ipv6 = host->host.find(':') != std::string::npos;
    const std::optional<HostPort> again = ParseHostPort(ipv6 ? "[" + host->host + "]" : host->host);
    if (!again.has_value() || !IsLoopback(*again)) std::abort();
  }
  (void)msprobe::server::ParseTarget(text);
  const std::string visible = msprobe::core::Visible(text);
  if (msprobe::core::Visible(visible) != visible) std::abort();
  if (visible.find_first_of(std::string_view("\n\r\x1b\0", 4)) != std::string::npos) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace http = boost::beast::http;
  if (size == 0) return 0;
  const std::string_view text = msprobe::fuzz::Text(data + 1, size - 1);
  CheckText(text);
  http::request_parser<http::empty_body> parser;
  parser.header_limit(32 << 10);
  parser.body_limit(UINT64_MAX);
  const size_t piece = std::max<size_t>(data[0], 1);
  std::string pending;
  for (size_t at = 0; at < text.size() && !parser.is_header_done(); at += piece) {
    pending += text.substr(at, piece);
    boost::system::error_code error;
    pending.erase(0, parser.put(boost::asio::buffer(pending), error));
    if (error && error != http::error::need_more) return 0;
  }
  if (!parser.is_header_done()) return 0;
  const auto& request = parser.get();
  CheckText(std::string_view(request.target().data(), request.target().size()));
  for (const auto& field : request) CheckText(std::string_view(field.value().data(), field.value().size()));
  return 0;
}
