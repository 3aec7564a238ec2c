#pragma once

#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl.hpp>
#include <functional>
#include <variant>
#include <vector>

namespace msprobe::server {

// A TCP connection, by Boost.Asio, with or without TLS. Every operation has a handler of the same type, so Asio's
// templates are compiled here alone, once for each kind of connection: where they stood in each caller, they took 50
// seconds of a build. Threads: as Asio's sockets, from one at a time. One Read and one Write may be under way. The
// stream and what a buffer points to must last until the handler has run, or until the context is destroyed.
class NetStream {
 public:
  using Socket = boost::asio::ip::tcp::socket;
  // bytes: how many were read or written; 0 where the operation has none.
  using Handler = std::function<void(boost::system::error_code error, size_t bytes)>;

  // tls: null for a connection without it; it must outlive the stream.
  NetStream(Socket socket, boost::asio::ssl::context* tls);

  Socket& socket();
  // OpenSSL's part; null without TLS.
  SSL* tls();

  // Only with TLS.
  void Handshake(boost::asio::ssl::stream_base::handshake_type side, Handler handler);
  // Some bytes, as soon as there are any.
  void Read(boost::asio::mutable_buffer into, Handler handler);
  // All bytes.
  void Write(const std::vector<boost::asio::const_buffer>& bytes, Handler handler);
  // Only with TLS: tells the other side that nothing follows, and hears the same from it.
  void Shutdown(Handler handler);

 private:
  using Secure = boost::asio::ssl::stream<Socket>;
  std::variant<Socket, Secure> stream_;
};

}  // namespace msprobe::server
