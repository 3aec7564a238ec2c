#include "agent/python/response_binding.h"

#include <pybind11/stl.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "agent/core/responses/response_detector.h"
#include "agent/core/str_cat.h"

namespace py = pybind11;

namespace msprobe::capture {
namespace {

using core::Cat;
using core::ResponseRules;
using core::SampledToken;

struct Candidate {
  int64_t id = 0;
  double logprob = 0;
};

std::string TypeOf(py::handle object) { return std::string(py::str(py::type::of(object).attr("__name__"))); }

// What it looks like, in short.
std::string Shown(py::handle object) {
  constexpr Py_ssize_t kMost = 60;  // characters
  const auto text =
      py::reinterpret_steal<py::object>(PyUnicode_Substring(py::object(py::repr(object)).ptr(), 0, kMost));
  return text ? text.cast<std::string>() : throw py::error_already_set();
}

int64_t TokenId(py::handle object, const std::string& where) {
  if (PyBool_Check(object.ptr()) == 0 && PyIndex_Check(object.ptr()) != 0) {
    const auto id = PyNumber_AsSsize_t(object.ptr(), PyExc_OverflowError);
    if (!PyErr_Occurred()) return id;
    PyErr_Clear();
  }
  throw py::value_error(Cat(where, " is ", Shown(object), "; it should be a token id"));
}

// The candidates of a token, the best first.
std::vector<Candidate> ReadCandidates(py::handle object, const std::string& where) {
  if (!py::isinstance<py::dict>(object)) {
    throw py::value_error(
        Cat(where, " is of type ", TypeOf(object), "; it should be a dict of token ids and log-probabilities"));
  }
  const auto given = py::reinterpret_borrow<py::dict>(object);
  if (given.empty()) throw py::value_error(Cat(where, " is empty; it should have one log-probability or more"));
  std::vector<Candidate> candidates;
  candidates.reserve(given.size());
  for (const auto& item : given) {
    // Owned: what they are asked for may run Python, which may take them out of the dict.
    const auto key = py::reinterpret_borrow<py::object>(item.first);
    const auto value = py::reinterpret_borrow<py::object>(item.second);
    const bool is_number = PyBool_Check(value.ptr()) == 0 && PyNumber_Check(value.ptr()) != 0;
    const double logprob = is_number ? PyFloat_AsDouble(value.ptr()) : 0;
    if (!is_number || PyErr_Occurred() != nullptr) {
      PyErr_Clear();
      throw py::value_error(
          Cat(where, " gives token ", Shown(key), " ", Shown(value), "; it should be a log-probability"));
    }
    candidates.push_back({TokenId(key, Cat("a key of ", where)), logprob});
  }
  // NaN stands first: whatever is cut off, it stays.
  const auto place = [](const Candidate& each) {
    return std::isnan(each.logprob) ? std::numeric_limits<double>::infinity() : each.logprob;
  };
  std::stable_sort(candidates.begin(), candidates.end(),
                   [&](const Candidate& a, const Candidate& b) { return place(a) > place(b); });
  return candidates;
}

// How many kinds of text the candidates are, of those that tell anything.
uint32_t CountKinds(const std::vector<Candidate>& candidates, size_t k, const py::dict& kinds) {
  std::vector<std::string> found;
  for (size_t i = 0; i < k; ++i) {
    const py::object kind = kinds.attr("get")(candidates[i].id);
    if (!kind.is_none()) found.push_back(kind.cast<std::string>());
  }
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  const auto has = [&found](std::string_view kind) {
    return std::find(found.begin(), found.end(), kind) != found.end();
  };
  size_t count = found.size();
  if (has("english_latin") && has("english_latin_space")) --count;  // one, with a space before it or without
  return static_cast<uint32_t>(count - (has("punctuation") ? 1 : 0) - (has("whitespace") ? 1 : 0));
}

ResponseRules ReadRules(const py::dict& given) {
  ResponseRules rules;
  const auto set = [&given](const char* name, auto& value) {
    if (given.contains(name)) value = given[name].cast<std::decay_t<decltype(value)>>();
  };
  set("window", rules.window);
  set("stride", rules.stride);
  set("rare_mass", rules.rare_mass);
  set("rare_categories", rules.rare_categories);
  set("rare_top1", rules.rare_top1);
  set("garbled_top1", rules.garbled_top1);
  set("garbled_share", rules.garbled_share);
  set("garbled_windows", rules.garbled_windows);
  set("repeat_gram", rules.repeat_gram);
  set("repeat_distinct", rules.repeat_distinct);
  set("repeat_distinct_top1", rules.repeat_distinct_top1);
  set("repeat_correlation", rules.repeat_correlation);
  set("repeat_correlation_top1", rules.repeat_correlation_top1);
  set("repeat_single_windows", rules.repeat_single_windows);
  set("repeat_both_windows", rules.repeat_both_windows);
  if (const std::string wrong = core::WrongIn(rules); !wrong.empty()) throw py::value_error(wrong);
  return rules;
}

// The verdict on one reply, ResponseFault's number. where: "reply 3", for messages. kinds: of token ids
// (token2category); none: there is no vocabulary.
int JudgeReply(const py::sequence& topk, const py::sequence& tokens, const py::dict& rules,
               const std::optional<py::dict>& kinds, const std::string& where) {
  const ResponseRules read = ReadRules(rules);
  if (topk.empty() || tokens.empty()) return 0;
  if (topk.size() != tokens.size()) {
    throw py::value_error(Cat(where, " has ", tokens.size(), " tokens and log-probabilities of ", topk.size(),
                              "; it should have as many of both"));
  }
  std::vector<std::vector<Candidate>> candidates;
  candidates.reserve(topk.size());
  size_t k = std::numeric_limits<size_t>::max();
  for (size_t i = 0; i < topk.size(); ++i) {
    candidates.push_back(ReadCandidates(topk[i], Cat(where, ", topk_logprobs[", i, "]")));
    k = std::min(k, candidates.back().size());
  }
  core::ResponseDetector detector(read);
  for (size_t i = 0; i < candidates.size(); ++i) {
    SampledToken token{.id = TokenId(tokens[i], Cat(where, ", tokens[", i, "]")), .has_logprobs = true};
    token.top1 = candidates[i][0].logprob;
    for (size_t j = 0; j < k; ++j) {
      const double logprob = candidates[i][j].logprob;
      token.mass += std::isfinite(logprob) ? std::exp(logprob) : std::numeric_limits<double>::quiet_NaN();
    }
    if (kinds.has_value()) token.categories = token.mass < read.rare_mass ? CountKinds(candidates[i], k, *kinds) : 0;
    detector.Add(token);
  }
  detector.Finish();
  return static_cast<int>(detector.verdict());
}

}  // namespace

void BindResponses(py::module_& module) {
  module.def("judge_reply", &JudgeReply, py::arg("topk_logprobs"), py::arg("tokens"), py::arg("rules"),
             py::arg("kinds"), py::arg("where"));
}

}  // namespace msprobe::capture
