#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "agent/core/config/config.h"

namespace msprobe::core {

// The names that a configuration may hold. docs/config.md has a row for each, which a test compares.

std::span<const std::string_view> TopFields();      // sections of tasks included
std::span<const std::string_view> LoadFields();     // of "load"
std::span<const std::string_view> AllTaskFields();  // of any task's section
// Of the section of one task, in which the others of AllTaskFields have no effect.
bool HasField(Task task, std::string_view field);

// What is said of a task that other tools have and this one has not: what it is and what to do instead. Empty: unknown.
std::string_view OtherTask(std::string_view task);

}  // namespace msprobe::core
