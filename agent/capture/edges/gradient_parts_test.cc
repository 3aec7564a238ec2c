#include "agent/capture/edges/gradient_parts.h"

#include <gtest/gtest.h>

namespace msprobe::capture {
namespace {

using core::EdgeKind;

constexpr Producer kOutside{.kind = EdgeKind::kOutside};
const int kNodes[2] = {};
const GradientSlot kSlot{.pass = 1, .node = &kNodes[0], .index = 0};

TEST(GradientPartsTest, TellsTheLastRecordThatGaveAPart) {
  GradientParts parts;
  parts.Add(kSlot, {.ordinal = 5, .leaf = 1});
  parts.Add(kSlot, {.ordinal = 7, .leaf = 2});
  for (const EdgeKind by_memory : {EdgeKind::kOutside, EdgeKind::kChanged}) {
    const Producer sum = parts.Resolve(kSlot, {.kind = by_memory, .ordinal = 5, .leaf = 1});
    EXPECT_EQ(sum.kind, EdgeKind::kSum);
    EXPECT_EQ(sum.ordinal, 7);
    EXPECT_EQ(sum.leaf, 2);
  }
}

TEST(GradientPartsTest, WhatMemoryTellsForSureStands) {
  GradientParts parts;
  parts.Add(kSlot, {.ordinal = 7});
  for (const EdgeKind kind : {EdgeKind::kSame, EdgeKind::kView, EdgeKind::kUnversioned, EdgeKind::kUnknown}) {
    const Producer kept = parts.Resolve(kSlot, {.kind = kind, .ordinal = 5, .leaf = 1});
    EXPECT_EQ(kept.kind, kind);
    EXPECT_EQ(kept.ordinal, 5);
  }
}

TEST(GradientPartsTest, AnotherPassNodeOrInputIsAnotherSlot) {
  GradientParts parts;
  parts.Add(kSlot, {.ordinal = 7});
  for (const GradientSlot& other : {GradientSlot{.pass = 2, .node = &kNodes[0], .index = 0},
                                    GradientSlot{.pass = 1, .node = &kNodes[1], .index = 0},
                                    GradientSlot{.pass = 1, .node = &kNodes[0], .index = 1}}) {
    EXPECT_EQ(parts.Resolve(other, kOutside).kind, EdgeKind::kOutside);
  }
  parts.EndStep();
  EXPECT_EQ(parts.Resolve(kSlot, kOutside).kind, EdgeKind::kOutside);
}

TEST(GradientPartsTest, IsBounded) {
  GradientParts parts(1);
  const GradientSlot second{.pass = 1, .node = &kNodes[1], .index = 0};
  parts.Add(kSlot, {.ordinal = 1});
  parts.Add(second, {.ordinal = 2});
  parts.Add(kSlot, {.ordinal = 3});
  EXPECT_EQ(parts.Resolve(second, kOutside).kind, EdgeKind::kOutside);
  EXPECT_EQ(parts.Resolve(kSlot, kOutside).ordinal, 3);
}

}  // namespace
}  // namespace msprobe::capture
