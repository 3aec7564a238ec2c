#include "agent/capture/fragments/structure_ids.h"

namespace msprobe::capture {

core::StructureId StructureIds::Of(const FragmentBuilder& builder) {
  absl::MutexLock lock(&mu_);
  const auto found = ids_.find(absl::string_view(builder.signature().data(), builder.signature().size()));
  if (found != ids_.end()) return found->second;
  const core::StructureId id = session_->DefineStructure(builder.BuildStructure());
  ids_.emplace(builder.signature(), id);
  return id;
}

}  // namespace msprobe::capture
