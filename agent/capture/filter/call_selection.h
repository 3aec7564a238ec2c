#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "agent/capture/open_record.h"
#include "agent/core/config/config.h"
#include "agent/core/config/selector.h"

namespace msprobe::capture {

// The field `select`, asked of calls. What is true of an API inside of a module is found out once.
//
// Not thread-safe: RecordOpener guards it.
class CallSelection {
 public:
  using Name = std::shared_ptr<const std::string>;  // of a module's records, without count

  // The configuration's selector has been checked.
  explicit CallSelection(const core::Config& config);

  // False: nothing is configured, and every call is taken.
  bool active() const { return selector_.has_value(); }
  // Whether what is taken of APIs depends on the modules around them.
  bool reads_around() const { return active() && selector_->reads_modules() && takes_apis_; }

  bool TakesModule(const std::string& name) const;
  // around: the innermost module; null: there is none, or it makes no difference.
  bool TakesApi(const Api& api, const Name& around);

 private:
  using Place = std::pair<const Api*, const std::string*>;  // an API, and the module around it
  struct Answer {
    Name around;  // kept, so that its address stays its own
    bool takes = false;
  };

  const bool takes_apis_;  // by the level
  const std::optional<core::Selector> selector_;
  absl::flat_hash_map<Place, Answer> answers_;
};

}  // namespace msprobe::capture
