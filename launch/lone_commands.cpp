#include "launch/lone_commands.hpp"

#include "comm/launcher.hpp"
#include "launch/check_command.hpp"
#include "launch/compile_command.hpp"
#include "launch/data_command.hpp"
#include "launch/doctor/doctor_command.hpp"
#include "launch/export_command.hpp"
#include "launch/init/init_command.hpp"
#include "launch/launch_command.hpp"
#include "launch/log_file.hpp"
#include "launch/report_command.hpp"
#include "launch/signals.hpp"
#include "launch/standard_streams.hpp"
#include "launch/written_files.hpp"
#include "trainer/device/agreement.hpp"
#include "trainer/settings/keys.hpp"

#include <fmt/format.h>

#include <functional>

namespace onebatch::launch {
namespace {

// Returns the document.
using Work = std::function<std::string(const Arguments&)>;

Work work_of(const Arguments& arguments) {
  if (arguments.command == "check") return check_program;
  if (arguments.command == "compile") return compile_program;
  if (arguments.command == "data") return describe_data;
  if (arguments.command == "export") return export_model;
  if (arguments.command == "init") return init;
  if (arguments.command == "report") return report_runs;
  return nullptr;
}

void work_and_write(const Work& work, const Arguments& arguments) {
  if (!arguments.log_folder.empty()) begin_log(arguments.log_folder, arguments.as_typed);
  if (!arguments.json_file.empty()) check_can_be_written("--json", arguments.json_file, Output::text);
  const std::string document = work(arguments);
  if (!arguments.json_file.empty()) write_output(arguments.json_file, document + "\n");
}

int launch_ranks(const Arguments& arguments) {
  try {
    if (comm::is_one_of_several()) throw UserError("launch starts the ranks itself: write it without mpirun or srun");
    return launch(arguments);
  } catch (const std::exception& error) {
    print_error(fmt::format("onebatch: {}\n", words_of(error)));
    return static_cast<int>(exit_code_of(error));
  }
}

}  // namespace

std::optional<int> run_alone(const Arguments& arguments) {
  if (arguments.keys) {
    print_out(key_rows());
    return static_cast<int>(ExitCode::done);
  }
  if (arguments.command == "launch") return launch_ranks(arguments);
  if (arguments.command == "doctor") {
    stop_listening_for_signals();
    return doctor(arguments);
  }
  const Work work = work_of(arguments);
  if (work == nullptr) return std::nullopt;
  stop_listening_for_signals();
  // Under a launcher the first does it, and the others have nothing to do.
  if (comm::read_launcher().rank > 0) return static_cast<int>(ExitCode::done);
  try {
    work_and_write(work, arguments);
    return static_cast<int>(ExitCode::done);
  } catch (const HasSaidWhy& failure) {
    return static_cast<int>(failure.code);
  } catch (const std::exception& error) {
    print_error(fmt::format("onebatch: {}\n", words_of(error)));
    return static_cast<int>(exit_code_of(error));
  }
}

}  // namespace onebatch::launch
