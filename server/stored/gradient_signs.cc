#include "server/stored/gradient_signs.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "server/analysis/signs/equal_signs.h"
#include "server/format/cat.h"

namespace msprobe::server {
namespace {

constexpr absl::string_view kGradientHead = "Parameter.";
constexpr absl::string_view kGradientTail = ".parameters_grad.0";

// The tensor under a key of a record's fields; nothing: there is none.
std::optional<v1::TensorLeaf> LeafOf(const v1::Record& record, std::string_view key) {
  for (const v1::Value::Entry& entry : record.fields().dict().entries()) {
    if (entry.key() != key || entry.value().list().items_size() != 1) continue;
    const v1::Value& value = entry.value().list().items(0);
    if (value.has_tensor()) return value.tensor();
  }
  return std::nullopt;
}

bool SameShape(const GradientRecord& one, const GradientRecord& other) {
  return std::equal(one.gradient.shape().begin(), one.gradient.shape().end(), other.gradient.shape().begin(),
                    other.gradient.shape().end());
}

}  // namespace

uint64_t GradientRecord::elements() const {
  uint64_t elements = 1;
  for (const int64_t size : gradient.shape()) elements *= static_cast<uint64_t>(size);
  return elements;
}

absl::StatusOr<std::vector<GradientRecord>> GradientsIn(RecordSource& step) {
  std::vector<GradientRecord> gradients;
  if (step.settings().task() != kGradProbe) return gradients;
  const absl::Status status = step.ForEachRecord([&](const v1::Record& record, uint64_t) {
    absl::string_view name = record.full_name();
    if (record.kind() != v1::RECORD_PARAMETERS_GRAD || !absl::ConsumePrefix(&name, kGradientHead) ||
        !absl::ConsumeSuffix(&name, kGradientTail)) {
      return absl::OkStatus();
    }
    std::optional<v1::TensorLeaf> gradient = LeafOf(record, "grad");
    if (!gradient.has_value()) return absl::OkStatus();
    gradients.push_back(
        {std::string(name), *std::move(gradient), LeafOf(record, "signs"), LeafOf(record, "intervals")});
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return gradients;
}

absl::StatusOr<std::string> ReadWhole(RecordSource& step, const v1::TensorLeaf& leaf, uint64_t size) {
  std::string bytes;
  if (size > 0) {
    if (leaf.payload().hash().empty()) return absl::NotFoundError("there was no room for it in the program's memory");
    const absl::Status status = step.ReadPayload(leaf.payload().hash(), [&](std::string_view chunk) {
      if (chunk.size() > size - bytes.size()) return absl::NotFoundError(Cat("it has more than ", size, " bytes"));
      bytes.append(chunk);
      return absl::OkStatus();
    });
    if (!status.ok()) return status;
  }
  if (bytes.size() != size) return absl::NotFoundError(Cat("it has ", bytes.size(), " bytes instead of ", size));
  return bytes;
}

absl::StatusOr<SignComparison> CompareSigns(RecordSource& target, RecordSource& golden,
                                            const std::function<bool(const std::string& parameter)>& wanted) {
  auto ours = GradientsIn(target);
  if (!ours.ok()) return ours.status();
  auto theirs = GradientsIn(golden);
  if (!theirs.ok()) return theirs.status();
  std::map<std::string_view, const GradientRecord*> partners;
  const auto takes = [&](const GradientRecord& gradient) { return wanted == nullptr || wanted(gradient.parameter); };
  for (const GradientRecord& gradient : *theirs) {
    if (takes(gradient)) partners[gradient.parameter] = &gradient;
  }
  SignComparison result;
  const auto note = [&](const std::string& parameter, std::string_view why) {
    result.notes.push_back(Cat(parameter, ": ", why));
  };
  for (const GradientRecord& gradient : *ours) {
    if (!takes(gradient)) continue;
    const auto found = partners.find(gradient.parameter);
    if (found == partners.end()) {
      note(gradient.parameter, "only the target has it");
      continue;
    }
    const GradientRecord& partner = *found->second;
    partners.erase(found);
    if (!SameShape(gradient, partner)) {
      note(gradient.parameter, "the shapes differ");
      continue;
    }
    if (!gradient.signs.has_value() || !partner.signs.has_value()) {
      note(gradient.parameter, "there are no signs: grad_level should be L1 or L2, and the dtype a float");
      continue;
    }
    SignSimilarity similarity{gradient.parameter, gradient.elements(), gradient.elements()};
    const std::string& hash = gradient.signs->payload().hash();
    if (similarity.elements > 0 && (hash.empty() || hash != partner.signs->payload().hash())) {
      const uint64_t size = gradient.sign_bytes();
      auto one = ReadWhole(target, *gradient.signs, size);
      auto other = ReadWhole(golden, *partner.signs, size);
      if (const absl::Status& failed = one.ok() ? other.status() : one.status(); !failed.ok()) {
        if (failed.code() != absl::StatusCode::kNotFound) return failed;
        note(gradient.parameter, Cat("its signs never arrived: ", failed.message()));
        continue;
      }
      // A sender may have set bits past the last element.
      similarity.equal -= std::min(similarity.elements, CountDifferentBits(one->data(), other->data(), size));
    }
    result.parameters.push_back(std::move(similarity));
  }
  for (const GradientRecord& gradient : *theirs) {
    if (partners.contains(gradient.parameter)) note(gradient.parameter, "only the golden side has it");
  }
  return result;
}

SignSimilarity SummaryOf(const std::vector<SignSimilarity>& parameters) {
  SignSimilarity summary{std::string(kSignSummary), 0, 0};
  for (const SignSimilarity& each : parameters) {
    summary.elements += each.elements;
    summary.equal += each.equal;
  }
  return summary;
}

}  // namespace msprobe::server
