#include "agent/capture/faults.h"

namespace msprobe::capture {

void Faults::Report(const OpenRecord& where, std::string_view message) noexcept {
  try {
    session_.ReportFault(where.step, where.name == nullptr ? "" : where.FullName(), message);
  } catch (...) {  // no memory for a name: the fault is lost, the program goes on
  }
}

}  // namespace msprobe::capture
