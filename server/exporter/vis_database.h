#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/exporter/sqlite_file.h"

namespace msprobe::server {

// A row of tb_nodes: one node of one graph. Texts are borrowed for the length of the call; `*_json` are JSON.
struct VisNode {
  std::string_view side;  // "NPU": the target, or the only side; "Bench": the golden side
  uint32_t step = 0;
  uint32_t rank = 0;
  uint32_t order = 0;
  std::string_view name;
  int kind = 0;                     // GraphNode::Kind
  std::string_view parent;          // empty: the root
  std::string_view children_json;   // a list of names; empty: none
  std::optional<double> precision;  // 0 (pass), 0.5 (warning), 1 (error); nothing: not compared
  std::string_view overflow;        // "medium", "high", "critical"; empty: none
  uint32_t micro_step = 0;
  std::optional<int64_t> match_path;      // VisDatabase.AddPath, of the partner's parent; nothing: it has no partner
  std::string_view match;                 // the partner's name
  std::string_view stack;                 // VisDatabase::AddStack
  std::string_view merge_json;            // how ranks were merged; empty: they were not
  std::string_view partners_json = "{}";  // communications of other ranks
  std::string_view inputs;                // packed (NodeRows)
  std::string_view outputs;
  std::string_view tensor_directory;  // empty: there is none
};

// The row of tb_config.
struct VisConfig {
  bool compare = false;
  std::string task;      // "summary", "md5", "all", "structure"; empty: nothing was compared
  std::string tool_tip;  // JSON; empty: none
  uint32_t micro_steps = 1;
  bool overflow = false;
  std::string node_colours = "null";  // JSON
  std::set<uint32_t> ranks;
  std::set<uint32_t> steps;
};

// A graph database, as the graph plugins of TensorBoard read it: one SQLite file with tb_nodes, tb_stack and tb_config,
// in WAL mode. It appears at Finish; memory, errors and threads are SqliteFile's.
//
// tb_nodes is a view, which can be read and updated as the table of mindstudio-probe's databases: the rows beneath it,
// in `nodes`, have their JSON packed (NodeRows), and the path to a partner's parent, once, in `paths`.
class VisDatabase {
 public:
  static absl::StatusOr<std::unique_ptr<VisDatabase>> Create(std::string path);

  // Gives what SetPartners takes.
  absl::StatusOr<int64_t> AddNode(const VisNode& node);
  // Keeps a stack once, whoever has it. Gives what VisNode.stack takes.
  absl::StatusOr<std::string> AddStack(const std::vector<std::string>& lines);
  // Keeps the names from the root to a node once; no names are the root's parent. Gives what VisNode.match_path takes.
  absl::StatusOr<int64_t> AddPath(const std::vector<std::string_view>& names);
  // Changes VisNode.partners_json of a node that was added.
  absl::Status SetPartners(int64_t node, std::string_view partners_json);
  // Adds indexes and the configuration, and closes the file.
  absl::Status Finish(const VisConfig& config);

 private:
  explicit VisDatabase(std::unique_ptr<SqliteFile> file) : file_(std::move(file)) {}

  const std::unique_ptr<SqliteFile> file_;
  // Hashes of those that are in the file.
  absl::flat_hash_set<uint64_t> stacks_;
  absl::flat_hash_set<uint64_t> paths_;
  int64_t nodes_ = 0;  // rows of them: SQLite numbers them from 1
  std::string id_;
  std::string match_;
};

// Appends a text as JSON; without its quotes.
void AppendJsonText(std::string_view text, std::string& out);
void AppendJsonEscaped(std::string_view text, std::string& out);

}  // namespace msprobe::server
