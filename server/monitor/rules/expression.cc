#include <sqlite3.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_replace.h"
#include "server/format/cat.h"
#include "server/monitor/rules/rule_kinds.h"

namespace msprobe::server {
namespace {

constexpr int kLongest = 1000;  // characters
constexpr int kDeepest = 100;   // operators in operators
constexpr size_t kMostNames = 16;
constexpr int kMostInstructions = 10'000;  // of SQLite's machine; an expression takes some dozens
constexpr std::string_view kUnknownName = "no such column: ";
constexpr std::array<std::string_view, 11> kFunctions = {"abs", "exp",   "ln",  "log10", "log2", "max",
                                                         "min", "power", "pow", "round", "sqrt"};

// For SQLite: an expression reads its names and calls functions that compute, nothing else.
int Authorize(void*, int action, const char*, const char* name, const char*, const char*) {
  if (action == SQLITE_SELECT || action == SQLITE_READ) return SQLITE_OK;
  const bool computes = action == SQLITE_FUNCTION && name != nullptr &&
                        std::find(kFunctions.begin(), kFunctions.end(), name) != kFunctions.end();
  return computes ? SQLITE_OK : SQLITE_DENY;
}

// An expression in a database without tables. Threads: one at a time.
class Compiled {
 public:
  Compiled() = default;
  ~Compiled() {
    sqlite3_finalize(statement_);
    sqlite3_close_v2(connection_);
  }
  Compiled(const Compiled&) = delete;
  Compiled& operator=(const Compiled&) = delete;

  // InvalidArgument: what SQLite says of it.
  static absl::StatusOr<std::unique_ptr<Compiled>> Make(const std::string& text) {
    auto made = std::make_unique<Compiled>();
    if (absl::Status status = made->Open(); !status.ok()) return status;
    if (absl::Status status = made->Prepare(text); !status.ok()) return status;
    return made;
  }

  const std::vector<std::string>& names() const { return names_; }
  // values: of names().
  bool IsTrue(const std::vector<double>& values) {
    for (size_t i = 0; i < values.size(); ++i) sqlite3_bind_double(statement_, static_cast<int>(i) + 1, values[i]);
    const bool is_true = sqlite3_step(statement_) == SQLITE_ROW && sqlite3_column_double(statement_, 0) != 0;
    sqlite3_reset(statement_);
    return is_true;
  }

 private:
  absl::Status Open() {
    if (sqlite3_open_v2(":memory:", &connection_, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, nullptr) != SQLITE_OK) {
      return absl::ResourceExhaustedError("SQLite has no memory for an expression");
    }
    sqlite3_db_config(connection_, SQLITE_DBCONFIG_DQS_DML, 0, nullptr);  // a quoted name is never a text
    sqlite3_limit(connection_, SQLITE_LIMIT_LENGTH, 10 * kLongest);
    sqlite3_limit(connection_, SQLITE_LIMIT_EXPR_DEPTH, kDeepest);
    sqlite3_set_authorizer(connection_, Authorize, nullptr);
    sqlite3_progress_handler(
        connection_, kMostInstructions, [](void*) { return 1; }, nullptr);
    return absl::OkStatus();
  }

  // SQLite tells one unknown name after the other.
  absl::Status Prepare(const std::string& text) {
    while (true) {
      std::string columns;
      for (const std::string& name : names_) {
        columns += Cat(columns.empty() ? "" : ", ", "? AS \"", absl::StrReplaceAll(name, {{"\"", "\"\""}}), "\"");
      }
      const std::string sql = Cat("SELECT (", text, ") FROM (SELECT ", columns.empty() ? "1" : columns, ")");
      const char* rest = nullptr;
      if (sqlite3_prepare_v2(connection_, sql.c_str(), -1, &statement_, &rest) == SQLITE_OK) {
        if (*rest != '\0') return absl::InvalidArgumentError("it is more than one expression");
        return names_.empty() ? absl::InvalidArgumentError("it names no series") : absl::OkStatus();
      }
      const std::string_view said = sqlite3_errmsg(connection_);
      const std::string name(said.starts_with(kUnknownName) ? said.substr(kUnknownName.size()) : "");
      const bool is_new = !name.empty() && std::find(names_.begin(), names_.end(), name) == names_.end();
      if (!is_new) return absl::InvalidArgumentError(said.data());
      if (names_.size() == kMostNames)
        return absl::InvalidArgumentError(Cat("it has more than ", kMostNames, " names"));
      names_.push_back(name);
    }
  }

