#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/analysis/table/dump_reader.h"
#include "server/analysis/table/table_source.h"

namespace msprobe::server {

// A tensor whose bytes are given; comes in chunks of `chunk` bytes. For tests.
class MemoryTensor : public TensorElements {
 public:
  MemoryTensor(TensorDescription description, std::string content, size_t chunk = 7)
      : description_(std::move(description)), content_(std::move(content)), chunk_(chunk) {}

  const TensorDescription& description() const override { return description_; }
  absl::Status Read(ContentVisitor visit) override {
    const std::string_view content = content_;
    for (size_t at = 0; at < content.size(); at += chunk_) {
      absl::Status status = visit(content.substr(at, chunk_));
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

 private:
  const TensorDescription description_;
  const std::string content_;
  const size_t chunk_;
};

template <typename T>
std::string BytesOf(const std::vector<T>& elements) {
  return {reinterpret_cast<const char*>(elements.data()), elements.size() * sizeof(T)};
}

// A step made of names and the json of dump.json's entries; contents by data_name. For tests.
class MemoryTable : public TableSource {
 public:
  explicit MemoryTable(const std::vector<std::pair<std::string, std::string>>& entries) {
    DumpReader builder(&table_);
    for (const auto& [name, json] : entries) EXPECT_TRUE(builder.AddEntry(name, json, 0).ok()) << json;
  }
  const StepTable& table() const override { return table_; }
  StepTable& mutable_table() override { return table_; }
  absl::StatusOr<std::unique_ptr<TensorElements>> OpenTensor(const Row& row) const override {
    const auto found = contents_.find(std::string(row.data_name));
    if (found == contents_.end()) return absl::NotFoundError("no contents");
    return std::make_unique<MemoryTensor>(found->second.first, found->second.second);
  }
  void AddContent(const std::string& data_name, TensorDescription description, std::string content) {
    contents_[data_name] = {std::move(description), std::move(content)};
  }

 private:
  StepTable table_;
  std::map<std::string, std::pair<TensorDescription, std::string>> contents_;
};

}  // namespace msprobe::server
