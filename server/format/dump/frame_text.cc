#include "server/format/dump/frame_text.h"

#include "server/format/cat.h"

namespace msprobe::server {

std::string FrameText(const v1::Frame& frame) {
  // An import puts a frame that it cannot parse into the path, whole.
  if (frame.line() == 0 && frame.function().empty()) return frame.path();
  return Cat("File ", frame.path(), ", line ", frame.line(), ", in ", frame.function(), ", \n ", frame.source());
}

}  // namespace msprobe::server
