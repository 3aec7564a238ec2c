#pragma once

#include "msprobe/v1/check.pb.h"
#include "server/analysis/check/accuracy.h"
#include "server/analysis/check/policy.h"

namespace msprobe::server {

// What was measured, and the verdict, between the wire and the terms of the analysis.
void Fill(const Accuracy& accuracy, v1::Accuracy& out);
// What the wire does not carry (norms' parts, the index of the first mismatch) is left out: no policy asks for it.
Accuracy AccuracyOf(const v1::Accuracy& message);
void Fill(const Judgement& verdict, const Policy& policy, v1::Verdict& out);

// Empty: the default. InvalidArgument names those there are.
absl::StatusOr<const Policy*> AskedPolicy(const std::string& name);

}  // namespace msprobe::server
