#include "server/exporter/vis_database.h"

#include <xxhash.h>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "server/exporter/node_rows.h"
#include "server/format/cat.h"

namespace msprobe::server {
namespace {

// On pages of 4 KiB much of the file would be empty.
constexpr SqliteFile::Options kVisOptions = {.page_bytes = 16384, .wal = true};

constexpr std::string_view kTables =
    "CREATE TABLE nodes (id TEXT NOT NULL, node_order INTEGER NOT NULL, node_name TEXT NOT NULL, "
    "node_type TEXT NOT NULL, up_node TEXT, sub_nodes TEXT, precision_index INTEGER, overflow_level TEXT, "
    "micro_step_id INTEGER NOT NULL, match_path INTEGER, match TEXT, stack_id TEXT, parallel_merge_info TEXT, "
    "matched_distributed TEXT, modified INTEGER NOT NULL, input_data TEXT, output_data TEXT, data_source TEXT, "
    "dump_data_dir TEXT, step INTEGER NOT NULL, rank INTEGER NOT NULL, is_distributed INTEGER);"
    "CREATE TABLE paths (id INTEGER PRIMARY KEY, names TEXT);"
    "CREATE TABLE tb_stack (id TEXT PRIMARY KEY, stack_info TEXT);"
    "CREATE TABLE tb_config (id TEXT PRIMARY KEY, graph_type TEXT NOT NULL, task TEXT, tool_tip TEXT, "
    "micro_steps INTEGER, overflow_check INTEGER, node_colors TEXT NOT NULL, rank_list TEXT NOT NULL, "
    "step_list TEXT NOT NULL);"
    // Of few nodes: to look at all again at the end would cost more.
    "CREATE INDEX index6 ON nodes (step, rank, modified, match) WHERE modified = 1;"
    "CREATE INDEX index7 ON nodes (is_distributed) WHERE is_distributed = 1;";

// Where match_path is null, match is the whole list.
constexpr std::string_view kMatchedNodeLink =
    "CASE WHEN match_path IS NULL THEN match ELSE (SELECT names FROM paths WHERE id = match_path) || "
    "replace(match, char(1), node_name) || '\"]' END";

// What may be changed in a database: whatever the plugins change, and what they might.
constexpr std::string_view kUpdate =
    "CREATE TRIGGER update_node INSTEAD OF UPDATE ON tb_nodes BEGIN UPDATE nodes SET "
    "precision_index = NEW.precision_index, overflow_level = NEW.overflow_level, match_path = NULL, "
    "match = NEW.matched_node_link, matched_distributed = NEW.matched_distributed, modified = NEW.modified, "
    "input_data = NEW.input_data, output_data = NEW.output_data WHERE id = OLD.id; END;";

std::string Schema() {
  return Cat(kTables,
             "CREATE VIEW tb_nodes AS SELECT id, data_source || '_' || step || '_' || rank AS graph_id, node_order, "
             "node_name, node_type, up_node, sub_nodes, precision_index, overflow_level, micro_step_id, ",
             kMatchedNodeLink, " AS matched_node_link, stack_id, parallel_merge_info, matched_distributed, modified, ",
             UnpackedSql("input_data", "node_name"), " AS input_data, ", UnpackedSql("output_data", "node_name"),
             " AS output_data, data_source, dump_data_dir, step, rank, is_distributed FROM nodes;", kUpdate);
}

constexpr std::string_view kAddNode =
    "INSERT INTO nodes VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, 0, ?15, ?16, ?17, ?18, "
    "?19, "
    "?20, ?21)";
constexpr std::string_view kAddPath = "INSERT INTO paths VALUES (?1, ?2)";
constexpr std::string_view kAddStack = "INSERT INTO tb_stack VALUES (?1, ?2)";
constexpr std::string_view kAddConfig = "INSERT INTO tb_config VALUES ('1', ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
constexpr std::string_view kSetPartners = "UPDATE nodes SET matched_distributed = ?1 WHERE rowid = ?2";

// What the queries of the plugins look for. mindstudio-probe has two more: its index5 serves none of them, and the full
// index6 and index7 hold all nodes where queries ask for the few that were matched by hand, or communicate.
// Sorting at the end takes half the time of a place for each node as it comes.
constexpr const char* kVisIndexes =
    "CREATE UNIQUE INDEX node_id ON nodes (id);"
    "CREATE INDEX index1 ON nodes (step, rank, data_source, up_node, node_order);"
    "CREATE INDEX index2 ON nodes (step, rank, data_source, node_name);"
    "CREATE INDEX index3 ON nodes (step, rank, data_source, node_order);"
    "CREATE INDEX index4 ON nodes (step, rank, node_order);";

SqliteValue TextOrNull(std::string_view text) { return text.empty() ? SqliteValue(std::nullopt) : SqliteValue(text); }

std::string GraphId(std::string_view side, uint32_t step, uint32_t rank) { return Cat(side, "_", step, "_", rank); }

std::string ListOf(const std::set<uint32_t>& numbers) { return Cat("[", absl::StrJoin(numbers, ", "), "]"); }

}  // namespace

void AppendJsonEscaped(std::string_view text, std::string& out) {
  constexpr std::string_view kHex = "0123456789abcdef";
  size_t from = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c >= 0x20 && c != '"' && c != '\\') continue;
    out.append(text, from, i - from);
    from = i + 1;
    out += '\\';
    if (c == '"' || c == '\\') {
      out += text[i];
    } else if (c == '\n') {
      out += 'n';
    } else if (c == '\t') {
      out += 't';
    } else {
      out += "u00";
      out += kHex[c >> 4];
      out += kHex[c & 15];
    }
  }
  out.append(text, from, text.size() - from);
}

