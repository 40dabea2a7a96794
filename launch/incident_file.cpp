#include "launch/incident_file.hpp"

#include "comm/error.hpp"
#include "comm/local_communicator.hpp"
#include "launch/utc_time.hpp"
#include "trainer/io/durable_file.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <fstream>
#include <iterator>

namespace onebatch::launch {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* k_moment = "%Y%m%dT%H%M%S";  // fit for a file's name

const char* name_of(comm::Incident::Kind kind) {
  switch (kind) {
    case comm::Incident::Kind::timeout: return "timeout";
    case comm::Incident::Kind::crash: return "crash";
    case comm::Incident::Kind::request: return "request";
    case comm::Incident::Kind::loss: return "loss";
  }
  return "";
}

// "VmRSS:   1234 kB" of /proc/self/status.
std::int64_t bytes_of(std::string_view key) {
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with(key)) return std::atoll(line.c_str() + key.size() + 1) * 1024;
  }
  return 0;
}

std::string read_all(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

Json to_json(const comm::RankReport& rank) {
  return {{"rank", rank.rank},
          {"process", rank.process},
          {"activity", rank.activity},
          {"activity_seconds", rank.activity_seconds},
          {"inside", rank.inside},
          {"operation", rank.operation},
          {"sequence", rank.sequence},
          {"bytes", rank.bytes},
          {"operation_seconds", rank.operation_seconds}};
}

Json to_json(const comm::PastOperation& operation) {
  return {{"sequence", operation.sequence}, {"operation", operation.name},
          {"bytes", operation.bytes},       {"began_seconds_ago", operation.began_seconds_ago},
          {"seconds", operation.seconds},   {"ended", operation.ended}};
}

Json to_json(const comm::Incident::Process& process) {
  Json threads = Json::array();
  for (const comm::ThreadStack& thread : process.threads)
    threads.push_back({{"thread", thread.id}, {"name", thread.name}, {"frames", thread.frames}});
  return {{"rank", process.rank}, {"threads", threads}};
}

template <typename Items>
Json list_of(const Items& items) {
  Json list = Json::array();
  for (const auto& item : items) list.push_back(to_json(item));
  return list;
}

std::string line_of(const comm::RankReport& rank) {
  return fmt::format("  rank {} ({}): {}{}\n", rank.rank, rank.process,
                     rank.inside ? fmt::format("in {} (number {}, {} bytes) since {:.1f} s; ", rank.operation,
                                               rank.sequence, rank.bytes, rank.operation_seconds)
                                 : "",
                     rank.activity.empty()
                         ? "has said nothing of what it does"
                         : fmt::format("last said: {}, {:.1f} s ago", rank.activity, rank.activity_seconds));
}

}  // namespace

std::string incident_text(const comm::Incident& incident) {
  std::string text =
      fmt::format("{} of rank {} on {}: {}\n", name_of(incident.kind), incident.rank, incident.host, incident.reason);
  text += "ranks\n";
  for (const comm::RankReport& rank : incident.ranks) text += line_of(rank);
  text += "the last operations of this rank\n";
  for (const comm::PastOperation& operation : incident.operations)
    text += fmt::format("  {:>6}  {:<28} {:>12} bytes  {:>8.3f} s ago, {} {:.6f} s\n", operation.sequence,
                        operation.name, operation.bytes, operation.began_seconds_ago,
                        operation.ended ? "took" : "not ended after", operation.seconds);
  for (const auto& process : incident.processes)
    text += fmt::format("threads of rank {}\n{}", process.rank, comm::to_text(process.threads));
  return text;
}

std::string incident_json(const comm::Incident& incident, const std::string& plan) {
  Json document = {{"kind", name_of(incident.kind)},
                   {"reason", incident.reason},
                   {"time", utc_time(k_moment)},
                   {"rank", incident.rank},
                   {"host", incident.host},
                   {"memory", {{"resident_bytes", bytes_of("VmRSS:")}, {"peak_resident_bytes", bytes_of("VmHWM:")}}},
                   {"ranks", list_of(incident.ranks)},
                   {"operations", list_of(incident.operations)},
                   {"processes", list_of(incident.processes)}};
  document["plan"] = Json::parse(plan, nullptr, /*allow_exceptions=*/false);
  if (document["plan"].is_discarded()) document["plan"] = nullptr;
  return document.dump(2, ' ', false, Json::error_handler_t::replace);
}

namespace {

// Returns that for people.
fs::path write_files(const comm::Incident& incident, const std::string& text, const fs::path& run_dir) {
  const std::string name = fmt::format("incident-{}-rank{}", utc_time(k_moment), incident.rank);
  write_text_atomically(run_dir / (name + ".json"), incident_json(incident, read_all(run_dir / "plan.json")) + "\n");
  write_text_atomically(run_dir / (name + ".txt"), text);
  return run_dir / (name + ".txt");
}

}  // namespace

void write_incident(const comm::Incident& incident, const fs::path& run_dir) {
  const std::string text = incident_text(incident);
  std::error_code error;
  if (run_dir.empty() || !fs::is_directory(run_dir, error)) return comm::say_failure(incident.rank, text);
  const fs::path file = write_files(incident, text, run_dir);
  comm::say_failure(incident.rank, fmt::format("what it did, and where its threads were, is in {}", file.string()));
}

void write_loss(int rank, const std::string& line, const fs::path& run_dir) {
  comm::say_failure(rank, line);
  std::error_code error;
  if (!fs::is_directory(run_dir, error)) return;
  comm::Incident incident;
  incident.kind = comm::Incident::Kind::loss;
  incident.reason = line;
  incident.rank = rank;
  incident.host = comm::host_name();
  write_files(incident, fmt::format("loss, rank {} on {}: {}\n", rank, incident.host, line), run_dir);
}

}  // namespace onebatch::launch
