#include "server/exporter/vis_database.h"

#include <sqlite3.h>
#include <xxhash.h>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "server/format/cat.h"

namespace msprobe::server {
namespace {

// A row is some 1.5 KiB: on pages of 4 KiB a fifth of the file would be empty. The plugins set WAL themselves when they
// open a file; until then a journal would only cost time.
constexpr const char* kSetup =
    "PRAGMA page_size=16384; PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; PRAGMA locking_mode=EXCLUSIVE;"
    "PRAGMA cache_size=-16384; PRAGMA temp_store=FILE;"
    "CREATE TABLE tb_nodes (id TEXT PRIMARY KEY, graph_id TEXT NOT NULL, node_order INTEGER NOT NULL, "
    "node_name TEXT NOT NULL, node_type TEXT NOT NULL, up_node TEXT, sub_nodes TEXT, precision_index INTEGER, "
    "overflow_level TEXT, micro_step_id INTEGER NOT NULL, matched_node_link TEXT, stack_id TEXT, "
    "parallel_merge_info TEXT, matched_distributed TEXT, modified INTEGER NOT NULL, input_data TEXT, output_data TEXT, "
    "data_source TEXT, dump_data_dir TEXT, step INTEGER NOT NULL, rank INTEGER NOT NULL, is_distributed INTEGER);"
    "CREATE TABLE tb_stack (id TEXT PRIMARY KEY, stack_info TEXT);"
    "CREATE TABLE tb_config (id TEXT PRIMARY KEY, graph_type TEXT NOT NULL, task TEXT, tool_tip TEXT, "
    "micro_steps INTEGER, overflow_check INTEGER, node_colors TEXT NOT NULL, rank_list TEXT NOT NULL, "
    "step_list TEXT NOT NULL);"
    "BEGIN;";

// Those of mindstudio-probe; its index6 also had the whole of matched_node_link, which no query of the plugins needs in
// an index and which took a fifth of the file.
constexpr const char* kIndexes =
    "CREATE INDEX index1 ON tb_nodes (step, rank, data_source, up_node, node_order);"
    "CREATE INDEX index2 ON tb_nodes (step, rank, data_source, node_name);"
    "CREATE INDEX index3 ON tb_nodes (step, rank, data_source, node_order);"
    "CREATE INDEX index4 ON tb_nodes (step, rank, node_order);"
    "CREATE INDEX index5 ON tb_nodes (step, rank, micro_step_id, node_order);"
    "CREATE INDEX index6 ON tb_nodes (step, rank, modified);"
    "CREATE INDEX index7 ON tb_nodes (is_distributed);";

void Bind(sqlite3_stmt* statement, int at, std::string_view text) {
  sqlite3_bind_text64(statement, at, text.data() == nullptr ? "" : text.data(), text.size(), SQLITE_STATIC,
                      SQLITE_UTF8);
}
void Bind(sqlite3_stmt* statement, int at, int64_t number) { sqlite3_bind_int64(statement, at, number); }

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
  sqlite3* connection = nullptr;
  const int code = sqlite3_open_v2(path.c_str(), &connection,
                                   SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr);
  std::unique_ptr<VisDatabase> made(new VisDatabase(std::move(path), connection));
  if (code != SQLITE_OK) return made->Error(code);
  if (absl::Status status = made->Run(kSetup); !status.ok()) return status;
  auto node = made->Prepare(
      "INSERT INTO tb_nodes VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, 0, ?15, ?16, ?17, "
      "?18, ?19, ?20, ?21)");
  if (!node.ok()) return node.status();
  made->node_ = *node;
  auto stack = made->Prepare("INSERT INTO tb_stack VALUES (?1, ?2)");
  if (!stack.ok()) return stack.status();
  made->stack_ = *stack;
  return made;
}

VisDatabase::~VisDatabase() {
  sqlite3_finalize(node_);
  sqlite3_finalize(stack_);
  sqlite3_close_v2(connection_);
}

absl::Status VisDatabase::Error(int code) const {
  const std::string message = Cat(path_, ": ", connection_ == nullptr ? "no memory" : sqlite3_errmsg(connection_));
  return (code & 0xff) == SQLITE_FULL ? absl::ResourceExhaustedError(message) : absl::InternalError(message);
}

absl::Status VisDatabase::Run(const char* sql) {
  const int code = sqlite3_exec(connection_, sql, nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? absl::OkStatus() : Error(code);
}

absl::StatusOr<sqlite3_stmt*> VisDatabase::Prepare(const char* sql) {
  sqlite3_stmt* statement = nullptr;
  const int code = sqlite3_prepare_v3(connection_, sql, -1, SQLITE_PREPARE_PERSISTENT, &statement, nullptr);
  if (code != SQLITE_OK) return Error(code);
  return statement;
}

absl::Status VisDatabase::Step(sqlite3_stmt* statement) {
  const int code = sqlite3_step(statement);
  sqlite3_reset(statement);
  return code == SQLITE_DONE ? absl::OkStatus() : Error(code);
}

absl::Status VisDatabase::AddNode(const VisNode& node) {
  graph_ = GraphId(node.side, node.step, node.rank);
  id_ = Cat(graph_, "_", node.name);
  const std::string kind = Cat(node.kind);
  int at = 0;
  const auto text = [&](std::string_view value) { Bind(node_, ++at, value); };
  const auto number = [&](int64_t value) { Bind(node_, ++at, value); };
  const auto text_or_null = [&](std::string_view value) {
    if (value.empty()) {
      sqlite3_bind_null(node_, ++at);
    } else {
      text(value);
    }
  };
  text(id_);
  text(graph_);
  number(node.order);
  text(node.name);
  text(kind);
  text(node.parent);
  text(node.children_json);
  if (node.precision) {
    sqlite3_bind_double(node_, ++at, *node.precision);
  } else {
    sqlite3_bind_null(node_, ++at);
  }
  text_or_null(node.overflow);
  number(node.micro_step);
  text(node.match_json);
  text(node.stack);
  text(node.merge_json);
  text(node.partners_json);
  text(node.inputs_json);
  text(node.outputs_json);
  text(node.side);
  text_or_null(node.tensor_directory);
  number(node.step);
  number(node.rank);
  number(node.name.starts_with("Distributed.") ? 1 : 0);
  return Step(node_);
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
  Bind(stack_, 1, id);
  Bind(stack_, 2, json);
  if (absl::Status status = Step(stack_); !status.ok()) return status;
  return id;
}

absl::Status VisDatabase::SetPartners(std::string_view side, uint32_t step, uint32_t rank, std::string_view name,
                                      std::string_view partners_json) {
  auto statement = Prepare("UPDATE tb_nodes SET matched_distributed = ?1 WHERE id = ?2");
  if (!statement.ok()) return statement.status();
  id_ = Cat(GraphId(side, step, rank), "_", name);
  Bind(*statement, 1, partners_json);
  Bind(*statement, 2, id_);
  const absl::Status status = Step(*statement);
  sqlite3_finalize(*statement);
  return status;
}

absl::Status VisDatabase::Finish(const VisConfig& config) {
  auto statement = Prepare("INSERT INTO tb_config VALUES ('1', ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)");
  if (!statement.ok()) return statement.status();
  const std::string ranks = ListOf(config.ranks);
  const std::string steps = ListOf(config.steps);
  Bind(*statement, 1, config.compare ? "compare" : "build");
  Bind(*statement, 2, config.task);
  if (!config.tool_tip.empty()) Bind(*statement, 3, config.tool_tip);
  Bind(*statement, 4, int64_t{config.micro_steps});
  Bind(*statement, 5, int64_t{config.overflow ? 1 : 0});
  Bind(*statement, 6, config.node_colours);
  Bind(*statement, 7, ranks);
  Bind(*statement, 8, steps);
  absl::Status status = Step(*statement);
  sqlite3_finalize(*statement);
  if (status.ok()) status = Run(kIndexes);
  if (status.ok()) status = Run("COMMIT; PRAGMA locking_mode=NORMAL; PRAGMA journal_mode=WAL;");
  if (!status.ok()) return status;
  sqlite3_finalize(node_);
  sqlite3_finalize(stack_);
  node_ = stack_ = nullptr;
  const int code = sqlite3_close(connection_);
  if (code != SQLITE_OK) return Error(code);
  connection_ = nullptr;
  return absl::OkStatus();
}

}  // namespace msprobe::server