  sqlite3* connection_ = nullptr;
  sqlite3_stmt* statement_ = nullptr;
  std::vector<std::string> names_;
};

// The latest point of each name.
struct Points {
  std::vector<std::optional<uint32_t>> step;
  std::vector<double> value;
};

class ExpressionWatch final : public SeriesWatch {
 public:
  ExpressionWatch(const v1::Expression& rule, Compiled* compiled, std::shared_ptr<Points> points, size_t name,
                  std::shared_ptr<Patience> patience)
      : if_(rule.if_()),
        compiled_(*compiled),
        points_(std::move(points)),
        name_(name),
        patience_(std::move(patience)) {}

  std::optional<Offence> Look(uint32_t step, double value) override {
    points_->step[name_] = step;
    points_->value[name_] = value;
    if (!std::all_of(points_->step.begin(), points_->step.end(), [step](const auto& each) { return each == step; })) {
      return std::nullopt;
    }
    if (!patience_->Count(compiled_.IsTrue(points_->value))) return std::nullopt;
    std::string values;
    for (size_t i = 0; i < points_->value.size(); ++i) {
      values += Cat(i == 0 ? "" : ", ", compiled_.names()[i], " is ", Shown(points_->value[i]));
    }
    return Offence{.limit = 0, .why = Cat(if_, " is true: ", values)};
  }

 private:
  const std::string if_;
  Compiled& compiled_;
  const std::shared_ptr<Points> points_;
  const size_t name_;
  const std::shared_ptr<Patience> patience_;
};

class ExpressionRule final : public Rule {
 public:
  ExpressionRule(v1::Expression rule, std::unique_ptr<Compiled> compiled)
      : rule_(std::move(rule)), compiled_(std::move(compiled)) {}

  std::unique_ptr<SeriesWatch> Watch(const WatchedSeries& series) override {
    const std::vector<std::string>& names = compiled_->names();
    const auto found = std::find(names.begin(), names.end(), series.name);
    if (found == names.end()) return nullptr;
    Session& session = sessions_[series.session];
    std::shared_ptr<Points> points = session.points.lock();
    if (points == nullptr) {
      points = std::make_shared<Points>();
      points->step.resize(names.size());
      points->value.resize(names.size());
      session.points = points;
      session.patience = std::make_shared<Patience>(Or(rule_.patience(), uint32_t{1}));
    }
    return std::make_unique<ExpressionWatch>(rule_, compiled_.get(), std::move(points),
                                             static_cast<size_t>(found - names.begin()), session.patience);
  }

 private:
  struct Session {
    std::weak_ptr<Points> points;
    std::shared_ptr<Patience> patience;
  };

  const v1::Expression rule_;
  const std::unique_ptr<Compiled> compiled_;
  std::map<std::string, Session> sessions_;
};

}  // namespace

absl::Status CheckExpression(const v1::Rule& rule) {
  const std::string& text = rule.expression().if_();
  if (text.empty()) return absl::InvalidArgumentError("expression.if is needed, such as \"lr > 0.01 and loss > 5\"");
  if (text.size() > kLongest) {
    return absl::InvalidArgumentError(Cat("expression.if has more than ", kLongest, " characters"));
  }
  auto compiled = Compiled::Make(text);
  if (compiled.ok()) return absl::OkStatus();
  return absl::InvalidArgumentError(Cat("expression.if is ", text, ": ", StdView(compiled.status().message())));
}

std::unique_ptr<Rule> MakeExpression(const v1::Rule& rule) {
  return std::make_unique<ExpressionRule>(rule.expression(), *Compiled::Make(rule.expression().if_()));
}

}  // namespace msprobe::server
