#include "server/exporter/vis_database.h"

#include <xxhash.h>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "server/format/cat.h"

namespace msprobe::server {
namespace {

// A row is some 1.5 KiB: on pages of 4 KiB a fifth of the file would be empty.
constexpr SqliteFile::Options kOptions = {.page_bytes = 16384, .wal = true};

constexpr const char* kSchema =
    "CREATE TABLE tb_nodes (id TEXT PRIMARY KEY, graph_id TEXT NOT NULL, node_order INTEGER NOT NULL, "
    "node_name TEXT NOT NULL, node_type TEXT NOT NULL, up_node TEXT, sub_nodes TEXT, precision_index INTEGER, "
    "overflow_level TEXT, micro_step_id INTEGER NOT NULL, matched_node_link TEXT, stack_id TEXT, "
    "parallel_merge_info TEXT, matched_distributed TEXT, modified INTEGER NOT NULL, input_data TEXT, output_data TEXT, "
    "data_source TEXT, dump_data_dir TEXT, step INTEGER NOT NULL, rank INTEGER NOT NULL, is_distributed INTEGER);"
    "CREATE TABLE tb_stack (id TEXT PRIMARY KEY, stack_info TEXT);"
    "CREATE TABLE tb_config (id TEXT PRIMARY KEY, graph_type TEXT NOT NULL, task TEXT, tool_tip TEXT, "
    "micro_steps INTEGER, overflow_check INTEGER, node_colors TEXT NOT NULL, rank_list TEXT NOT NULL, "
    "step_list TEXT NOT NULL);";

constexpr std::string_view kAddNode =
    "INSERT INTO tb_nodes VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, 0, ?15, ?16, ?17, ?18, "
    "?19, ?20, ?21)";
constexpr std::string_view kAddStack = "INSERT INTO tb_stack VALUES (?1, ?2)";
constexpr std::string_view kAddConfig = "INSERT INTO tb_config VALUES ('1', ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
constexpr std::string_view kSetPartners = "UPDATE tb_nodes SET matched_distributed = ?1 WHERE id = ?2";

// What the queries of the plugins look for. mindstudio-probe has two more: its index5 serves none of them, and the full
// index6 and index7 hold all nodes where queries ask for the few that were matched by hand, or communicate.
constexpr const char* kIndexes =
    "CREATE INDEX index1 ON tb_nodes (step, rank, data_source, up_node, node_order);"
    "CREATE INDEX index2 ON tb_nodes (step, rank, data_source, node_name);"
    "CREATE INDEX index3 ON tb_nodes (step, rank, data_source, node_order);"
    "CREATE INDEX index4 ON tb_nodes (step, rank, node_order);"
    "CREATE INDEX index6 ON tb_nodes (step, rank, modified, matched_node_link) WHERE modified = 1;"
    "CREATE INDEX index7 ON tb_nodes (is_distributed) WHERE is_distributed = 1;";

SqliteValue TextOrNull(std::string_view text) { return text.empty() ? SqliteValue(std::nullopt) : SqliteValue(text); }

std::string GraphId(std::string_view side, uint32_t step, uint32_t rank) { return Cat(side, "_", step, "_", rank); }

std::string ListOf(const std::set<uint32_t>& numbers) { return Cat("[", absl::StrJoin(numbers, ", "), "]"); }

}  // namespace

void AppendJsonText(std::string_view text, std::string& out) {
  constexpr std::string_view kHex = "0123456789abcdef";
  out += '"';
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
  out += '"';
}

absl::StatusOr<std::unique_ptr<VisDatabase>> VisDatabase::Create(std::string path) {
  auto file = SqliteFile::Create(std::move(path), kOptions, kSchema);
  if (!file.ok()) return file.status();
  return std::unique_ptr<VisDatabase>(new VisDatabase(*std::move(file)));
}

absl::Status VisDatabase::AddNode(const VisNode& node) {
  graph_ = GraphId(node.side, node.step, node.rank);
  id_ = Cat(graph_, "_", node.name);
  const std::string kind = Cat(node.kind);
  return file_->Run(kAddNode, {id_,
                               graph_,
                               node.order,
                               node.name,
                               kind,
                               node.parent,
                               node.children_json,
                               node.precision,
                               TextOrNull(node.overflow),
                               node.micro_step,
                               node.match_json,
                               node.stack,
                               node.merge_json,
                               node.partners_json,
                               node.inputs_json,
                               node.outputs_json,
                               node.side,
                               TextOrNull(node.tensor_directory),
                               node.step,
                               node.rank,
                               node.name.starts_with("Distributed.")});
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

absl::Status VisDatabase::SetPartners(std::string_view side, uint32_t step, uint32_t rank, std::string_view name,
                                      std::string_view partners_json) {
  id_ = Cat(GraphId(side, step, rank), "_", name);
  return file_->Run(kSetPartners, {partners_json, id_});
}

absl::Status VisDatabase::Finish(const VisConfig& config) {
  absl::Status status = file_->Run(
      kAddConfig, {config.compare ? "compare" : "build", config.task, TextOrNull(config.tool_tip), config.micro_steps,
                   config.overflow, config.node_colours, ListOf(config.ranks), ListOf(config.steps)});
  return status.ok() ? file_->Finish(kIndexes) : status;
}

}  // namespace msprobe::server
