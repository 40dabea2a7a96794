// What a rank leaves behind that is stuck, dies or is asked: RUN/incident-TIME-rankN.json, and the same as text.
#pragma once

#include "comm/incident.hpp"

#include <filesystem>
#include <string>

namespace onebatch::launch {

/// For people: the reason, what each rank did, the last operations, and where the threads are.
[[nodiscard]] std::string incident_text(const comm::Incident& incident);
/// For programs; `plan` is the run's plan.json, empty for none. Memory is this process's as the system has it, in
/// bytes.
[[nodiscard]] std::string incident_json(const comm::Incident& incident, const std::string& plan);

/// Writes both into the run's folder and says so on standard error; there, and in full, where there is no such folder
/// (yet).
void write_incident(const comm::Incident& incident, const std::filesystem::path& run_dir);

/// What came of saving after a rank was lost: a line on standard error, and the same in such files.
void write_loss(int rank, const std::string& line, const std::filesystem::path& run_dir);

}  // namespace onebatch::launch
