#include "server/app/advertisement.h"

#include <rapidjson/document.h>
#include <rapidjson/stringbuffer.h>
#include <rapidjson/writer.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

#include "server/format/cat.h"

namespace msprobe::server {

absl::Status WriteAdvertisement(const std::string& path, const std::string& address, const std::string& server_id) {
  rapidjson::StringBuffer text;
  rapidjson::Writer<rapidjson::StringBuffer> writer(text);
  writer.StartObject();
  writer.Key("address");
  writer.String(address.c_str());
  writer.Key("pid");
  writer.Int(getpid());
  writer.Key("server_id");
  writer.String(server_id.c_str());
  writer.EndObject();
  const std::string temporary = Cat(path, ".", getpid());
  std::ofstream file(temporary, std::ios::trunc);
  file << text.GetString() << "\n";
  file.close();
  std::error_code error;
  if (file) std::filesystem::rename(temporary, path, error);
  if (!file || error) return absl::FailedPreconditionError(Cat("cannot write --advertise=", path));
  return absl::OkStatus();
}

void RemoveAdvertisement(const std::string& path) {
  std::stringstream content;
  content << std::ifstream(path).rdbuf();
  rapidjson::Document document;
  document.Parse(content.str().c_str());
  if (document.HasParseError() || !document.IsObject()) return;
  const auto pid = document.FindMember("pid");
  if (pid == document.MemberEnd() || !pid->value.IsInt() || pid->value.GetInt() != getpid()) return;
  std::error_code error;
  std::filesystem::remove(path, error);
}

}  // namespace msprobe::server