void AppendJsonText(std::string_view text, std::string& out) {
  out += '"';
  AppendJsonEscaped(text, out);
  out += '"';
}

absl::StatusOr<std::unique_ptr<VisDatabase>> VisDatabase::Create(std::string path) {
  auto file = SqliteFile::Create(std::move(path), kVisOptions, Schema().c_str());
  if (!file.ok()) return file.status();
  return std::unique_ptr<VisDatabase>(new VisDatabase(*std::move(file)));
}

absl::StatusOr<int64_t> VisDatabase::AddNode(const VisNode& node) {
  id_ = Cat(GraphId(node.side, node.step, node.rank), "_", node.name);
  const std::string kind = Cat(node.kind);
  match_.clear();
  if (!node.match_path) {
    match_ = "[]";
  } else if (node.match == node.name) {
    match_ += kOwnName;
  } else {
    AppendJsonEscaped(node.match, match_);
  }
  absl::Status status = file_->Run(kAddNode, {id_,
                                              node.order,
                                              node.name,
                                              kind,
                                              node.parent,
                                              node.children_json,
                                              node.precision,
                                              TextOrNull(node.overflow),
                                              node.micro_step,
                                              node.match_path,
                                              match_,
                                              node.stack,
                                              node.merge_json,
                                              node.partners_json,
                                              node.inputs,
                                              node.outputs,
                                              node.side,
                                              TextOrNull(node.tensor_directory),
                                              node.step,
                                              node.rank,
                                              node.name.starts_with("Distributed.")});
  if (!status.ok()) return status;
  return ++nodes_;
}

absl::StatusOr<std::string> VisDatabase::AddStack(const std::vector<std::string>& lines) {
  std::string json = "[";
  for (const std::string& line : lines) {
    if (json.size() > 1) json += ", ";
    AppendJsonText(line, json);
  }
  json += ']';
  const uint64_t hash = XXH3_64bits(json.data(), json.size());
  std::string id = absl::StrFormat("%016x", hash);
  if (!stacks_.insert(hash).second) return id;
  if (absl::Status status = file_->Run(kAddStack, {id, json}); !status.ok()) return status;
  return id;
}

absl::StatusOr<int64_t> VisDatabase::AddPath(const std::vector<std::string_view>& names) {
  std::string json = "[";
  for (const std::string_view name : names) {
    AppendJsonText(name, json);
    json += ',';
  }
  json += '"';
  const uint64_t hash = XXH3_64bits(json.data(), json.size());
  const auto id = static_cast<int64_t>(hash);
  if (!paths_.insert(hash).second) return id;
  if (absl::Status status = file_->Run(kAddPath, {id, json}); !status.ok()) return status;
  return id;
}

absl::Status VisDatabase::SetPartners(int64_t node, std::string_view partners_json) {
  return file_->Run(kSetPartners, {partners_json, node});
}

absl::Status VisDatabase::Finish(const VisConfig& config) {
  absl::Status status = file_->Run(
      kAddConfig, {config.compare ? "compare" : "build", config.task, TextOrNull(config.tool_tip), config.micro_steps,
                   config.overflow, config.node_colours, ListOf(config.ranks), ListOf(config.steps)});
  return status.ok() ? file_->Finish(kVisIndexes) : status;
}

}  // namespace msprobe::server
