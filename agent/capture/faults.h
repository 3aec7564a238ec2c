#pragma once

#include <exception>
#include <string_view>

#include "agent/capture/open_record.h"
#include "agent/core/session.h"

namespace msprobe::capture {

// Keeps our faults from the program: an exception becomes a counted fault of a record and a line of
// dump_error_info.log.
//
// Thread-safe.
class Faults {
 public:
  // `session` outlives this.
  explicit Faults(core::Session* session) : session_(*session) {}

  // Runs `body`. An exception of it becomes a fault of `where`.
  template <typename Body>
  void Contain(const OpenRecord& where, Body&& body) noexcept {
    try {
      body();
    } catch (const std::exception& error) {
      Report(where, error.what());
    } catch (...) {
      Report(where, "unknown exception");
    }
  }
  void Report(const OpenRecord& where, std::string_view message) noexcept;

 private:
  core::Session& session_;
};

}  // namespace msprobe::capture
