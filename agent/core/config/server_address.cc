#include "agent/core/config/server_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "agent/core/str_cat.h"

namespace msprobe::core {
namespace {

constexpr size_t kLongestSocketPath = 107;  // sockaddr_un::sun_path without its end

absl::Status AddressRefusal(std::string_view address, std::string_view why) {
  return absl::InvalidArgumentError(Cat("server is invalid: \"", address, "\" ", why,
                                        "; it should be \"host:port\", \"[IPv6 address]:port\" or "
                                        "\"unix:/absolute/path\", or several of them with commas between"));
}

bool IsPort(std::string_view text) {
  uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  return error == std::errc() && end == text.data() + text.size() && port >= 1;
}

bool IsHost(std::string_view text) {
  return !text.empty() && text.size() <= 253 && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return absl::ascii_isalnum(c) || c == '.' || c == '-' || c == '_';
  });
}

// A zone (%eth0) is left out.
std::optional<in6_addr> Ipv6(std::string_view text) {
  in6_addr address;
  const std::string terminated(text.substr(0, text.find('%')));
  return inet_pton(AF_INET6, terminated.c_str(), &address) == 1 ? std::optional(address) : std::nullopt;
}

}  // namespace

absl::StatusOr<std::string> ParseServerAddress(std::string_view address) {
  std::string_view rest = address;
  if (rest.starts_with("unix:")) {
    rest.remove_prefix(5);
    if (rest.empty() || rest.front() != '/') return AddressRefusal(address, "has no absolute path");
    if (rest.size() > kLongestSocketPath) return AddressRefusal(address, "has a path of more than 107 bytes");
    return std::string(address);
  }
  const size_t colon = rest.rfind(':');
  if (colon == std::string_view::npos) return AddressRefusal(address, "has no port");
  const std::string_view port = rest.substr(colon + 1);
  std::string_view host = rest.substr(0, colon);
  if (!IsPort(port)) return AddressRefusal(address, "has no port from 1 to 65535");
  if (host.starts_with('[')) {
    if (!host.ends_with(']') || !Ipv6(host.substr(1, host.size() - 2)).has_value()) {
      return AddressRefusal(address, "has no IPv6 address in brackets");
    }
  } else if (!IsHost(host)) {
    return AddressRefusal(address, "has no host name");
  }
  return std::string(address);
}

bool IsOfThisMachine(std::string_view target) {
  if (target.starts_with("unix:")) return true;
  std::string host(target.substr(0, target.rfind(':')));
  if (absl::EqualsIgnoreCase(host, "localhost")) return true;
  if (host.starts_with('[')) {
    const std::optional<in6_addr> ip = Ipv6(std::string_view(host).substr(1, host.size() - 2));
    if (!ip.has_value()) return false;
    return IN6_IS_ADDR_LOOPBACK(&*ip) || (IN6_IS_ADDR_V4MAPPED(&*ip) && ip->s6_addr[12] == IN_LOOPBACKNET);
  }
  in_addr ip;
  return inet_pton(AF_INET, host.c_str(), &ip) == 1 && ntohl(ip.s_addr) >> IN_CLASSA_NSHIFT == IN_LOOPBACKNET;
}

absl::StatusOr<std::vector<std::string>> ParseServerAddresses(std::string_view addresses) {
  std::vector<std::string> parsed;
  while (true) {
    const size_t comma = addresses.find(',');
    std::string_view one = addresses.substr(0, comma);
    while (!one.empty() && one.front() == ' ') one.remove_prefix(1);
    while (!one.empty() && one.back() == ' ') one.remove_suffix(1);
    absl::StatusOr<std::string> address = ParseServerAddress(one);
    if (!address.ok()) return address.status();
    parsed.push_back(*std::move(address));
    if (comma == std::string_view::npos) return parsed;
    addresses.remove_prefix(comma + 1);
  }
}

}  // namespace msprobe::core
