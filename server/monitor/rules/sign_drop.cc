#include <optional>

#include "server/analysis/signs/sign_limits.h"
#include "server/format/cat.h"
#include "server/monitor/rules/rule_kinds.h"

namespace msprobe::server {
namespace {

class SignDropWatch final : public SeriesWatch {
 public:
  explicit SignDropWatch(const v1::SignDrop& rule)
      : golden_(rule.golden()), watch_({.least = Or(rule.least(), 0.97), .drop = Or(rule.drop(), 0.03)}) {}

  std::optional<Offence> Look(uint32_t, double value) override {
    switch (watch_.Look(value)) {
      case SignWatch::Verdict::kSimilar:
        return std::nullopt;
      case SignWatch::Verdict::kLow:
        return Offence{.limit = watch_.limits().least,
                       .why = Cat("at its first step ", Shown(value), " of the signs are those of run ", golden_,
                                  "; at least ", Shown(watch_.limits().least), " should be")};
      case SignWatch::Verdict::kDrop:
        break;
    }
    const double before = *watch_.before();
    return Offence{.limit = before - watch_.limits().drop,
                   .why = Cat(Shown(value), " of the signs are those of run ", golden_, ", ", Shown(before),
                              " were at the step before; a fall of ", Shown(watch_.limits().drop), " is allowed")};
  }

 private:
  const std::string golden_;
  SignWatch watch_;
};

class SignDropRule final : public Rule {
 public:
  explicit SignDropRule(v1::SignDrop rule) : rule_(std::move(rule)) {}
  std::unique_ptr<SeriesWatch> Watch(const WatchedSeries& series) override {
    if (!series.name.ends_with(kSignSimilarity)) return nullptr;
    return std::make_unique<SignDropWatch>(rule_);
  }

 private:
  const v1::SignDrop rule_;
};

}  // namespace

std::unique_ptr<Rule> MakeSignDrop(const v1::Rule& rule) { return std::make_unique<SignDropRule>(rule.sign_drop()); }

}  // namespace msprobe::server
