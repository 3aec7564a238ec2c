#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "rapidjson/document.h"
#include "server/web/report.h"
#include "server/web/web_question.h"

namespace msprobe::server {

// The answers that a report shows, with the questions that they answer, in a bounded number of bytes. What does not
// find room is named, with the command that shows it.
class RecordedAnswers {
 public:
  using Parameters = std::map<std::string, std::string>;
  static constexpr int kLeftOut = -1;

  // A question, and how large its answer may be. `sizes`: parameters from the largest answer to the smallest.
  struct Part {
    std::string_view kind;
    Parameters parameters;
    size_t most = 0;  // bytes
    std::vector<Parameters> sizes = {{}};
  };

  // room: bytes of everything, names of what was left out included.
  RecordedAnswers(const WebContext& context, const ReportQuestion& question, size_t room)
      : context_(context), question_(question), room_(room) {}

  // Asks a question of the page with the first of its sizes that finds room, and gives that size's index; kLeftOut:
  // none does. `read` takes the answer, too. Errors: those of the answer.
  absl::StatusOr<int> Add(const Part& part, rapidjson::Document* read = nullptr);
  // Names something that the report lacks, and the command that shows it.
  void Lack(std::string_view what, std::string_view command);

  size_t room() const { return room_; }
  // JSON, safe inside an element of HTML: [{"kind", "asked": {parameter: text}, "answer"}, ...].
  std::string Answers() const { return "[" + answers_ + "]"; }
  // The same: [{"what", "command"}, ...].
  std::string Lacks() const { return "[" + lacks_ + "]"; }

  // JSON that ends no element of HTML, whatever its texts are.
  static std::string Inert(const std::string& json);

 private:
  std::string Recorded(const Part& part, const std::string& answer) const;
  bool Take(std::string& list, const std::string& one, size_t most);

  const WebContext& context_;
  const ReportQuestion& question_;
  size_t room_;
  std::string answers_, lacks_;
};

}  // namespace msprobe::server
