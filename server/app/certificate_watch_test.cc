#include "server/app/certificate_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "server/format/cat.h"
#include "server/store/disk/scratch_directory.h"

namespace msprobe::server {
namespace {

using testing::HasSubstr;

// Makes certificates with the program openssl, as an operator would.
class CertificateWatchTest : public testing::Test {
 protected:
  std::string Path(const std::string& name) const { return directory_ / name; }
  void Make(const std::string& name, int days) {
    const std::string command =
        Cat("openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days ", days, " -keyout ",
            Path(name + ".key"), " -out ", Path(name + ".pem"), " -subj /CN=", name, " 2>/dev/null");
    ASSERT_EQ(std::system(command.c_str()), 0);
  }
  SecurityOptions Options() const {
    SecurityOptions options;
    options.tls_cert = Path("server.pem");
    options.tls_key = Path("server.key");
    return options;
  }
  // Days until the expiry that the metric shows.
  double DaysLeft(const std::string& flag) {
    return (metrics_.Value(Metric::kCertificateExpiry, {flag}) - absl::ToDoubleSeconds(now_ - absl::UnixEpoch())) /
           86400;
  }

  ScratchDirectory directory_;
  Metrics metrics_;
  const absl::Time now_ = absl::Now();
};

TEST_F(CertificateWatchTest, SaysWhenTheyEndAndFollowsTheFiles) {
  Make("server", 5);
  Make("other", 50);
  SecurityOptions options = Options();
  options.tls_client_ca = Path("authorities.pem");
  // While one authority replaces another, the later expiry counts.
  std::ofstream(options.tls_client_ca) << std::ifstream(Path("server.pem")).rdbuf()
                                       << std::ifstream(Path("other.pem")).rdbuf();
  CertificateWatch watch(options, Path("server.pem"), &metrics_);
  watch.Tick(now_);
  EXPECT_NEAR(DaysLeft("tls_cert"), 5, 0.1);
  EXPECT_NEAR(DaysLeft("tls_client_ca"), 50, 0.1);
  EXPECT_NEAR(DaysLeft("shard_ca"), 5, 0.1);
  // A certificate without its key is not used, so its end is not the one that counts.
  std::filesystem::copy_file(Path("other.pem"), Path("server.pem"), std::filesystem::copy_options::overwrite_existing);
  watch.Tick(now_ + absl::Seconds(60));
  EXPECT_NEAR(DaysLeft("tls_cert"), 5, 0.1);
  std::filesystem::copy_file(Path("other.key"), Path("server.key"), std::filesystem::copy_options::overwrite_existing);
  watch.Tick(now_ + absl::Seconds(61));
  EXPECT_NEAR(DaysLeft("tls_cert"), 5, 0.1) << "not before tls_reload_seconds";
  watch.Tick(now_ + absl::Seconds(120));
  EXPECT_NEAR(DaysLeft("tls_cert"), 50, 0.1);
}

TEST_F(CertificateWatchTest, AnExpiredOneIsRefusedAtTheStart) {
  Make("server", 5);
  Make("client", 1);
  SecurityOptions options = Options();
  EXPECT_TRUE(CheckCertificates(options, now_).ok());
  EXPECT_THAT(CheckCertificates(options, now_ + absl::Hours(24 * 6)).ToString(),
              AllOf(HasSubstr("--tls_cert="), HasSubstr("has expired at 20"), HasSubstr("give one that is valid")));
  options.tls_client_ca = Path("client.pem");
  EXPECT_TRUE(CheckCertificates(options, now_).ok());
  EXPECT_THAT(CheckCertificates(options, now_ + absl::Hours(48)).ToString(), HasSubstr("--tls_client_ca="));
}

TEST_F(CertificateWatchTest, WhatIsNoneIsRefusedAtTheStart) {
  Make("server", 5);
  Make("other", 5);
  std::ofstream(Path("text")) << "hello";
  SecurityOptions options = Options();
  options.tls_key = Path("other.key");
  EXPECT_THAT(CheckCertificates(options, now_).ToString(), HasSubstr("are not a certificate and its private key"));
  options.tls_cert = Path("text");
  EXPECT_THAT(CheckCertificates(options, now_).ToString(), HasSubstr("holds no certificate"));
  options.tls_cert = "/nowhere";
  EXPECT_THAT(CheckCertificates(options, now_).ToString(), HasSubstr("--tls_cert=/nowhere cannot be read"));
}

}  // namespace
}  // namespace msprobe::server
